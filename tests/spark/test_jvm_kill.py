"""The JVM of a run killed, stopped for a while, or ended by itself at the numbered steps of an epoch and of its deliveries: the run
goes on with another one, and every row is there once (G8, G9, G30)."""

import subprocess
import sys
from pathlib import Path

import pytest

from faults.engine_shop import check, fill, make_input
from penstock.sinks.topic import POINTS as TOPIC_POINTS
from penstock.sinks.view import POINTS as VIEW_POINTS

CHILD = Path(__file__).with_name("jvm_child.py")
IN_RUN = "in_run"  # inside of a task
STEPS = ("after_open", "after_run", "before_decide", "after_decide", "after_sweep")
DELIVERED = ("after_deliver:view.sales", "after_deliver:topic.sales_topic", "after_deliver:letters.dead")
POINTS = (*STEPS, *DELIVERED, *VIEW_POINTS, *TOPIC_POINTS)
TOGETHER = 3  # ends of a JVM that one run goes on behind
PARTS = [POINTS[n : n + TOGETHER] for n in range(0, len(POINTS), TOGETHER)]


def run(home: Path, happens: str, *points: str) -> str:
    """What the run said, which came to its end however often its JVM did."""
    command = [sys.executable, str(CHILD), str(home), happens, *points]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def happening_at(home: Path, happens: str, *points: str) -> str:
    given = make_input()
    fill(home, given)
    said = run(home, happens, *points)
    check(home, given)
    for point in points:
        assert point == IN_RUN or f"{happens} {point.partition('@')[0]}" in said, f"{point} was not passed so often"
    return said


def test_a_jvm_killed_in_a_task_and_before_the_decision_is_replaced(tmp_path: Path) -> None:
    said = happening_at(tmp_path, "kill", IN_RUN, "before_decide@2")
    assert said.count("Spark's JVM has ended with code -9; starting another") == 2


@pytest.mark.long
def test_a_jvm_that_ends_by_itself_is_replaced(tmp_path: Path) -> None:
    said = happening_at(tmp_path, "end", "after_open@2")
    assert said.count("Spark's JVM has ended with code 143; starting another") == 1


@pytest.mark.long
def test_a_jvm_that_stands_still_is_waited_for(tmp_path: Path) -> None:
    assert "starting another" not in happening_at(tmp_path, "stop", "after_open@2", "after_decide@3")


@pytest.mark.long
@pytest.mark.parametrize("happens", ["kill", "end"])
@pytest.mark.parametrize("points", PARTS, ids=", ".join)
def test_a_jvm_that_ends_at_any_point_is_replaced(happens: str, points: tuple[str, ...], tmp_path: Path) -> None:
    happening_at(tmp_path, happens, *(f"{point}@{2 + number}" for number, point in enumerate(points)))


@pytest.mark.long
def test_a_jvm_that_stands_still_at_any_point_is_waited_for(tmp_path: Path) -> None:
    happening_at(tmp_path, "stop", *(f"{point}@{2 + number % 3}" for number, point in enumerate(POINTS)))
