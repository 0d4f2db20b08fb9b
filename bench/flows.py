"""Penstock's side: a home, flows that are run to the end of their input in epochs of a given size, what each epoch took."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from measuring import Meter

from penstock import Flow, View
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.epoch.report import Report
from penstock.engine.run.runtime import Runtime


@dataclass(frozen=True)
class Ran:
    """A flow that has read everything, its outputs delivered."""

    name: str
    rows: int
    seconds: float
    foreign: float
    cpu: float
    reports: list[Report]

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


class Bench:
    """One home and one Spark session. Every run is a new flow with its own name, state and outputs."""

    def __init__(self, home: Path, log: str | None = None, master: str = "local[2]", conf: dict[str, str] | None = None) -> None:
        self.home, self.conf = home, conf if conf is not None else {}
        self.runtime = Runtime(home, master=master, conf=self.conf, url=log)
        self._numbers = itertools.count()

    def started(self, define: Callable[[Flow], None], threaded: bool = True) -> Driver:
        flow = Flow(f"bench{next(self._numbers)}")
        define(flow)
        driver = self.runtime.driver(self.runtime.plan(flow), threaded=threaded)
        driver.start()
        return driver

    def run(self, define: Callable[[Flow], None], epoch: int, most: int | None = None, threaded: bool = True) -> Ran:
        """Epochs of so many rows until there is nothing left, or so many epochs. threaded: sinks take an epoch while the next one
        runs; without, the step `deliver` is all the time they need."""
        driver = self.started(define, threaded)
        reports: list[Report] = []
        with Meter() as meter:
            while (most is None or len(reports) < most) and (report := driver.epoch(EpochRequest(rows=epoch))):
                reports.append(report)
            driver.deliverer.settle()
        driver.stop()
        rows = sum(r.rows for r in reports)
        return Ran(driver.plan.flow, rows, meter.seconds, meter.foreign, meter.cpu, reports)

    def view(self, name: str) -> pa.Table:
        with View(self.home / "views", name) as view:
            return view.rows()
