"""One flow's driver: takes the flow, recovers, and runs epoch after epoch. The loops around it are in loop.py."""

import os
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from penstock.core.time import FIRST, FOREVER, Clock, SystemClock, moment
from penstock.engine.diagnose.describe import describe, holders
from penstock.engine.execute.placement import InProcess, Placement
from penstock.engine.execute.program import Program, lower
from penstock.engine.run.decision import Decision, Decisions
from penstock.engine.run.deliver import Deliverer, Sweeper, Target
from penstock.engine.run.epoch import Fail, Setting, Timing, run_epoch
from penstock.engine.run.history import keep_record
from penstock.engine.run.horizon import horizon
from penstock.engine.run.open import EpochRequest, Opened, open_epoch
from penstock.errors import DiskFull, Held, LostRace, Mismatch, NotFound, Passing, PenstockError, Replaced, TornEpoch
from penstock.kernels.port import crossed
from penstock.log.port import Log, Topic
from penstock.plan import Plan
from penstock.plan.meaning import is_of
from penstock.sinks.port import nothing
from penstock.storage.port import Storage

_TORN = 2  # times that a torn epoch is run again before the run ends
_LOOK = 1.0  # seconds between two looks of an idle driver whether it was replaced


@dataclass(frozen=True)
class Report:
    """One epoch, for people and for records."""

    flow: str
    decision: Decision = field(repr=False)
    rows: int
    seconds: float
    steps: dict[str, float]
    behind: int
    lag: float  # seconds between the clock and the append time of the oldest row not yet read


class Tell(Protocol):
    """Is told how far a flow has read; now: it will not be told again soon."""

    def __call__(self, program: Program, decision: Decision, now: bool = False) -> None: ...


def untold(program: Program, decision: Decision, now: bool = False) -> None:
    """Nobody wants to know how far the flow has read."""


@dataclass
class Resources:
    """What a driver works with."""

    log: Log
    storage: Storage
    targets: Callable[[Program], list[Target]]
    place: Callable[[int], Placement] = field(default=lambda rows: InProcess())
    tasks: int = 1
    buckets: int = 2
    clock: Clock = field(default_factory=SystemClock)
    threaded: bool = False
    fail: Fail = nothing
    sql: object = None
    accept_gap: bool = False
    tell: Tell = untold
    ready: Callable[[], None] = field(default=lambda: None)  # called before every epoch: sees to it that the work can be done


class Driver:
    def __init__(self, plan: Plan, resources: Resources) -> None:
        self.plan, self.resources = plan, resources
        self.decisions = Decisions(resources.storage, plan.flow)
        self.program = lower(plan, self._topics())
        self.last: Decision | None = None
        self.deliverer = Deliverer((), self.decisions)
        self.replaced = False
        self._lock: AbstractContextManager[bool] | None = None
        self._looked = float("-inf")

    def _topics(self) -> dict[str, Topic | None]:
        topics: dict[str, Topic | None] = {}
        for source in self.plan.sources.values():
            try:
                topics[source.topic] = self.resources.log.topic(source.topic)
            except NotFound:
                topics[source.topic] = None
        return topics

    @property
    def sources(self) -> dict[str, str]:
        """Source step → topic."""
        return {name: spec.called for name, spec in self.program.sources.items()}

    @property
    def streams(self) -> dict[str, str]:
        """The same without tables: time comes as far as these say."""
        return {name: spec.topic for name, spec in self.program.sources.items() if not spec.versions}

    def start(self) -> None:
        """Takes the flow's lock and the next generation; delivers what is decided and forgets what is not."""
        self._take()
        try:
            self._recover()
        except BaseException:
            self.release()
            raise

    def _recover(self) -> None:
        self.decisions.check_whole()
        incarnation, _ = self.decisions.incarnation(uuid.uuid4().hex)
        generation = self.decisions.generation(whoever() | self._described())
        self.last = self.decisions.last()
        self._check(incarnation)
        self.deliverer = Deliverer(self.resources.targets(self.program), self.decisions, self.resources.threaded)
        self.deliverer.recover(incarnation, generation, self.last, self.sources)
        self.sweeper = Sweeper(self.resources.storage, self.decisions)
        self.sweeper.load()
        self.setting = Setting(
            program=self.program,
            log=self.resources.log,
            storage=self.resources.storage,
            decisions=self.decisions,
            incarnation=incarnation,
            generation=generation,
            buckets=self.resources.buckets,
            place=self.resources.place,
            tasks=self.resources.tasks,
            sql=self.resources.sql,  # type: ignore[arg-type]
            fail=self.resources.fail,
        )

    def _described(self) -> dict[str, Any]:
        """What can be said of the flow later, without its program."""
        sources = {name: spec.topic for name, spec in self.program.sources.items() if not spec.static}
        outputs = [{"kind": out.kind, "name": out.definition.target} for out in self.plan.outputs]
        known = {"steps": describe(self.plan), "holders": holders(self.plan), "names": [step.name for step in self.plan.steps]}
        return known | {"sources": sources, "outputs": outputs, "log": where(self.resources.log)} | self._horizon()

    def _horizon(self) -> dict[str, Any]:
        """From when on the flow could go on, where a version has ended its input that did not note it."""
        last = self.decisions.last()
        if last is None or last.horizon or not any(s.used >= FOREVER for s in last.sources.values()):
            return {}
        try:
            return {"horizon": horizon(self.program, self.resources.log, last.sources, None)}
        except (KeyError, NotFound):  # the flow was changed, or an input is gone: both are told soon
            return {}

    def _take(self) -> None:
        self._lock = taken(self.decisions)

    def _check(self, incarnation: str) -> None:
        last = self.last
        if not last:
            return
        if last.incarnation != incarnation:
            raise Mismatch(
                f"the decisions of flow {self.plan.flow} belong to another life of it",
                f"the file incarnation says {incarnation}, epoch {last.epoch} says {last.incarnation}",
                hint="restore the whole directory from one copy",
            )
        if not is_of(self.plan, last.fingerprint):
            raise Mismatch(
                f"flow {self.plan.flow} has changed since it last ran",
                "its state belongs to the steps as they were",
                hint=f"give the changed flow another name; or start it over: penstock flow reset {self.plan.flow}",
            )

    def open(self, request: EpochRequest) -> Opened:
        if self._has_come():
            self.program = self.setting.program = lower(self.plan, self._topics())
        return open_epoch(self.program, self.resources.log, self.last, self.resources.clock.now(), request)

    def _has_come(self) -> bool:
        """Whether a topic that was missing is there now: then the sources are looked at anew."""
        missing = {spec.topic for spec in self.program.sources.values() if not spec.there}
        return bool(missing) and not missing.isdisjoint(self.resources.log.topics())

    def worth_it(self, opened: Opened) -> bool:
        """Rows to read, time that has come further, a gap to be written into the books, or a partition first seen: what was used
        without it becomes its mark."""
        if self.last and any(
            source.partitions.keys() - self.last.sources[name].partitions for name, source in opened.sources.items()
        ):
            return True
        if opened.gone:
            return True
        before = self.last.frontiers if self.last else self.program.frontiers(dict.fromkeys(self.program.sources, -(2**62)))
        return opened.rows > 0 or dict(opened.frontiers) != dict(before) or self._early(opened)

    def _early(self, opened: Opened) -> bool:
        """Whether open windows of the last epochs with rows are to be shown now."""
        last, early = self.last, self.program.early
        if not last or not early:
            return False
        return any(crossed((last.clock, opened.clock), every) for every in early.values()) and last.rows > 0

    def epoch(self, request: EpochRequest | None = None) -> Report | None:
        """One epoch, if there is anything to do. A driver that was replaced says so, whatever else it has met with (G10)."""
        try:
            self._refuse_replaced(_LOOK)
            return self._epoch(replace(request or EpochRequest(), accept_gap=self.resources.accept_gap))
        except Replaced:
            self.replaced = True
            raise
        except PenstockError as error:
            try:
                self._refuse_replaced()
            except Replaced as replaced:
                self.replaced = True
                raise replaced from error
            raise

    def _epoch(self, request: EpochRequest) -> Report | None:
        timing, started = Timing(), time.perf_counter()
        self.resources.ready()
        if self.deliverer.owes():
            self._refuse_replaced()  # a sink is opened anew for it, and made where it is missing
            self.deliverer.again()
        opened = self.open(request)
        if not self.worth_it(opened):
            self.deliverer.settle(8)
            return None
        timing.lap("open", started)
        self.last = decision = self._decided(opened, timing)
        self.sweeper.note(decision)
        with suppress(Passing):  # it is decided: what a sink cannot take, and what cannot be swept, comes with the next epoch
            self._deliver(decision, timing)
        self.resources.tell(self.program, decision)
        self.resources.fail("after_sweep")
        seconds = time.perf_counter() - started
        with suppress(DiskFull):
            keep_record(self.resources.storage, decision, seconds, timing.seconds, opened.behind)
        return Report(self.plan.flow, decision, decision.rows, seconds, timing.seconds, opened.behind, _lag(opened))

    def _deliver(self, decision: Decision, timing: Timing) -> None:
        at = time.perf_counter()
        self.deliverer.give(decision, self.sources, self.resources.fail, self.setting.generation)
        at = timing.lap("deliver", at)
        self._refuse_replaced()  # its successor sweeps
        self.sweeper.sweep(decision, self.deliverer.delivered())
        timing.lap("sweep", at)

    def _refuse_replaced(self, every: float = 0.0) -> None:
        """Raises Replaced if a later start has taken the flow, or it was reset. every: at most once in so many seconds."""
        if time.monotonic() - self._looked >= every:
            self.decisions.refuse_reset(self.setting.incarnation)
            self.decisions.refuse_replaced(self.setting.generation)
            self._looked = time.monotonic()

    def _decided(self, opened: Opened, timing: Timing) -> Decision:
        """Runs the epoch; one that Spark has torn is run again as if it had never been. An older driver that was paused may have
        decided it in the last moment: what it decided holds, and this one goes on behind it."""
        for attempt in range(_TORN + 1):
            try:
                return run_epoch(self.setting, opened, self.last, timing)
            except TornEpoch:
                if attempt == _TORN:
                    raise
            except LostRace:
                winner = self.decisions.read(opened.epoch)
                if winner.generation >= self.setting.generation or not is_of(self.plan, winner.fingerprint):
                    raise
                return winner
            except Passing:  # the run may go on: what other tasks have written meanwhile is swept after the next decision
                self.sweeper.orphans_gone = False
                raise
        raise AssertionError("not reached")

    def stop(self) -> list[str]:
        """What is decided is delivered, and the flow is free again. A line for each sink that is away: what it did not get comes
        with the next start."""
        try:
            return [] if self.replaced else self.deliverer.finish()
        finally:
            self.release()

    def release(self) -> None:
        if self.last and self._lock and not self.replaced:
            self.resources.tell(self.program, self.last, now=True)
        self.deliverer.close()
        if self._lock:
            self._lock.__exit__(None, None, None)
            self._lock = None


def where(log: Log) -> str:
    """A log in words; "" for the one of the home."""
    return str(getattr(log, "settings", ""))


def whoever() -> dict[str, Any]:
    """This process, for whoever wants the same flow."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}


def taken(decisions: Decisions) -> AbstractContextManager[bool]:
    """The flow's lock, held; raises Held, with who has it, if that is somebody else."""
    lock = decisions.storage.lock("lock", wait=False)
    if not lock.__enter__():
        owner = decisions.owner()
        raise Held(
            f"flow {decisions.flow} is already running",
            f"held by process {owner.get('pid')} on {owner.get('host')} since {owner.get('since')}",
            hint="stop it first; a flow has one driver at a time",
        )
    return lock


def _lag(opened: Opened) -> float:
    waiting = [
        f.appended
        for place, frames in opened.frames.items()
        for f in frames
        if f.count and f.appended > FIRST and f.end > opened.sources[place[0]].partitions[place[1]].next
    ]
    return max(0.0, (opened.clock - min(waiting)) / 1e6) if waiting else 0.0


def _now() -> str:
    return moment(SystemClock().now()).strftime("%Y-%m-%dT%H:%M:%SZ")
