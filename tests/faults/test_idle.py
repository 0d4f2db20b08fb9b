"""A live run wakes when something is appended, rests behind small epochs, and uses next to nothing while nothing comes."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faults.engine_shop import SparkFree, view
from penstock import Flow, Producer
from penstock.engine.run import loop
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.report import Report
from penstock.log.port import TopicSpec
from waiting import until

pytestmark = pytest.mark.faults


@contextmanager
def running(home: Path, reports: list[Report] | None = None) -> Iterator[Driver]:
    runtime = SparkFree(home)
    runtime.log.create(TopicSpec("orders", 2, durability="os"))
    flow = Flow("shop")
    flow.stream("orders", "n long").view("rows")
    driver = runtime.driver(runtime.plan(flow))
    driver.start()
    stop = threading.Event()
    seen = reports.append if reports is not None else lambda report: None
    thread = threading.Thread(target=loop.run, args=(driver, stop, seen))
    thread.start()
    try:
        yield driver
    finally:
        stop.set()
        thread.join()
        driver.stop()


def idle(home: Path, seconds: float) -> float:
    """The part of a core that a run without input takes."""
    reports: list[Report] = []
    with running(home, reports) as driver:
        with Producer(driver.context.log.topic("orders")) as producer:
            producer.send({"n": 1}, partition=0)
        assert until(lambda: bool(reports))
        before = time.process_time()
        time.sleep(seconds)  # the stretch that is measured
        return (time.process_time() - before) / seconds


def test_a_run_without_input_uses_next_to_nothing(tmp_path: Path) -> None:
    assert idle(tmp_path, 4.0) < 0.02


@pytest.mark.long
def test_a_run_without_input_uses_less_than_a_hundredth_of_a_core(tmp_path: Path) -> None:
    assert idle(tmp_path, 60.0) < 0.01


def test_single_rows_in_quick_succession_are_taken_together(tmp_path: Path) -> None:
    reports: list[Report] = []
    with running(tmp_path, reports) as driver:
        with Producer(driver.context.log.topic("orders"), batch_rows=1, linger="0 ms") as producer:
            for n in range(500):
                producer.send({"n": n}, partition=n % 2)
        assert until(lambda: sum(report.rows for report in reports) == 500)
    assert len(reports) < 250
    assert sorted(row["n"] for row in view(tmp_path, "rows")) == list(range(500))


def test_a_run_rests_behind_an_epoch_that_took_all_there_was(tmp_path: Path) -> None:
    reports: list[Report] = []
    with running(tmp_path, reports) as driver, Producer(driver.context.log.topic("orders")) as producer:
        producer.send({"n": 1}, partition=0)
        producer.flush()
        assert until(lambda: bool(reports))
    report = reports[0]
    assert loop.rest(report, 0.02) == 0.02
    assert loop.rest(report, 3.0) == loop.REST
    assert loop.rest(None, 0.02) == 0.0


def test_a_run_that_is_behind_does_not_rest(tmp_path: Path) -> None:
    runtime = SparkFree(tmp_path)
    with Producer(runtime.log.create(TopicSpec("orders", 1, durability="os")), batch_rows=10) as producer:
        for n in range(40):
            producer.send({"n": n})
    flow = Flow("shop")
    flow.stream("orders", "n long").view("rows")
    driver = runtime.driver(runtime.plan(flow), threaded=False)
    driver.start()
    report = driver.epoch(loop.EpochRequest(rows=10))
    driver.stop()
    assert report
    assert report.behind
    assert loop.rest(report, 0.02) == 0.0
