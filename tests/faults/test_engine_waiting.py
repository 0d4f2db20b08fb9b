"""A live run waits for what may pass by itself, and goes on: a disk full under state, staged rows, decisions, sinks, log (G30)."""

import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.engine_shop import EPOCH_ROWS, Input, SparkFree, drained, fill, make_input, shop, topic_rows, view
from penstock.engine.execute.placement import InProcess
from penstock.engine.run import loop, waiting
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.outputs import targets
from penstock.engine.run.waiting import WaitMessages
from penstock.errors import DiskFull, SinkUnavailable
from penstock.log.file.log import FileLog
from penstock.storage.faulty import Failure, FaultyStorage, Operation
from penstock.storage.local import LocalStorage

pytestmark = pytest.mark.faults
CHILD = Path(__file__).with_name("full_disk_child.py")
Shown = dict[str, Counter[str]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST", 0.001)


@pytest.fixture(scope="module")
def given() -> Input:
    return make_input()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, given: Input) -> Shown:
    home = tmp_path_factory.mktemp("whole")
    log = fill(home, given)
    drained(home, shop())
    return shown(home, log)


def shown(home: Path, log: Any) -> Shown:
    views = {name: Counter(repr(row) for row in view(home, name)) for name in ("sales", "settled")}
    return views | {name: Counter(repr(row) for row in topic_rows(log, name)) for name in ("sales_topic", "shop.late")}


def a_driver(home: Path, log: Any, storage: Any, threaded: bool = True) -> Driver:
    runtime = SparkFree(home)
    runtime.__dict__["log"] = log
    context = FlowContext(
        log, storage, targets(log, storage, home / "views"), place=lambda rows: InProcess(), tasks=2, buckets=2, threaded=threaded
    )
    return Driver(runtime.plan(shop()), context)


class Live:
    """A live run that ends once nothing is left to read. `room` is called at the third word of a wait."""

    def __init__(self, driver: Driver, room: Callable[[], None]) -> None:
        self.driver, self.room = driver, room
        self.stop, self.said = threading.Event(), list[str]()
        self.rows = 0

    def run(self) -> None:
        self.driver.start()
        ends = loop.ends(self.driver)

        def seen(report: Any) -> None:
            self.rows += report.rows
            reached = {(n, p): at.next for n, s in report.decision.sources.items() for p, at in s.partitions.items()}
            if reached == ends:
                self.stop.set()

        loop.run(self.driver, self.stop, seen, most=EPOCH_ROWS, messages=WaitMessages(self._told, self._told))
        while True:  # what sinks are owed: nobody waits for them any more
            try:
                self.driver.deliverer.again()
                self.driver.stop()
                return
            except SinkUnavailable as error:
                self._told(f"after the run: {error}")

    def _told(self, text: str) -> None:
        self.said.append(text)
        if len(self.said) == 3:
            self.room()


PLACES: list[tuple[str, Operation]] = [("flow", "write"), ("flow", "publish"), ("flow", "open"), ("log", "write")]


def full_disk(where: str, operation: Operation, nth: int, home: Path, given: Input, expected: Shown) -> int:
    """Every such call from the nth on finds the disk full, until somebody makes room. Returns how often it did."""
    log_storage, storage = FaultyStorage(), FaultyStorage()
    fill_log(log_storage, given, home)
    log = FileLog(log_storage)
    disk = storage if where == "flow" else log_storage
    live = Live(a_driver(home, log, storage), disk.failures.clear)
    failure = Failure(operation, nth=nth, kind="ENOSPC", forever=True)
    start = live.driver.start

    def then_full() -> None:
        start()
        disk.arm(failure)

    live.driver.start = then_full  # type: ignore[method-assign]
    live.run()
    disk.failures.clear()
    after = a_driver(home, log, storage)
    after.start()
    loop.drain(after, threading.Event(), lambda report: None, EPOCH_ROWS)
    after.stop()
    assert shown(home, log) == expected
    assert live.said == [] or any("waits since" in text or "after the run" in text for text in live.said), live.said
    orphans(storage)
    return failure.met


def fill_log(storage: FaultyStorage, given: Input, home: Path) -> None:
    source = home / "source"
    fill(source, given)
    for path in (source / "log").rglob("*"):
        if path.is_file() and not path.name.endswith("lock"):
            storage.publish(str(path.relative_to(source / "log")), path.read_bytes())


def orphans(storage: Any) -> None:
    """Every file that is there is named by a decision."""
    decisions = Decisions(storage, "shop")
    named = set().union(*(decisions.read(epoch).files() for epoch in decisions.epochs()))
    there = {f"staged/{n}" for n in storage.list("staged")}
    there |= {f"state/{step}/{n}" for step in storage.list("state") for n in storage.list(f"state/{step}")}
    assert there <= named


@pytest.mark.parametrize(("where", "operation"), PLACES)
def test_a_full_disk_is_waited_for_and_costs_no_row(
    where: str, operation: Operation, tmp_path: Path, given: Input, expected: Shown
) -> None:
    assert full_disk(where, operation, 2, tmp_path, given, expected) > 1


@pytest.mark.long
@pytest.mark.parametrize(("where", "operation"), [*PLACES, ("flow", "sync"), ("flow", "remove")])
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 7, 9, 12, 16, 20, 25, 30])
def test_a_disk_that_is_full_from_any_call_on_is_waited_for_and_costs_no_row(
    where: str, operation: Operation, nth: int, tmp_path: Path, given: Input, expected: Shown
) -> None:
    full_disk(where, operation, nth, tmp_path, given, expected)


def test_a_run_to_the_end_of_what_is_there_waits_for_a_full_disk_for_a_while_and_says_why_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Input
) -> None:
    monkeypatch.setattr(waiting, "LIMIT", 0.01)
    log, storage = fill(tmp_path, given), FaultyStorage()
    driver = a_driver(tmp_path, log, storage)
    driver.start()
    storage.arm(Failure("write", kind="ENOSPC", forever=True))
    with pytest.raises(DiskFull, match="no space left to write"):
        loop.catch_up(driver, threading.Event(), lambda report: None, EPOCH_ROWS)
    driver.release()


def may_not_grow(sink: Any, met: list[SinkUnavailable]) -> None:
    """SQLite finds no room in this view until it is opened anew."""
    pages = sink.used().execute("PRAGMA page_count").fetchone()[0]
    sink.used().execute(f"PRAGMA max_page_count = {pages}").fetchone()
    deliver = sink.deliver

    def noted(delivery: Any) -> None:
        try:
            deliver(delivery)
        except SinkUnavailable as error:
            met.append(error)
            raise

    sink.deliver = noted


@pytest.mark.parametrize("threaded", [True, False])
def test_a_view_on_a_full_disk_gets_every_epoch_later_and_in_order(
    threaded: bool, tmp_path: Path, given: Input, expected: Shown
) -> None:
    log, storage = fill(tmp_path, given), LocalStorage(tmp_path / "flows" / "shop", sync=False)
    driver = a_driver(tmp_path, log, storage, threaded)
    live = Live(driver, lambda: None)
    driver.start()
    met = list[SinkUnavailable]()
    for lane in driver.deliverer.lanes:
        if lane.target.id.startswith("view."):
            lane.call(may_not_grow, lane.target.sink, met)
    driver.start = lambda: None  # type: ignore[method-assign]
    live.run()
    assert met
    assert "database or disk is full" in str(met[0])
    assert "hint: make room on the disk" in str(met[0])
    drained(tmp_path, shop())
    assert shown(tmp_path, log) == expected


@pytest.mark.long
def test_a_disk_of_two_mebibytes_that_runs_full_is_waited_for(tmp_path: Path) -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts without being root here")
    mount = f"mount -t tmpfs -o size=2m none {tmp_path} && exec {sys.executable} {CHILD} {tmp_path}"
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(["unshare", "-rm", "sh", "-c", mount], env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "waits since" in done.stdout
    assert done.stdout.rstrip().endswith("whole")
