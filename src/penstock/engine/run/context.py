"""What a flow runs with, from epoch to epoch: its log and storage, its sinks, where its tasks run."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from penstock.core.time import Clock, SystemClock
from penstock.engine.execute.job import Carried, Job, Result
from penstock.engine.execute.placement import InProcess, Placement
from penstock.engine.execute.program import Program
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.epoch.deliver import Target
from penstock.engine.run.lock import held_lock
from penstock.engine.run.waiting import WaitMessages
from penstock.log.port import Log
from penstock.sinks.port import nothing
from penstock.storage.port import Storage

Fail = Callable[[str], None]  # called at named points; tests crash there
EvaluateSql = Callable[[Job, Result], list[Carried]]  # files of what Spark SQL makes of the rows that a segment carried to it


class PublishOffsets(Protocol):
    """Lets others see how far a flow has read. now: there is no later call that would do it."""

    def __call__(self, program: Program, decision: Decision, now: bool = False) -> None: ...


def publish_nothing(program: Program, decision: Decision, now: bool = False) -> None:
    """Nobody looks at how far the flow has read."""


@dataclass
class FlowContext:
    log: Log
    storage: Storage
    targets: Callable[[Program], list[Target]]
    place: Callable[[int], Placement] = field(default=lambda rows: InProcess())  # rows in the epoch -> where it runs
    tasks: int = 1
    buckets: int = 2
    clock: Clock = field(default_factory=SystemClock)
    threaded: bool = False  # whether each sink has a thread of its own
    messages: WaitMessages | None = None  # where it is said that a sink is away
    fail: Fail = nothing
    sql: EvaluateSql | None = None
    accept_gap: bool = False
    publish_offsets: PublishOffsets = publish_nothing
    lock: Callable[[Decisions], AbstractContextManager[bool | None]] = held_lock  # keeps other drivers out
    ready: Callable[[], None] = field(default=lambda: None)  # called before every epoch: sees to it that the work can be done
