"""Two drivers of one flow: the second is refused; should both run, one decides each epoch, and nothing is lost or doubled (G10)."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faults.engine_shop import EPOCH_ROWS, Input, SparkFree, check, drain, fill, last_decision, make_input, shop
from penstock.engine import loop
from penstock.engine.placement import InProcess, Job, Placement
from penstock.engine.work import Result
from penstock.errors import Held, TornEpoch

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


def by_force(home: Path) -> None:
    """A second driver that takes no notice of the lock, as if it were on a disk that has none."""
    runtime = SparkFree(home)
    second = runtime.driver(runtime.plan(shop()))
    second._take = lambda: None  # type: ignore[method-assign]
    second.start()
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


OUTCOMES = {
    "after_open@2": "LostRace: another driver decided epoch 1 of flow shop",
    "after_run@2": "LostRace: another driver decided epoch 1 of flow shop",
    "before_decide@2": "LostRace: another driver decided epoch 1 of flow shop",
    "after_decide@2": "is written by a later start of flow 'shop'",
    "after_deliver:view.sales@2": "is written by a later start of flow 'shop'|cannot be written",
    "topic.appended@2": "cannot be written|cannot take epoch|is written by a later start",
    "after_sweep@2": "LostRace: another driver decided epoch 2|is written by a later start",
}


@pytest.mark.parametrize("point", OUTCOMES)
def test_a_driver_that_was_paused_and_replaced_stops_and_harms_nothing(point: str, tmp_path: Path, given: Input) -> None:
    with stopped_at(tmp_path, point) as sleeper:
        by_force(tmp_path)
        decided = last_decision(tmp_path, "shop")
        said = woken(sleeper)
    assert any(part in said for part in OUTCOMES[point].split("|")), said
    assert last_decision(tmp_path, "shop") == decided, "one decision per epoch"
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
