"""Running flows for real: a home, its log, a Spark session that starts when it is needed."""

import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.engine.execute.job import Carried, Job, Result
from penstock.engine.execute.placement import Placement
from penstock.engine.execute.program import Program
from penstock.engine.execute.resident.listening import PORT, no_residents
from penstock.engine.execute.resident.residents import ResidentTask, residents_of
from penstock.engine.execute.spark_tasks import AcrossTasks, OneTask, plain_memory
from penstock.engine.run.context import Fail, FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.epoch.deliver import Target
from penstock.engine.run.offsets import OffsetPublisher
from penstock.engine.run.outputs import targets
from penstock.engine.run.planning import Planner, facts_of, topics_read
from penstock.engine.run.revival import Watch
from penstock.engine.run.waiting import WaitMessages
from penstock.engine.spark.cluster import is_local, protection
from penstock.errors import BadFlow, BadInput
from penstock.flow.graph import FlowGraph
from penstock.flow.topics import TopicFacts
from penstock.log.open import VARIABLE, open_log
from penstock.log.port import Log
from penstock.plan import Plan
from penstock.sinks.port import nothing
from penstock.storage.local import LocalStorage
from penstock.storage.port import Storage

if TYPE_CHECKING:
    from penstock.engine.spark.analyze import SparkAnalyzer

SMALL = 1_000_000  # rows that one task does sooner than a shuffle over two, on one machine
SMALL_ON_CLUSTER = 500_000  # there a shuffle costs more, and more cores share what it spreads
PATIENCE = 10.0  # seconds that an epoch waits for the broker of its log; then the loop waits, and says so
ONE_TASK_ROWS = "spark.penstock.oneTaskRows"  # a setting for --conf, in place of these numbers

RESIDENT = "spark.penstock.resident"  # false: every epoch is a Spark job of its own


@dataclass
class Runtime:
    """One process that runs flows: where they live and with which Spark."""

    home: Path
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = nothing
    url: str | None = None  # of the log; None: what PENSTOCK_LOG says, else the one in the home

    def __post_init__(self) -> None:
        plain_memory()
        self._watch = Watch(self.say)
        for name, right in ((RESIDENT, "true|false"), (PORT, "[0-9]{1,5}"), (ONE_TASK_ROWS, "[0-9]+")):
            given = self.conf.get(name)
            if given is not None and not re.fullmatch(right, given):
                wanted = "true or false" if name == RESIDENT else "a whole number"
                raise BadInput(f"{name} cannot be {given!r}", hint=f"it is {wanted}")

    @cached_property
    def log(self) -> Log:
        return open_log(self.home, self.url, PATIENCE)

    @cached_property
    def context(self) -> Any:
        """Spark, started at the first use."""
        from penstock.engine.spark.executors import ask
        from penstock.engine.spark.session import start_context

        context = start_context("penstock", self.master, self.conf, on_progress=self.say)
        if not self.local:
            ask(context, self.home, self.log, self.say)
        return context

    @cached_property
    def session(self) -> Any:
        """Spark SQL, for flows that need it."""
        from penstock.engine.spark.session import start_session

        assert self.context  # executors are asked before anything is run on them
        return start_session("penstock", self.master, self.conf, on_progress=self.say)

    def ready(self) -> None:
        """Called before every epoch: a JVM that has ended meanwhile is noticed, and another one started."""
        if "context" not in self.__dict__ or not self._watch.ended():
            return
        with self._watch.guard:
            for kept in ("context", "session", "_analyzer", "_sql_steps"):
                self.__dict__.pop(kept, None)
            assert self.context

    @property
    def local(self) -> bool:
        return is_local(self.master or self.conf.get("spark.master") or "local")

    @cached_property
    def tasks(self) -> int:
        return max(2, int(self.context.defaultParallelism))

    def type_of(self, sql: str, schema: Schema) -> pa.DataType:
        """Spark's own analysis, for expressions that only Spark evaluates."""
        return self._analyzer.type_of(sql, schema)

    @cached_property
    def _analyzer(self) -> "SparkAnalyzer":
        from penstock.engine.spark.analyze import SparkAnalyzer

        return SparkAnalyzer(self.session)

    def plan(self, graph: FlowGraph, beside: Sequence[FlowGraph] = ()) -> Plan:
        """The checked plan of a flow; topics that the flows beside it will make count as made."""
        from penstock.engine.diagnose.disorder import suggest

        written = [out.topic for other in beside for out in other.outputs if out.topic]
        facts = {name: TopicFacts(written_by_flow=True) for name in written} | facts_of(self.log, topics_read(graph))
        decisions = Decisions(LocalStorage(str(self.home / "flows" / graph.name)), graph.name)
        return Planner(graph, self, facts, suggest(self.log)).plan(decisions, self.say)

    def flow_storage(self, flow: str) -> LocalStorage:
        return LocalStorage(str(self.home / "flows" / flow))

    def driver(self, plan: Plan, buckets: int | None = None, threaded: bool = True, accept_gap: bool = False) -> Driver:
        storage, fail = self.flow_storage(plan.flow), armed(os.environ.get("PENSTOCK_FAIL", ""), plan.flow)
        sinks = targets(self.log, storage, self.home / "views", fail)
        context = replace(
            self.context_of(storage, sinks, buckets or self._buckets(storage, plan)),
            threaded=threaded and fail is nothing,
            messages=WaitMessages(self.say, nothing),
            fail=fail,
            accept_gap=accept_gap,
            publish_offsets=OffsetPublisher(self.log, plan.flow).publish,
        )
        return Driver(plan, context)

    def context_of(self, storage: Storage, sinks: Callable[[Program], list[Target]], buckets: int) -> FlowContext:
        """What a flow needs to run here: its tasks run on Spark, and nothing else is said of it."""
        return FlowContext(self.log, storage, sinks, self.place, self.tasks, buckets, sql=self._sql, ready=self.ready)

    def _buckets(self, storage: LocalStorage, plan: Plan) -> int:
        """As the flow has them; a new flow gets as many as tasks can run at once."""
        last = Decisions(storage, plan.flow).last()
        return last.buckets if last else self.tasks

    def _sql(self, job: Job, result: Result) -> list[Carried]:
        steps: list[Carried] = self._sql_steps(job, result)
        return steps

    @cached_property
    def _sql_steps(self) -> Any:
        from penstock.engine.execute.sql import SqlSteps

        with self._watch.guard:
            return SqlSteps(self.session)

    @property
    def _stays(self) -> bool:
        return self.conf.get(RESIDENT, "true") != "false"

    def small_epochs(self) -> str:
        """Where they run, in words."""
        if not self._stays:
            return f"a Spark job for each ({RESIDENT}=false)"
        master = self.master or self.conf.get("spark.master") or "local"
        why = None if self.local else no_residents(protection(master, self.conf) | dict(self.conf))
        return f"a Spark job for each: {why}" if why else "in a Spark task that stays"

    def place(self, rows: int) -> Placement:
        context = self._now()
        residents = residents_of(context, self.local, self.say) if self._stays else None
        if rows <= int(self.conf.get(ONE_TASK_ROWS, SMALL if self.local else SMALL_ON_CLUSTER)):
            return ResidentTask(residents, OneTask(context)) if residents else OneTask(context)
        if residents and not self.local:
            residents.release()  # a cluster's slots are counted: these tasks want all of them
        return AcrossTasks(context, self.tasks)

    def _now(self) -> Any:
        with self._watch.guard:
            return self.context


def log_of(graphs: Sequence[FlowGraph], given: str | None = None) -> str | None:
    """Where the log of these flows is: what was said for the run (--log, PENSTOCK_LOG), else what the flows say themselves."""
    given = given or os.environ.get(VARIABLE)
    named = {graph.log: graph.name for graph in graphs}
    if given is None and len(named) > 1:
        first, second = list(named.values())[:2]
        raise BadFlow(
            f"flows {first} and {second} have different logs: one run has one log",
            *(f"{flow}: {url or 'the log of the home'}" for url, flow in named.items()),
            hint="run them apart, or name the log for both: --log",
        )
    return given or next(iter(named), None)


def armed(setting: str, flow: str) -> Fail:
    """PENSTOCK_FAIL=[flow/]point[@n]: the n-th time (from 1) that point is reached, this process group dies as by `kill -9`."""
    if not setting:
        return nothing
    where, _, rest = setting.rpartition("/")
    point, _, count = rest.partition("@")
    if where and where != flow:
        return nothing
    left = int(count or 1)

    def fail(reached: str) -> None:
        nonlocal left
        if reached == point:
            left -= 1
            if left == 0:
                os.killpg(os.getpgid(0), signal.SIGKILL)

    return fail
