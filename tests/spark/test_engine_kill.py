"""`penstock run` with Spark, killed whole by SIGKILL at its own steps and at those of its sinks; then run again (G8, G9)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faults.engine_shop import check, fill, make_input
from penstock.sinks.topic import POINTS as TOPIC_POINTS
from penstock.sinks.view import POINTS as VIEW_POINTS

FLOWS = Path(__file__).with_name("flows")
TESTS = Path(__file__).parents[1]
STEPS = ("after_open", "after_run", "before_decide", "after_decide", "after_sweep")
DELIVERED = ("after_deliver:view.sales", "after_deliver:topic.sales_topic", "after_deliver:letters.dead")


def run(home: Path, fail: str = "") -> int:
    """How `penstock run --drain` of both flows ended; it has a process group of its own."""
    command = [sys.executable, "-c", "from penstock.cli.main import main; main()", "run", "--drain", "--max-rows", "50", "--quiet"]
    command += [str(FLOWS / "shop.py"), str(FLOWS / "report.py")]
    env = {**os.environ, "PENSTOCK_HOME": str(home), "PENSTOCK_FAIL": fail, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, env=env, start_new_session=True, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def killed_at(home: Path, *fails: str) -> None:
    given = make_input()
    fill(home, given)
    for fail in fails:
        assert run(home, fail) == -signal.SIGKILL
    assert run(home) == 0
    check(home, given)


def test_killed_in_an_epoch_and_again_in_recovery_every_row_is_there_once(tmp_path: Path) -> None:
    killed_at(tmp_path, "shop/after_decide@2", "shop/view.marker@1")


@pytest.mark.long
@pytest.mark.parametrize("point", [*STEPS, *DELIVERED, *VIEW_POINTS, *TOPIC_POINTS])
def test_killed_twice_at_any_point_every_row_is_there_once(point: str, tmp_path: Path) -> None:
    killed_at(tmp_path, f"shop/{point}@2", f"shop/{point}@1")
