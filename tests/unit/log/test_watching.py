"""Readers are woken by appends, of any process, and use no time while nothing comes."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Producer
from penstock.log.file.log import FileLog
from penstock.log.memory import MemoryLog
from penstock.log.port import TopicSpec
from penstock.log.watching import POLL, Polling, Watch, watch
from penstock.storage import watching
from penstock.storage.local import LocalStorage

LONG = 30.0  # seconds: a wait that is not woken fails by the time it takes
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of changed files")


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    return FileLog(LocalStorage(tmp_path / "log"))


@pytest.fixture
def orders(log: FileLog) -> Iterator[Watch]:
    log.create(TopicSpec("orders", 2))
    made = watch(log, ["orders"])
    yield made
    made.close()


def waited(waiting: Watch, seconds: float = LONG) -> float:
    started = time.monotonic()
    waiting.wait(seconds, {})
    return time.monotonic() - started


def later(function: object) -> threading.Timer:
    timer = threading.Timer(0.1, function)  # type: ignore[arg-type]
    timer.start()
    return timer


def send(log: FileLog, topic: str = "orders", partition: int = 0) -> None:
    with Producer(log.topic(topic)) as producer:
        producer.send(b"{}", partition=partition)


@linux
@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.parametrize("before", [0, 1], ids=["first append", "later append"])
def test_an_append_wakes_a_reader(log: FileLog, orders: Watch, partition: int, before: int) -> None:
    assert orders.prompt
    for _ in range(before):
        send(log, partition=partition)
        waited(orders)
    timer = later(lambda: send(log, partition=partition))
    while not log.topic("orders").ends()[partition].next > before:
        assert waited(orders) < LONG
    timer.join()


@linux
def test_an_append_of_another_process_wakes_a_reader(log: FileLog, orders: Watch, tmp_path: Path) -> None:
    send(log)
    waited(orders)
    program = f"""
from penstock import Producer
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage
with Producer(FileLog(LocalStorage({str(tmp_path / "log")!r})).topic("orders")) as producer:
    producer.send(b"{{}}", partition=0)
"""
    child = subprocess.Popen([sys.executable, "-c", program])
    while log.topic("orders").ends()[0].next < 2:
        assert waited(orders) < LONG
    assert child.wait() == 0


@linux
def test_what_was_appended_while_nobody_waited_is_not_missed(log: FileLog, orders: Watch) -> None:
    send(log)
    assert waited(orders) < LONG


@linux
def test_a_topic_that_is_made_later_is_waited_for(log: FileLog) -> None:
    waiting = watch(log, ["later"])
    timer = later(lambda: (log.create(TopicSpec("later")), send(log, "later")))
    deadline = time.monotonic() + LONG
    while "later" not in log.topics() or not log.topic("later").ends()[0].next:
        waiting.wait(0.5, {})
        assert time.monotonic() < deadline
    timer.join()
    timer = later(lambda: send(log, "later"))
    while log.topic("later").ends()[0].next < 2:
        assert waited(waiting) < LONG
    waiting.close()


@linux
def test_a_topic_in_memory_and_a_new_segment_wake_a_reader(tmp_path: Path) -> None:
    log = FileLog(LocalStorage(tmp_path / "log"), segment_size=200)
    log.create(TopicSpec("quick", durability="memory"))
    waiting = watch(log, ["quick"])
    for n in range(1, 8):
        timer = later(lambda: send(log, "quick"))
        while log.topic("quick").ends()[0].next < n:
            assert waited(waiting) < LONG
        timer.join()
    waiting.close()
    log.delete("quick")


@linux
def test_while_nothing_comes_no_time_is_used(log: FileLog, orders: Watch) -> None:
    send(log)
    waited(orders)
    before = time.process_time()
    assert waited(orders, 1.0) >= 1.0
    assert time.process_time() - before < 0.1


def test_where_nobody_tells_one_has_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    polling = watch(MemoryLog(), ["orders"])
    assert isinstance(polling, Polling)
    assert POLL <= waited(polling) < LONG
    monkeypatch.setattr("penstock.storage.watching.file_system", lambda path: "nfs4")
    assert watching.why_not(tmp_path) == "it lies on a network file system (nfs4)"
    assert isinstance(watch(FileLog(LocalStorage(tmp_path)), ["orders"]), Polling)


@linux
def test_where_the_system_has_no_more_watches_one_has_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: object, ending: str) -> None:
        raise OSError(24, "too many")

    monkeypatch.setattr(watching.DirectoryWatch, "__init__", none_left)
    monkeypatch.setattr(watching.DirectoryWatch, "_fd", -1, raising=False)
    assert isinstance(watch(FileLog(LocalStorage(tmp_path)), ["orders"]), Polling)


@linux
def test_a_reader_whose_system_runs_out_of_watches_goes_on_by_looking(
    log: FileLog, orders: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(self: object, directories: object) -> None:
        raise OSError(28, "no watches left")

    monkeypatch.setattr(watching.DirectoryWatch, "watch", none_left)
    assert waited(orders, 0.01) < LONG
    send(log)
    assert waited(orders) < LONG


@linux
def test_the_file_system_of_a_path_is_known() -> None:
    assert watching.file_system("/proc/self") == "proc"
    assert watching.file_system("/") != ""
