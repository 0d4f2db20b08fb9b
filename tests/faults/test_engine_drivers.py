"""Two drivers of one flow: the second is refused; should both run, one decides each epoch, and nothing is lost or doubled (G10)."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from faults.engine_shop import EPOCH_ROWS, Input, SparkFree, check, drain, fill, last_decision, make_input, shop
from penstock.engine.execute.job import Job, Result
from penstock.engine.execute.placement import InProcess, Placement
from penstock.engine.run import loop
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decision
from penstock.engine.run.epoch.open import EpochRequest
from penstock.errors import Held, Mismatch, TornEpoch
from unlocked import unlocked

pytestmark = pytest.mark.faults

SCRIPT = Path(__file__).with_name("engine_driver.py")


@pytest.fixture
def given(tmp_path: Path) -> Input:
    rows = make_input()
    fill(tmp_path, rows)
    return rows


@contextmanager
def stopped_at(home: Path, point: str) -> Iterator["subprocess.Popen[str]"]:
    """A driver in another process, stopped by SIGSTOP at a point."""
    command = [sys.executable, str(SCRIPT), str(home), point]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it never came to the point"
        yield process
    finally:
        process.kill()
        process.communicate()


def woken(process: "subprocess.Popen[str]") -> str:
    """What the driver says in the end, once it may go on."""
    process.send_signal(signal.SIGCONT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 3, (process.returncode, said)
    return said


def forced(home: Path) -> Driver:
    runtime = SparkFree(home)
    driver = unlocked(runtime.driver(runtime.plan(shop())))
    driver.start()
    return driver


def by_force(home: Path) -> None:
    """A second driver that takes no notice of the lock, as if it were on a disk that has none."""
    second = forced(home)
    loop.catch_up(second, threading.Event(), lambda report: None, EPOCH_ROWS)
    second.stop()


def test_a_second_driver_is_told_who_holds_the_flow_and_a_killed_one_holds_nothing(tmp_path: Path, given: Input) -> None:
    with stopped_at(tmp_path, "before_decide@2") as first:
        with pytest.raises(Held, match="flow shop is already running") as refused:
            drain(tmp_path)
        assert f"held by process {first.pid} on " in str(refused.value)
        first.kill()
        first.wait()
        drain(tmp_path)
    check(tmp_path, given)


POINTS = (
    "after_open@2",
    "after_run@2",
    "before_decide@2",
    "after_decide@2",
    "after_deliver:view.sales@2",
    "topic.appended@2",
    "after_sweep@2",
)
REPLACED = "Replaced: flow shop was replaced by process {} on "


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_was_paused_and_replaced_stops_and_harms_nothing(point: str, tmp_path: Path, given: Input) -> None:
    with stopped_at(tmp_path, point) as sleeper:
        by_force(tmp_path)
        decided = last_decision(tmp_path, "shop")
        said = woken(sleeper)
    assert said.startswith(REPLACED.format(os.getpid())), said
    assert last_decision(tmp_path, "shop") == decided, "one decision per epoch"
    drain(tmp_path)
    check(tmp_path, given)


ROUNDS = [("before_decide@2", 0), ("after_decide@3", 1), ("after_sweep@2", 2)]
LONG_ROUNDS = [(point, epochs) for point in POINTS for epochs in (0, 1, 3) if (point, epochs) not in ROUNDS]


@pytest.mark.parametrize(("point", "epochs"), [*ROUNDS, *(pytest.param(*r, marks=pytest.mark.long) for r in LONG_ROUNDS)])
def test_a_driver_that_wakes_beside_its_successor_is_the_only_one_that_stops(
    point: str, epochs: int, tmp_path: Path, given: Input
) -> None:
    """The successor has taken the flow and run so many epochs when the other one wakes up and does its worst."""
    with stopped_at(tmp_path, point) as sleeper:
        successor = forced(tmp_path)
        for _ in range(epochs):
            assert successor.epoch(EpochRequest(rows=EPOCH_ROWS // 2))
        sleeper.send_signal(signal.SIGCONT)
        while successor.epoch(EpochRequest(rows=7)):
            pass
        successor.stop()
        said = woken(sleeper)
    assert said.startswith(REPLACED.format(os.getpid())), said
    drain(tmp_path)
    check(tmp_path, given)


def test_an_epoch_that_an_older_driver_decides_in_the_last_moment_holds_and_its_successor_goes_on_behind_it(
    tmp_path: Path, given: Input
) -> None:
    """The older one has looked whether it was replaced just before the other one took the flow."""
    older = forced(tmp_path)
    assert older.epoch(EpochRequest(rows=EPOCH_ROWS))
    older.decisions.refuse_replaced = lambda generation: None  # type: ignore[method-assign]
    successor = forced(tmp_path)
    won = list[Decision | None]()

    def fail(point: str) -> None:
        if point == "before_decide" and not won:
            won.append(None)
            with suppress(Mismatch):  # a sink may tell it, which is its successor's already
                older.epoch(EpochRequest(rows=EPOCH_ROWS // 2))
            won.append(older.last)

    successor.context.fail = fail
    report = successor.epoch(EpochRequest(rows=EPOCH_ROWS))
    assert report
    assert won[1]
    assert report.decision == won[1]
    loop.catch_up(successor, threading.Event(), lambda report: None, EPOCH_ROWS)
    successor.stop()
    older.replaced = True
    older.release()
    drain(tmp_path)
    check(tmp_path, given)


class Tearing(InProcess):
    """Does the work, and then finds so many times that Spark has run a task twice."""

    def __init__(self, times: int) -> None:
        self.times, self.runs = times, 0

    def run(self, job: Job) -> Result:
        self.runs += 1
        result = super().run(job)
        if self.runs <= self.times:
            raise TornEpoch("torn")
        return result


class Torn(SparkFree):
    def place(self, rows: int) -> Placement:
        return self.tearing

    tearing: Tearing


@pytest.mark.parametrize(("times", "ends"), [(1, False), (2, False), (3, True)])
def test_a_torn_epoch_is_run_again_and_ends_the_run_only_if_it_is_torn_for_ever(
    times: int, ends: bool, tmp_path: Path, given: Input
) -> None:
    runtime = Torn(tmp_path)
    runtime.tearing = Tearing(times)
    driver = runtime.driver(runtime.plan(shop()))
    driver.start()
    if ends:
        with pytest.raises(TornEpoch):
            driver.epoch()
    else:
        assert driver.epoch()
    driver.stop()
    drain(tmp_path)
    check(tmp_path, given)
