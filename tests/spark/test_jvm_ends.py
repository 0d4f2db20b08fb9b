"""A JVM that ends under a live run is noticed, also by an idle one, and another one is started within the run (G30)."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Producer, Schema, View
from penstock.engine.run import revival
from penstock.errors import EngineError, NotFound
from penstock.log.file.log import FileLog
from penstock.log.port import TopicSpec
from penstock.storage.local import LocalStorage
from waiting import until

FLOW = """
from penstock import Flow

flow = Flow("numbers")
flow.stream("numbers", "n long").select("n", twice="n * 2").view("doubled", key="n")
"""


class Live:
    """`penstock run` in a process of its own; what it says is read as it comes."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process, self.said = process, list[str]()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        self.said.extend(self.process.stderr)

    def kill_jvm(self) -> None:
        """The JVM among its children."""
        [jvm] = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if self._is_jvm(pid)]
        os.kill(jvm, signal.SIGKILL)

    def _is_jvm(self, pid: int) -> bool:
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended meanwhile
            return False
        state, parent = rest.split()[:2]
        return name == "java" and state != "Z" and int(parent) == self.process.pid

    def says(self, words: str) -> bool:
        return until(lambda: any(words in line for line in self.said) or self.process.poll() is not None) and any(
            words in line for line in self.said
        )


@contextmanager
def live(home: Path) -> Iterator[Live]:
    flow = home / "doubling.py"
    flow.write_text(FLOW)
    penstock = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
    command = [*penstock, "--home", str(home), "run", str(flow), "--master", "local[2]"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=home) as process:
        found = Live(process)
        try:
            yield found
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            found.reader.join()


def shown(home: Path) -> list[int]:
    try:
        with View(home / "views", "doubled") as view:
            return sorted(view.rows()["twice"].to_pylist())
    except NotFound:
        return []


def send(home: Path, *numbers: int) -> None:
    with Producer(FileLog(LocalStorage(str(home / "log"))).topic("numbers")) as producer:
        for n in numbers:
            producer.send({"n": n})


@pytest.mark.long
def test_an_idle_run_notices_that_its_jvm_has_ended_and_goes_on_with_another(tmp_path: Path) -> None:
    FileLog(LocalStorage(str(tmp_path / "log"))).create(TopicSpec("numbers", 1, Schema.of("n long")))
    with live(tmp_path) as run:
        send(tmp_path, 1)
        assert until(lambda: shown(tmp_path) == [2] or run.process.poll() is not None), run.said
        assert run.process.poll() is None, run.said
        run.kill_jvm()
        assert run.says("Spark's JVM has ended with code -9; starting another"), run.said
        send(tmp_path, 2)
        assert until(lambda: shown(tmp_path) == [2, 4] or run.process.poll() is not None), run.said
        assert run.process.poll() is None, run.said
    assert run.process.returncode == 0, run.said


@pytest.mark.long
def test_a_busy_run_goes_on_with_another_jvm_and_does_its_epoch_again(tmp_path: Path) -> None:
    FileLog(LocalStorage(str(tmp_path / "log"))).create(TopicSpec("numbers", 1, Schema.of("n long")))
    sent = 0
    with live(tmp_path) as run:
        for _ in range(3):
            stop = threading.Event()

            def write(over: threading.Event = stop) -> None:
                nonlocal sent
                while not over.wait(0.01):
                    send(tmp_path, sent)
                    sent += 1

            writer = threading.Thread(target=write)
            writer.start()
            before = sent
            assert until(lambda n=before: len(shown(tmp_path)) > n or run.process.poll() is not None), run.said  # type: ignore[misc]
            run.kill_jvm()
            words = len(run.said)
            assert until(lambda n=words: any("starting another" in line for line in run.said[n:])), run.said  # type: ignore[misc]
            stop.set()
            writer.join()
            assert until(lambda: len(shown(tmp_path)) == sent or run.process.poll() is not None), run.said
        assert shown(tmp_path) == [2 * n for n in range(sent)]
        run.kill_jvm()
        assert run.says("Spark's JVM has ended 4 times within 10 minutes"), run.said
        assert until(lambda: run.process.poll() is not None), run.said
    assert run.process.returncode == 1


def test_a_jvm_that_ends_too_often_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    said, forgotten = list[str](), list[int]()
    monkeypatch.setattr(revival.jvm, "ended", lambda: -9)
    monkeypatch.setattr(revival, "forget", lambda: forgotten.append(1))
    watch = revival.Watch(said.append)
    for _ in range(revival.MOST):
        assert watch.ended()
    with pytest.raises(EngineError, match="has ended 4 times within 10 minutes"):
        watch.ended()
    assert len(forgotten) == len(said) == revival.MOST
