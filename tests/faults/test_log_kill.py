"""Writers are killed at any moment: what they were told is stored is stored, once, in order."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.seeds import SEED
from penstock.log.file.log import FileLog
from penstock.log.port import TopicSpec
from penstock.storage.local import LocalStorage

pytestmark = pytest.mark.faults
SCRIPT = Path(__file__).with_name("log_writer.py")


class Writers:
    """Processes that write to one partition, and the ledger of what they were answered."""

    def __init__(self, root: Path) -> None:
        self.log = FileLog(LocalStorage(root))
        self.log.create(TopicSpec("t"))
        command = [sys.executable, str(SCRIPT), str(root)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.alive: dict[str, int] = {}
        self.acked: dict[str, dict[int, int]] = {}
        self.duplicates = 0

    def start(self, producer: str) -> None:
        """Starts where the last one of that name was answered: what was in flight is sent again."""
        assert self.process.stdin
        self.process.stdin.write(f"{producer} {len(self.acked.setdefault(producer, {}))}\n")
        self.process.stdin.flush()
        self.alive[producer] = 0
        while not self.alive[producer]:
            self.hear(producer)

    def hear(self, starting: str = "") -> str:
        """Takes one line; the producer that was answered."""
        assert self.process.stdout
        words = self.process.stdout.readline().split()
        if words[0] == "pid":
            self.alive[starting] = int(words[1])
            return ""
        producer, sequence, base, duplicate = words[0], *map(int, words[1:])
        known = self.acked[producer].setdefault(sequence, base)
        assert known == base, "one answer a sequence"
        self.duplicates += duplicate
        return producer

    def kill(self, producer: str) -> None:
        os.kill(self.alive.pop(producer), signal.SIGKILL)

    def close(self) -> None:
        for producer in list(self.alive):
            self.kill(producer)
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        rest = self.process.stdout.read()
        for line in rest.splitlines():
            producer, sequence, base, _ = line.split()
            self.acked[producer].setdefault(int(sequence), int(base))
        self.process.stdout.close()
        self.process.wait()

    def check(self) -> int:
        """The ledger against the log: acknowledged rows at their offsets, every producer's rows dense and in order."""
        there: dict[str, dict[int, int]] = {producer: {} for producer in self.acked}
        next_offset = 0
        for frame, rows in self.log.topic("t").read(0):
            assert frame.base == next_offset
            next_offset = frame.end
            [text] = set(rows.column("value").to_pylist())
            producer, sequence = text.decode().split()
            assert frame.count == 1 + int(sequence) % 3
            assert frame.sender[:3] == (producer, 0, int(sequence))
            assert int(sequence) == len(there[producer]), "dense and in order"
            there[producer][int(sequence)] = frame.base
        for producer, acked in self.acked.items():
            assert acked.items() <= there[producer].items(), "acknowledged and not there"
            assert len(there[producer]) <= len(acked) + 1, "more than one in flight"
        return next_offset


@contextlib.contextmanager
def writers(root: Path) -> Iterator[Writers]:
    made = Writers(root)
    try:
        yield made
    finally:
        made.close()


def kill_often(root: Path, kills: int, producers: list[str], rng: random.Random) -> None:
    with writers(root) as made:
        for producer in producers:
            made.start(producer)
        for _ in range(kills):
            for _ in range(rng.randint(1, 12)):
                made.hear()
            victim = rng.choice(producers)
            made.kill(victim)
            made.start(victim)
    assert made.check() > kills
    made.log.topic("t").append(0, next(made.log.topic("t").read(0)).rows)


def test_a_writer_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    kill_often(tmp_path / "log", 10, ["a"], random.Random(SEED))


def test_several_writers_of_one_partition_are_killed_and_lose_and_double_nothing(tmp_path: Path) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    kill_often(tmp_path / "log", 10, ["a", "b", "c"], random.Random(SEED + 1))


@pytest.mark.long
@pytest.mark.parametrize("producers", [["a"], ["a", "b"], ["a", "b", "c", "d"]], ids=len)
def test_hundreds_of_kills_lose_and_double_nothing(tmp_path: Path, producers: list[str]) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    kill_often(tmp_path / "log", 150, producers, random.Random(SEED))


def test_several_processes_write_one_partition_densely_while_another_reads(tmp_path: Path) -> None:
    with writers(tmp_path / "log") as made:
        reader = made.log.topic("t")
        for producer in ("a", "b", "c"):
            made.start(producer)
        seen = 0
        while min(map(len, made.acked.values())) < 40:
            made.hear()
            end = reader.ends()[0].next
            assert end >= seen
            if end > seen:
                assert sum(chunk.rows.num_rows for chunk in reader.read(0, seen, end)) >= end - seen
            seen = end
    assert made.check() >= seen
