"""A few of the laws' random cases with the work in Spark tasks: one that stays, one, or several, chosen epoch by epoch."""

import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laws import engine_flows, over_engine
from laws.cases import Case
from laws.law import Outcome, check
from laws.over_engine import One, OverEngine, PartlySeenLog, Run
from laws.test_engine_laws import a_case
from penstock.core.time import FixedClock
from penstock.engine.execute.job import travels_whole
from penstock.engine.execute.placement import Placement
from penstock.engine.execute.resident.residents import ResidentTask, residents_of
from penstock.engine.execute.spark_tasks import AcrossTasks, OneTask
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.outputs import targets
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FileLogPartlySeen(PartlySeenLog):
    """Tasks get the log itself: what they read was seen by the driver."""

    def __reduce__(self) -> tuple[Any, ...]:
        return FileLog, (self.log.storage, self.log.clock)


@dataclass(frozen=True)
class OverSpark(OverEngine):
    """An implementation of cases whose epochs run in Spark."""

    spark: Any = None

    def __call__(self, case: Case) -> Outcome:
        directory = Path(tempfile.mkdtemp(prefix="penstock-law-"))
        try:
            return SparkRun(self, case, directory).outcome()
        finally:
            shutil.rmtree(directory)


class SparkRun(Run):
    def __init__(self, how: OverSpark, case: Case, directory: Path) -> None:
        self.how, self.case, self.directory = how, case, directory
        self.rng = random.Random(f"spark {case.name} {case.seed}")
        self.clock = FixedClock(0)
        self.log = FileLogPartlySeen(FileLog(LocalStorage(str(directory / "log"), sync=False), self.clock))  # type: ignore[arg-type]
        for source in case.sources:
            self._fill(source)
        self.flows = [InTasks(self, i, nodes) for i, nodes in enumerate(case.flows)]


class InTasks(One):
    def start(self) -> Driver:
        if self.driver is None:
            make = targets(self.run.log, self.storage, self.run.directory / "views", self._fail)
            clock = self.run.clock
            context = FlowContext(self.run.log, self.storage, make, self._place, 2, self.buckets, clock=clock, fail=self._fail)
            self.driver = Driver(self.plan, context)
            self.driver.start()
        return self.driver

    def _place(self, rows: int) -> Placement:
        context = self.run.how.spark.sparkContext  # type: ignore[attr-defined]
        resident = ResidentTask(residents_of(context, True, print), OneTask(context))
        return self.run.rng.choice((resident, OneTask(context), AcrossTasks(context, 2)))


@pytest.fixture(autouse=True, scope="module")
def _functions_travel() -> None:
    for module in (engine_flows, over_engine):
        travels_whole(module)  # tasks cannot import it


PLANS = ("tumbling", "join-left", "window-over-join", "late-window", "where-topic-window")


@pytest.mark.parametrize("headers", [True, False], ids=["own-time", "other-time"])
@pytest.mark.parametrize("name", PLANS)
def test_the_laws_hold_in_tasks_of_spark(name: str, headers: bool, spark: "SparkSession") -> None:
    for seed in (5, 6):
        check(a_case(name, seed), OverSpark(headers, spark=spark))


@pytest.mark.long
@pytest.mark.parametrize("headers", [True, False], ids=["own-time", "other-time"])
@pytest.mark.parametrize("name", PLANS)
def test_the_laws_hold_in_tasks_of_spark_over_many_more_cases(name: str, headers: bool, spark: "SparkSession") -> None:
    for seed in range(100, 130):
        check(a_case(name, seed), OverSpark(headers, spark=spark))
