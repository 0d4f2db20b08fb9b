"""A real standalone cluster: a master and two workers as processes of their own, one of them killed in the middle."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from faults.engine_shop import check, fill, last_decision, make_input
from penstock.engine.launch import spark_home
from penstock.engine.runtime import ONE_TASK_ROWS
from waiting import until

TESTS = Path(__file__).parents[1]
FLOWS = Path(__file__).with_name("flows")
PATIENCE = 60.0
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Cluster:
    """Bound to loopback; everything it writes is in `place`."""

    place: Path
    port: int = field(default_factory=free_port)
    web: int = field(default_factory=free_port)
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, stack: ExitStack) -> None:
        self._daemon(stack, "master.Master", "--port", str(self.port), "--webui-port", str(self.web))
        if not until(lambda: self._alive() is not None, PATIENCE):
            missing("no standalone master could be started on loopback ports")
        for number in (0, 1):
            options = ["--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(self.place / f"w{number}"), self.url]
            self.workers.append(self._daemon(stack, "worker.Worker", *options))
        if not until(lambda: self._alive() == 2, PATIENCE):
            missing("the workers of a standalone cluster could not be started")

    def _daemon(self, stack: ExitStack, name: str, *options: str) -> "subprocess.Popen[bytes]":
        home = spark_home()
        env = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": LIGHT,
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *options]
        log = stack.enter_context((self.place / f"{name}.log").open("ab"))
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True, cwd=self.place)
        stack.callback(ended, process)
        return process

    def _alive(self) -> int | None:
        """Workers that the master knows, None if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web}/json/", timeout=2) as answer:
                return sum(w["state"] == "ALIVE" for w in json.load(answer)["workers"])
        except (urllib.error.URLError, OSError, ValueError):
            return None


def ended(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def missing(reason: str) -> None:
    if os.environ.get("PENSTOCK_REQUIRE"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    with ExitStack() as stack:
        started = Cluster(tmp_path / "cluster")
        started.start(stack)
        yield started


def run(home: Path, cluster: Cluster, stack: ExitStack) -> "subprocess.Popen[str]":
    """`penstock run --catch-up` in a process group of its own, every epoch across tasks."""
    settings = {
        ONE_TASK_ROWS: "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": LIGHT,
        "spark.driver.extraJavaOptions": LIGHT,
    }
    env = {**os.environ, "PENSTOCK_HOME": str(home), "PYTHONPATH": str(TESTS)}
    command = [
        sys.executable,
        "-c",
        "from penstock.cli.main import main; main()",
        "run",
        str(FLOWS / "shop.py"),
        str(FLOWS / "report.py"),
    ]
    command += ["--drain", "--master", cluster.url, "--max-rows", "100"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    stack.callback(ended, process)
    return process


def decided(home: Path) -> int:
    return len(list((home / "flows" / "shop" / "epochs").glob("0*")))


@pytest.mark.timeout(400)
def test_a_worker_that_is_killed_in_the_middle_costs_no_row(tmp_path: Path, cluster: Cluster) -> None:
    """The run goes on with the other worker, or stops with one paragraph and the next run goes on (G8, G9)."""
    given, home = make_input(600), tmp_path / "home"
    fill(home, given)
    with ExitStack() as stack:
        first = run(home, cluster, stack)
        assert until(lambda: decided(home) >= 2 or first.poll() is not None, PATIENCE)
        assert first.poll() is None, first.communicate()[1]
        ended(cluster.workers[0])
        _, said = first.communicate(timeout=PATIENCE * 2)
        if first.returncode:
            assert "nothing of this epoch was decided" in said or "the epoch is thrown away" in said, said
            _, said = run(home, cluster, stack).communicate(timeout=PATIENCE * 2)
    assert last_decision(home, "shop").epoch > 3
    check(home, given)
