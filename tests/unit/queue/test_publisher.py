"""Messages that several threads send at once: they go together, and each thread hears of its own."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.core.columns import VALUE
from penstock.core.time import FixedClock
from penstock.errors import BadRow, PenstockError, StorageError
from penstock.log.file.log import FileLog
from penstock.log.port import Topic, TopicSpec
from penstock.queue.on_log.publisher import Publisher
from penstock.queue.port import Message
from penstock.storage.local import LocalStorage
from waiting import until


class Gate:
    """A topic whose first append waits until all others stand behind it, and which may fail afterwards."""

    def __init__(self, topic: Topic) -> None:
        self._topic, self.spec = topic, topic.spec
        self.begun, self.go = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self.appends: list[int] = []

    def append(self, partition: int, rows: Any) -> Any:
        first = not self.appends
        self.appends.append(rows.num_rows)
        if first:
            self.begun.set()
            assert self.go.wait(20)
        elif self.error:
            raise self.error
        return self._topic.append(partition, rows)


MOST = 500  # bytes of a group
Sends = Callable[..., list["Future[None]"]]


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    return FileLog(LocalStorage(tmp_path, sync=False))


@pytest.fixture
def gate(log: FileLog) -> Gate:
    return Gate(log.create(TopicSpec("emails", max_record=1_000)))


@pytest.fixture
def send(gate: Gate) -> Iterator[Sends]:
    publisher = Publisher(gate, FixedClock(0), MOST)  # type: ignore[arg-type]

    def at_once(*bodies: bytes) -> list["Future[None]"]:
        """The first one is on its way when the others come, in this order."""
        sent = [pool.submit(publisher.send, [Message(b"first")])]
        assert gate.begun.wait(20)
        for number, body in enumerate(bodies, 1):
            sent.append(pool.submit(publisher.send, [Message(body)]))
            assert until(lambda number=number: publisher.sends.waiting == number, 20)  # type: ignore[misc]
        gate.go.set()
        return sent

    with ThreadPoolExecutor(20) as pool:
        yield at_once
        gate.go.set()


def bodies(log: FileLog) -> list[bytes]:
    return [value for chunk in log.topic("emails").read(0) for value in chunk.rows[VALUE].to_pylist()]


def test_what_comes_while_another_is_sent_goes_as_one_frame_in_its_order(gate: Gate, send: Sends, log: FileLog) -> None:
    sent = send(*(b"%d" % n for n in range(9)))
    assert [one.result() for one in sent] == [None] * 10
    assert gate.appends == [1, 9]
    assert bodies(log) == [b"first", *(b"%d" % n for n in range(9))]


def test_one_that_cannot_be_sent_holds_up_no_other(gate: Gate, send: Sends, log: FileLog) -> None:
    good, bad, last = send(b"good", bytes(2_000), b"last")[1:]
    assert (good.result(), last.result()) == (None, None)
    with pytest.raises(BadRow):
        bad.result()
    assert bodies(log) == [b"first", b"good", b"last"]


def test_a_disk_that_fails_is_told_to_all_of_them_and_nothing_is_tried_again(gate: Gate, send: Sends, log: FileLog) -> None:
    gate.error = StorageError("the disk is gone")
    sent = send(b"a", b"b")
    assert [type(one.exception()) for one in sent] == [type(None), StorageError, StorageError]
    assert gate.appends == [1, 2]
    assert bodies(log) == [b"first"]


def test_an_interrupt_is_raised_where_it_came_and_told_to_the_others(gate: Gate, send: Sends) -> None:
    gate.error = KeyboardInterrupt()
    errors = [one.exception() for one in send(b"a", b"b")[1:]]
    assert sorted(type(error).__name__ for error in errors) == ["KeyboardInterrupt", "StorageError"]
    [told] = [error for error in errors if isinstance(error, PenstockError)]
    assert "may or may not be there" in str(told)


def test_much_at_once_goes_in_several_parts(gate: Gate, send: Sends, log: FileLog) -> None:
    sent = send(*(bytes([n]) * 200 for n in range(5)), bytes(900))
    assert [one.result() for one in sent] == [None] * 7
    assert gate.appends == [1, 2, 2, 1, 1]
    assert [body[:1] for body in bodies(log)[1:]] == [b"\0", b"\1", b"\2", b"\3", b"\4", b"\0"]
