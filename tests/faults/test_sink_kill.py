"""Real kills: a process that delivers to a sink ends by SIGKILL at each of its points; a later one delivers the rest."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log.file import FileLog
from penstock.sinks.topic import POINTS as TOPIC_POINTS
from penstock.sinks.topic import TopicSink
from penstock.sinks.view import POINTS as VIEW_POINTS
from penstock.sinks.view import ViewSink
from penstock.storage.local import LocalStorage
from penstock.testing.sink_contract import EPOCHS, EVERYTHING, SPEC, Row, delivery, staged_epochs

pytestmark = pytest.mark.faults


def make(kind: str, place: Path, fail):  # type: ignore[no-untyped-def]
    if kind == "view":
        return ViewSink(SPEC, place / "results.db", staged_epochs(EPOCHS), fail)
    return TopicSink(SPEC, FileLog(LocalStorage(place / "log")), "results", 2, ("id",), staged_epochs(EPOCHS), fail)


def rows(kind: str, place: Path) -> list[Row]:
    if kind == "view":
        with contextlib.closing(sqlite3.connect(place / "results.db")) as connection:
            return sorted(connection.execute("SELECT id, text FROM current UNION ALL SELECT id, text FROM history"))
    topic = FileLog(LocalStorage(place / "log")).topic("results")
    return sorted((row["id"], row["text"]) for p in range(2) for chunk in topic.read(p) for row in chunk.rows.to_pylist())


def deliver_rest(kind: str, place: Path, generation: int, point: str = "", nth: int = 0) -> None:
    """What a driver does after a start; it kills itself when it passes the point for the n-th time."""
    passed = 0

    def fail(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    sink = make(kind, place, fail)
    for epoch in range(sink.open("life", generation) + 1, len(EPOCHS)):
        sink.deliver(delivery(epoch, generation))
    sink.close()


def _ended(kind: str, place: Path, generation: int, point: str, nth: int) -> int:
    """How a child that delivers the rest ended: the signal that killed it, or 0. Forked before any thread was started."""
    child = os.fork()
    if not child:
        deliver_rest(kind, place, generation, point, nth)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _kill_in_every_epoch(kind: str, place: Path, point: str) -> int:
    """How many drivers were killed, each in the first epoch it delivered, until one came to the end."""
    generation = 1
    while _ended(kind, place, generation, point, 1):
        generation += 1
    return generation - 1


def _children(*arguments: object) -> int:
    """Runs this file as a program of its own, which forks."""
    ended = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize(("kind", "point"), [("view", VIEW_POINTS), ("topic", TOPIC_POINTS)])
def test_after_a_kill_at_any_point_every_row_is_there_once(kind: str, point: tuple[str, ...], nth: int, tmp_path: Path) -> None:
    assert _children("each", kind, tmp_path, nth) == len(point), "a point was not passed so often"
    for name in point:
        deliver_rest(kind, tmp_path / name, 2)
        assert rows(kind, tmp_path / name) == EVERYTHING, name


@pytest.mark.parametrize("kind", ["view", "topic"])
def test_killed_once_in_every_epoch_every_row_is_there_once(kind: str, tmp_path: Path) -> None:
    assert _children("every", kind, tmp_path, 1) == len(EPOCHS)
    assert rows(kind, tmp_path) == EVERYTHING


def _main(how: str, kind: str, place: Path, nth: int) -> int:
    points = VIEW_POINTS if kind == "view" else TOPIC_POINTS
    if how == "every":
        return _kill_in_every_epoch(kind, place, points[-1])
    for point in points:
        (place / point).mkdir()
    return sum(_ended(kind, place / point, 1, point, nth) == -signal.SIGKILL for point in points)


if __name__ == "__main__":
    print(_main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
