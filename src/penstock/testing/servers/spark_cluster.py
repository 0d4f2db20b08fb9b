"""A real Spark standalone cluster for tests: a master and workers on loopback, each a process of its own, like so many machines.

    with SparkCluster(tmp_path) as cluster:
        flow.run(master=cluster.url, conf=cluster.settings())

Connections are authenticated and encrypted with a secret that is made at the start, unless `protected` is False. The workers'
own Python is the one that is given (`python`), with nothing of this process's environment: what executors need must come with
the flow."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import venv
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.engine.spark.java import find_java
from penstock.engine.spark.launch import spark_home
from penstock.engine.spark.settings import LONGEST_SOCKET_DIRECTORY
from penstock.errors import NoJava
from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.processes import Started, free_ports
from penstock.testing.waiting import until

PATIENCE = 90.0
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Worker:
    """One machine of the cluster: a worker daemon, its executors and their Python processes are one process group."""

    process: "subprocess.Popen[bytes]"
    work: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def executors(self) -> list[psutil.Process]:
        """The JVMs that run tasks here."""
        return [p for p in _family(self.process.pid) if _EXECUTOR in " ".join(_command(p))]

    def pythons(self) -> list[psutil.Process]:
        """PySpark's daemon and its workers here."""
        return [p for p in _family(self.process.pid) if "pyspark.daemon" in " ".join(_command(p))]

    def kill(self) -> None:
        """The machine loses power: everything on it is gone at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """The machine stands still, its connections stay open."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)


class SparkCluster(Started):
    """A master and workers that write below `place`. NotToBeHad, with the reason, if there is no Java or no start."""

    def __init__(
        self, place: Path, workers: int = 2, cores: int = 1, memory: str = "1g", python: str | None = None, protected: bool = True
    ) -> None:
        self.place, self.size, self.cores, self.memory, self.protected = place, workers, cores, memory, protected
        self.python = python or sys.executable
        self.port, self._web = free_ports(2)
        self.secret_file = place / "secret"
        self.workers: list[Worker] = []
        self._master: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def settings(self) -> dict[str, str]:
        """What a driver has to say to run here, quickly and in little memory."""
        return {
            **({"spark.authenticate.secret.file": str(self.secret_file)} if self.protected else {}),
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": LIGHT,
            "spark.driver.extraJavaOptions": LIGHT,
            "spark.driver.memory": "512m",
            # Executors put their Python workers' sockets into their temporary directory, and a socket's path must be short.
            "spark.python.unix.domain.socket.enabled": str(len(str(self._temporary)) <= LONGEST_SOCKET_DIRECTORY).lower(),
        }

    def start(self) -> None:
        """Starts everything and waits until the master knows all workers."""
        try:
            find_java()
        except NoJava as error:
            raise NotToBeHad(str(error)) from error
        self._lay_out()
        self._master = self._daemon("master.Master", "--port", str(self.port), "--webui-port", str(self._web))
        if not until(lambda: self.alive() is not None, PATIENCE):
            self.stop()
            raise NotToBeHad("no Spark master could be started on loopback ports")
        self.mend()

    def mend(self) -> None:
        """Puts a new worker in the place of each that was killed, and waits until the master knows as many as there should be."""
        for worker in self.workers:
            if worker.alive:
                worker.thaw()
        self.workers = [worker for worker in self.workers if worker.alive]
        while len(self.workers) < self.size:
            self.workers.append(self._worker())
        if not until(lambda: self.alive() == self.size, PATIENCE):
            raise NotToBeHad("the workers of a Spark cluster could not be started")

    def stop(self) -> None:
        """Ends everything and removes what executors left behind, which may be large."""
        for worker in self.workers:
            worker.kill()
            shutil.rmtree(worker.work, ignore_errors=True)
        self.workers = []
        if self._master:
            self._master.kill()
            self._master.wait()
            self._master = None
        shutil.rmtree(self._temporary, ignore_errors=True)

    def alive(self) -> int | None:
        """How many workers the master knows; None if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=2) as answer:
                workers: list[dict[str, str]] = json.load(answer)["workers"]
                return sum(worker["state"] == "ALIVE" for worker in workers)
        except (urllib.error.URLError, OSError, ValueError):
            return None

    @property
    def _temporary(self) -> Path:
        return self.place.absolute() / "tmp"

    def jvms(self) -> list[psutil.Process]:
        """Master, workers and executors."""
        daemons = [worker.process.pid for worker in self.workers] + ([self._master.pid] if self._master else [])
        return [psutil.Process(pid) for pid in daemons] + [executor for worker in self.workers for executor in worker.executors()]

    def _lay_out(self) -> None:
        conf = self.place / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        self._temporary.mkdir(exist_ok=True)
        secret = secrets.token_hex(32)
        _write_private(self.secret_file, secret)
        settings = {"spark.authenticate": "true", "spark.authenticate.secret": secret, "spark.network.crypto.enabled": "true"}
        lines = [f"{name} {value}\n" for name, value in settings.items()] if self.protected else []
        _write_private(conf / "spark-defaults.conf", "".join(lines))

    def _worker(self) -> Worker:
        work = self.place / f"work-{secrets.token_hex(4)}"
        options = ["--webui-port", "0", "-c", str(self.cores), "-m", self.memory, "-d", str(work), self.url]
        return Worker(self._daemon("worker.Worker", *options), work)

    def _daemon(self, name: str, *options: str) -> "subprocess.Popen[bytes]":
        home = spark_home()
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.environ.get("HOME", "/"),
            "JAVA_HOME": str(find_java().path.parent.parent),
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self.place / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.place),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": LIGHT,
            # Of every JVM here, executors too, whatever options they are given: native libraries they unpack, and what they leave.
            "JAVA_TOOL_OPTIONS": f'"-Djava.io.tmpdir={self._temporary}" -XX:+PerfDisableSharedMem',
            "PYSPARK_PYTHON": self.python,
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *options]
        with (self.place / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True, cwd=self.place)


def bare_python(place: Path) -> str:
    """A new Python environment without a single library."""
    venv.create(place / "bare", with_pip=False)
    return str(place / "bare" / "bin" / "python")


def _write_private(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_text(text)


def _family(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
