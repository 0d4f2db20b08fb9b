"""Flows on a real standalone cluster: a master and two workers as processes of their own, killed in the middle in every way."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from faults.engine_shop import check, fill, last_decision, make_input
from penstock.engine.runtime import ONE_TASK_ROWS
from penstock.testing.spark_cluster import SparkCluster
from waiting import until

TESTS = Path(__file__).parents[1]
FLOWS = Path(__file__).with_name("flows")
PATIENCE = 60.0


def ended(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.fixture
def cluster(spark_cluster: SparkCluster) -> Iterator[SparkCluster]:
    yield spark_cluster
    spark_cluster.mend()


def run(home: Path, cluster: SparkCluster, stack: ExitStack, *more: str, fail: str = "", **env: str) -> "subprocess.Popen[str]":
    """`penstock run --drain` of both flows in a process group of its own, every epoch across tasks."""
    command = [sys.executable, "-c", "from penstock.cli.main import main; main()", "run"]
    command += [str(FLOWS / "shop.py"), str(FLOWS / "report.py"), "--drain", "--master", cluster.url, "--max-rows", "100", *more]
    for name, value in {ONE_TASK_ROWS: "0", **cluster.settings()}.items():
        command += ["--conf", f"{name}={value}"]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    told = {**os.environ, "PENSTOCK_HOME": str(home), "PYTHONPATH": path, "PENSTOCK_FAIL": fail, **env}
    process = subprocess.Popen(command, env=told, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    stack.callback(ended, process)
    return process


def decided(home: Path) -> int:
    return len(list((home / "flows" / "shop" / "epochs").glob("0*")))


@pytest.mark.timeout(400)
def test_a_worker_that_is_killed_in_the_middle_costs_no_row(tmp_path: Path, cluster: SparkCluster) -> None:
    """The run goes on with the other worker, or stops with one paragraph and the next run goes on (G8, G9)."""
    given, home = make_input(600), tmp_path / "home"
    fill(home, given)
    with ExitStack() as stack:
        first = run(home, cluster, stack)
        assert until(lambda: decided(home) >= 2 or first.poll() is not None, PATIENCE)
        assert first.poll() is None, first.communicate()[1]
        cluster.workers[0].kill()
        _, said = first.communicate(timeout=PATIENCE * 2)
        if first.returncode:
            assert "nothing of this epoch was decided" in said or "the epoch is thrown away" in said, said
            _, said = run(home, cluster, stack).communicate(timeout=PATIENCE * 2)
    assert last_decision(home, "shop").epoch > 3
    check(home, given)
