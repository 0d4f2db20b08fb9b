"""Real kills: a process that delivers to a sink ends by SIGKILL at each of its points; a later one delivers the rest."""

import contextlib
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.change import Op
from penstock.core.columns import OP
from penstock.log.file.log import FileLog
from penstock.sinks.topic import POINTS as TOPIC_POINTS
from penstock.sinks.topic import TopicSink
from penstock.sinks.view import POINTS as VIEW_POINTS
from penstock.sinks.view import ViewSink
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.sink import EPOCHS, EVERYTHING, SPEC, Row, delivery, staged_epochs
from penstock.testing.contracts.sink_changes import CHANGES, CHANGING, Held, staged_changes

pytestmark = pytest.mark.faults

POINTS = {"view": VIEW_POINTS, "topic": TOPIC_POINTS, "changelog": TOPIC_POINTS}
LENGTHS = {"view": len(EPOCHS), "topic": len(EPOCHS), "changelog": len(CHANGES)}
TIMES = (1, 3)


def make(kind: str, place: Path, fail):  # type: ignore[no-untyped-def]
    if kind == "view":
        return ViewSink(SPEC, place / "results.db", staged_epochs(EPOCHS), fail)
    if kind == "changelog":
        return TopicSink(CHANGING, FileLog(LocalStorage(place / "log")), "results", 2, ("id",), staged_changes(), fail)
    return TopicSink(SPEC, FileLog(LocalStorage(place / "log")), "results", 2, ("id",), staged_epochs(EPOCHS), fail)


def rows(kind: str, place: Path) -> list[Row]:
    if kind == "view":
        with contextlib.closing(sqlite3.connect(place / "results.db")) as connection:
            return sorted(connection.execute("SELECT id, text FROM current UNION ALL SELECT id, text FROM history"))
    topic = FileLog(LocalStorage(place / "log")).topic("results")
    return sorted((row["id"], row["text"]) for p in range(2) for chunk in topic.read(p) for row in chunk.rows.to_pylist())


def changes(place: Path) -> tuple[Held, int]:
    """What the changelog folds to, and how many changes it has."""
    held: Held = {}
    topic, count = FileLog(LocalStorage(place / "log")).topic("results"), 0
    for row in (row for p in range(2) for chunk in topic.read(p) for row in chunk.rows.to_pylist()):
        held.pop(row["id"], None)
        held |= {} if row.get(OP) == Op.DELETE else {row["id"]: row["text"]}
        count += 1
    return held, count


def check(kind: str, place: Path) -> None:
    """Everything that was delivered is there, once."""
    if kind == "changelog":
        keys = sum(len({i for _, i, _ in (*one, *other)}) for one, other, _ in CHANGES.values())
        assert changes(place) == (CHANGES[max(CHANGES)][2], keys)
    else:
        assert rows(kind, place) == EVERYTHING


def deliver_rest(kind: str, place: Path, generation: int, point: str = "", nth: int = 0) -> None:
    """What a driver does after a start; it kills itself when it passes the point for the n-th time."""
    passed = 0

    def fail(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    sink = make(kind, place, fail)
    for epoch in range(sink.open("life", generation) + 1, LENGTHS[kind]):
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


def _main(place: Path) -> dict[str, int]:
    """Every kill, in a directory of its own: how the driver ended, or how many were killed until one came to the end."""
    staged_epochs(EPOCHS), staged_changes()  # what Arrow imports when it is first used, once for all children
    ends = {}
    for kind, points in POINTS.items():
        for point, nth in itertools.product(points, TIMES):
            name = f"{kind} {point} {nth}"
            (place / name).mkdir()
            ends[name] = _ended(kind, place / name, 1, point, nth)
        (place / f"{kind} every epoch").mkdir()
        ends[f"{kind} every epoch"] = _kill_in_every_epoch(kind, place / f"{kind} every epoch", points[-1])
    return ends


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Runs this file as a program of its own, which forks."""
    place = tmp_path_factory.mktemp("killed")
    ended = subprocess.run([sys.executable, __file__, str(place)], capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    return place, json.loads(ended.stdout)


@pytest.mark.parametrize("nth", TIMES)
@pytest.mark.parametrize(("kind", "point"), [(kind, point) for kind, points in POINTS.items() for point in points])
def test_after_a_kill_every_row_is_there_once(kind: str, point: str, nth: int, killed: tuple[Path, dict[str, int]]) -> None:
    place, ends = killed
    name = f"{kind} {point} {nth}"
    assert ends[name] == -signal.SIGKILL, "the point was not passed so often"
    deliver_rest(kind, place / name, 2)
    check(kind, place / name)


@pytest.mark.parametrize("kind", POINTS)
def test_killed_once_in_every_epoch_every_row_is_there_once(kind: str, killed: tuple[Path, dict[str, int]]) -> None:
    place, ends = killed
    assert ends[f"{kind} every epoch"] == LENGTHS[kind]
    check(kind, place / f"{kind} every epoch")


if __name__ == "__main__":
    print(json.dumps(_main(Path(sys.argv[1]))))
