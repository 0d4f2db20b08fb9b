"""Real kills of a whole process group at every numbered step of an epoch and of a delivery: exactly once all the same (G8, G9).

The work is done without Spark here, so that many kills cost little; tests/spark/test_engine_kill.py does the same with it."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.engine_shop import check, fill, make_input
from penstock.sinks.topic import POINTS as TOPIC_POINTS
from penstock.sinks.view import POINTS as VIEW_POINTS

pytestmark = pytest.mark.faults

SCRIPT = Path(__file__).with_name("engine_child.py")
STEPS = ("after_open", "after_run", "before_decide", "after_decide", "after_sweep")
DELIVERED = tuple(
    f"after_deliver:{sink}" for sink in ("view.sales", "topic.sales_topic", "view.settled", "letters.late", "letters.dead")
)
SINKS = (*VIEW_POINTS, *TOPIC_POINTS)
POINTS = (*STEPS, *DELIVERED, *SINKS)

ONCE = {f"{point} 2": [f"shop/{point}@2"] for point in POINTS}
SECOND_FLOW = {f"report {point}": [f"report/{point}@2"] for point in ("before_decide", "view.rows")}
TWICE = {f"twice {point}": [f"shop/{point}@2", f"shop/{point}@1"] for point in ("before_decide", "after_decide")}
RECOVERING = {f"recovering {point}": ["shop/after_decide@2", f"shop/{point}@1"] for point in SINKS}
CASES = ONCE | SECOND_FLOW | TWICE | RECOVERING


class Killer:
    """A program that runs the flows in processes that are killed; one for all cases, for it is slow to start."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, home: Path, fails: list[str]) -> list[int]:
        """How the process of each kill ended, and the last one, which was left alone."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([str(home), fails, os.environ.get("PENSTOCK_LOG", "")]) + "\n")
        self._process.stdin.flush()
        ends: list[int] = json.loads(self._process.stdout.readline())
        return ends

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    started = Killer()
    yield started
    started.close()


@pytest.mark.parametrize("case", CASES)
def test_after_kills_every_row_is_there_once(case: str, killer: Killer, tmp_path: Path) -> None:
    given = make_input()
    fill(tmp_path, given)
    *killed, last = killer.run(tmp_path, CASES[case])
    assert killed == [-signal.SIGKILL] * len(CASES[case]), "a point was not passed so often"
    assert last == 0
    check(tmp_path, given)


def many_kills() -> dict[str, list[str]]:
    rng = random.Random(11)
    cases = {f"case {n}": [f"shop/{rng.choice(POINTS)}@{rng.choice((1, 1, 2, 4))}" for _ in range(6)] for n in range(30)}
    cases |= {f"{point} {n}": [f"shop/{point}@{n}"] * 2 for point in POINTS for n in (1, 4)}
    return cases | {f"report {point}": [f"report/{point}@{n}" for n in (1, 2, 1)] for point in (*STEPS, *VIEW_POINTS)}


@pytest.mark.long
@pytest.mark.parametrize("case", many_kills())
def test_after_many_kills_in_a_row_every_row_is_there_once(case: str, killer: Killer, tmp_path: Path) -> None:
    given = make_input(480, seed=3)
    fill(tmp_path, given)
    *killed, last = killer.run(tmp_path, many_kills()[case])
    assert -signal.SIGKILL in killed
    assert set(killed) <= {0, -signal.SIGKILL}
    assert last == 0
    check(tmp_path, given)
