"""Real kills: a process that writes to a store ends by SIGKILL at random moments; the next one delivers the rest. (G37)"""

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

from penstock.core.change import Op
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import SPEC, delivery
from store_kinds import KINDS
from store_suite import staged

pytestmark = pytest.mark.faults

CHANGING = replace(SPEC, updating=True)
EPOCHS, KEYS, CHANGES = 12, 400, 200
LONGEST = 0.5  # seconds from the moment a driver begins to its end
SEED = int(os.environ.get("PENSTOCK_SEED", "1"))


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


def deliver_rest(kind: str, place: Path, generation: int, seed: int, begun: int = -1) -> None:
    """What a driver does after a start; it says so through a pipe when it begins."""
    sink = KINDS[kind].make(place, CHANGING, staged_history(seed))
    if begun >= 0:
        os.write(begun, b".")
    for epoch in range(sink.open("life", generation) + 1, EPOCHS):
        sink.deliver(delivery(epoch, generation))
    sink.close()


def _killed(kind: str, place: Path, generation: int, seed: int, seconds: float) -> int:
    """How a driver ended that was given so much time: the signal that killed it, or 0. Forked before any thread was started."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        deliver_rest(kind, place, generation, seed, writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as begun:
        begun.read(1)
        select.select([begun], [], [], seconds)  # its end is seen when the process ends
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _main(kind: str, place: Path, seed: int, kills: int) -> dict[str, int]:
    """Kills drivers one after another, over as many tables as it takes; how many there were of each."""
    chance, done, tables = random.Random(seed), 0, 0
    while done < kills:
        generation, directory = 1, place / str(tables)
        directory.mkdir()
        while done < kills and _killed(kind, directory, generation, seed + tables, chance.uniform(0, LONGEST)):
            generation, done = generation + 1, done + 1
        tables += 1
    return {"kills": done, "tables": tables}


def _kill(kind: str, place: Path, kills: int) -> None:
    """Runs this file as a program of its own, which forks; then a last driver for each table comes to the end."""
    print(f"PENSTOCK_SEED={SEED}")
    words = [sys.executable, __file__, kind, str(place), str(SEED), str(kills)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(words, capture_output=True, text=True, timeout=280, env={**os.environ, "PYTHONPATH": path})
    assert ended.returncode == 0, ended.stderr
    done = json.loads(ended.stdout)
    assert done["kills"] == kills
    for table in range(done["tables"]):
        deliver_rest(kind, place / str(table), 1000, SEED + table)
        found = [(row["id"], row["text"]) for row in KINDS[kind].read(place / str(table)).to_pylist()]
        assert sorted(found) == sorted(oracle(SEED + table).items()), f"table {table}"


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_moments_the_rows_are_those_of_the_oracle(kind: str, tmp_path: Path) -> None:
    _kill(kind, tmp_path, kills=3)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_killed_thirty_times_the_rows_are_those_of_the_oracle(kind: str, tmp_path: Path) -> None:
    _kill(kind, tmp_path, kills=30)


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
