"""Real kills of a whole process group at every numbered step of an epoch and of a delivery: exactly once all the same (G8, G9).

The work is done without Spark here, so that many kills cost little; tests/spark/test_engine_kill.py does the same with it."""

import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faults.engine_shop import Input, check, fill, make_input
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


def home_of(case: str) -> str:
    return case.replace(":", "-").replace(" ", "_")


def run(place: Path, cases: dict[str, list[str]], given: Input) -> dict[str, list[int]]:
    """Every case in a home of its own, all with the same input; how each of its processes ended."""
    fill(place / "input", given)
    for case in cases:
        shutil.copytree(place / "input", place / home_of(case))
    (place / "cases.json").write_text(json.dumps({home_of(case): fails for case, fails in cases.items()}))
    command = [sys.executable, str(SCRIPT), str(place), str(place / "cases.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    ends: dict[str, list[int]] = json.loads(done.stdout)
    return ends


@pytest.fixture(scope="module")
def given() -> Input:
    return make_input()


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory, given: Input) -> tuple[Path, dict[str, list[int]]]:
    place = tmp_path_factory.mktemp("kills")
    return place, run(place, CASES, given)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES)
def test_after_kills_every_row_is_there_once(case: str, ends: tuple[Path, dict[str, list[int]]], given: Input) -> None:
    place, ended = ends
    *killed, last = ended[home_of(case)]
    assert killed == [-signal.SIGKILL] * len(CASES[case]), "a point was not passed so often"
    assert last == 0
    check(place / home_of(case), given)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_after_many_kills_in_a_row_every_row_is_there_once(tmp_path: Path) -> None:
    rng, given = random.Random(11), make_input(480, seed=3)
    cases = {f"case {n}": [f"shop/{rng.choice(POINTS)}@{rng.choice((1, 1, 2, 5))}" for _ in range(6)] for n in range(30)}
    cases |= {f"{point} {n}": [f"shop/{point}@{n}"] * 2 for point in POINTS for n in (1, 4)}
    cases |= {f"report {point}": [f"report/{point}@{n}" for n in (1, 2, 1)] for point in (*STEPS, *VIEW_POINTS)}
    ends = run(tmp_path, cases, given)
    assert sum(code == -signal.SIGKILL for codes in ends.values() for code in codes) > 150
    for case in cases:
        assert ends[home_of(case)][-1] == 0
        check(tmp_path / home_of(case), given)
