"""Real kills: the group of a process that writes to a store ends by SIGKILL, at the points of its sink and at random moments; the
next one delivers the rest. (G37)"""

import json
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from faults.killed_stores import KILLED
from faults.seeds import SEED
from penstock.core.change import Op
from penstock.sinks.port import nothing
from penstock.sinks.stores.sink import POINTS
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import SPEC, delivery
from penstock.testing.servers.mariadb import MariaDbServer
from store_suite import staged

pytestmark = pytest.mark.faults

CHANGING = replace(SPEC, updating=True)
EPOCHS, KEYS, CHANGES = 12, 400, 200
LONGEST = 0.5  # seconds from the moment a driver begins to its end
Moment = str | float  # a point that is passed, or so many seconds


def history(seed: int) -> Iterator[dict[int, str | None]]:
    """What each epoch does to keys: a text, or None where the key goes."""
    chance = random.Random(seed)
    for epoch in range(EPOCHS):
        keys = chance.sample(range(KEYS), CHANGES)
        yield {key: None if chance.random() < 0.2 else f"{epoch}/{key}" for key in keys}


def oracle(seed: int) -> dict[int, str]:
    held: dict[int, str | None] = {}
    for changes in history(seed):
        held |= changes
    return {key: text for key, text in held.items() if text is not None}


def staged_history(seed: int) -> MemoryStorage:
    storage = MemoryStorage()
    for epoch, changes in enumerate(history(seed)):
        rows = pa.table({"id": list(changes), "text": list(changes.values())}, schema=SPEC.schema.arrow)
        staged(storage, epoch, rows, [Op.DELETE if text is None else Op.UPDATE_AFTER for text in changes.values()])
    return storage


class DiesAt:
    """Kills the whole group when the point is passed for the second time."""

    def __init__(self, point: str) -> None:
        self.point, self.passed = point, 0

    def __call__(self, point: str) -> None:
        self.passed += point == self.point
        if self.passed == 2:
            os.killpg(0, signal.SIGKILL)


def deliver_rest(kind: str, place: Path, url: str, generation: int, seed: int, moment: Moment = 0, begun: int = -1) -> int:
    """What a driver does after a start: the epoch it found. It says so through a pipe when it begins."""
    fail = DiesAt(moment) if isinstance(moment, str) else nothing
    sink = KILLED[kind].make(place, url, CHANGING, staged_history(seed), fail)
    if begun >= 0:
        os.write(begun, b".")
    found = sink.open("life", generation)
    for epoch in range(found + 1, EPOCHS):
        sink.deliver(delivery(epoch, generation))
    sink.close()
    return found


def _killed(kind: str, place: Path, url: str, generation: int, seed: int, moment: Moment) -> int:
    """How a driver ended: the signal that killed it, or 0 if it came to the end before. Forked before any thread was started."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.close(reading)
        deliver_rest(kind, place, url, generation, seed, moment, writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as begun:
        begun.read(1)
        select.select([begun], [], [], None if isinstance(moment, str) else moment)  # its end is seen when the process ends
    os.kill(-child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _main(kind: str, place: Path, url: str, seed: int, moments: list[Moment]) -> int:
    """Kills a driver at each of the moments, one after another, over as many tables as it takes; how many there were. One that
    was faster than its moment gives the next half the time."""
    tables, generation = 0, 0
    for moment in moments:
        while True:
            generation, directory = generation + 1, place / str(tables)
            directory.mkdir(exist_ok=True)
            if _killed(kind, directory, url, generation, seed + tables, moment):
                break
            tables, generation = tables + 1, 0
            moment = moment if isinstance(moment, str) else moment / 2
    return tables + 1


def _kill(kind: str, place: Path, url: str, moments: list[Moment]) -> None:
    """Runs this file as a program of its own, which forks; then a last driver for each table comes to the end."""
    print(f"PENSTOCK_SEED={SEED}")
    words = [sys.executable, __file__, kind, str(place), url, str(SEED), json.dumps(moments)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(words, capture_output=True, text=True, timeout=560, env={**os.environ, "PYTHONPATH": path})
    assert ended.returncode == 0, ended.stderr
    for table in range(json.loads(ended.stdout)):
        deliver_rest(kind, place / str(table), url, 1000, SEED + table)
        found = sorted(KILLED[kind].read(place / str(table), url))
        assert found == sorted(oracle(SEED + table).items()), f"table {table}"
        assert deliver_rest(kind, place / str(table), url, 1001, SEED + table) == EPOCHS - 1, "its marker is that of another epoch"


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    """Of the server, where the store is one."""
    server = KILLED[kind].server
    found = request.getfixturevalue(server) if server else None
    if isinstance(found, MariaDbServer):
        return f"{found.url('', 'root')}?ssl-mode=DISABLED"
    return str(found.url) if found else ""


def at_random(count: int) -> list[Moment]:
    chance = random.Random(SEED)
    return [chance.uniform(0, LONGEST) for _ in range(count)]


@pytest.mark.parametrize("kind", KILLED)
def test_writers_killed_at_a_point_and_at_random_moments_leave_the_rows_of_the_oracle(kind: str, url: str, tmp_path: Path) -> None:
    _kill(kind, tmp_path, url, [POINTS[SEED % len(POINTS)], *at_random(2)])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KILLED)
def test_writers_killed_at_every_point_and_at_thirty_moments_leave_the_rows_of_the_oracle(
    kind: str, url: str, tmp_path: Path
) -> None:
    _kill(kind, tmp_path, url, [*POINTS, *at_random(30)])


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), json.loads(sys.argv[5]))))
