"""Producers whose requests come doubled and out of order, and producers that were replaced while they were stopped (G4)."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from faults.seeds import SEED
from penstock.errors import SequenceGap
from penstock.log.consumer import records
from penstock.log.file.log import FileLog
from penstock.log.memory import MemoryLog
from penstock.log.port import Log, Sender, Topic, TopicSpec
from penstock.storage.local import LocalStorage
from waiting import until

pytestmark = pytest.mark.faults
SCRIPT = Path(__file__).with_name("log_zombie.py")
REQUESTS, IN_FLIGHT = 1000, 12


def rows(n: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([str(n).encode()] * (1 + n % 3), pa.binary())})


def replay(topic: Topic, rng: random.Random) -> tuple[dict[int, set[int]], int]:
    """A network that doubles every request and delivers those in flight in any order; one that is refused comes again.
    The offsets that each was answered, and how many were refused."""
    waiting = [n for n in range(REQUESTS) for _ in range(2)]
    flying, answers, gaps = list[int](), dict[int, set[int]](), 0
    while waiting or flying:
        while waiting and len(flying) < IN_FLIGHT:
            flying.append(waiting.pop(0))
        n = flying.pop(rng.randrange(len(flying)))
        try:
            answers.setdefault(n, set()).add(topic.append(0, rows(n), sender=Sender("p", 0, n)).base)
        except SequenceGap:
            gaps += 1
            flying.append(n)
    return answers, gaps


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_thousand_requests_doubled_and_shuffled_are_stored_once_and_in_order(kind: str, tmp_path: Path) -> None:
    """FAULTS row 15: a duplicate gets the first offset again, a gap is an error."""
    print(f"PENSTOCK_SEED={SEED}")
    log: Log = MemoryLog() if kind == "memory" else FileLog(LocalStorage(tmp_path / "log"), segment_size=10_000)
    topic = log.create(TopicSpec("t", durability="os"))
    topic.append(0, rows(0), sender=Sender("p", 0, 0))
    answers, gaps = replay(topic, random.Random(SEED))
    assert gaps > 100, "the order was disturbed"
    assert all(len(offsets) == 1 for offsets in answers.values())
    there = [int(record.value or 0) for record in records(topic)]  # type: ignore[arg-type]
    assert there == [n for n in range(REQUESTS) for _ in range(1 + n % 3)]
    for n, [offset] in answers.items():
        assert there[offset] == n


class Zombie:
    """A producer in another process that has stopped itself."""

    def __init__(self, root: Path, epoch: int, count: int) -> None:
        command = [sys.executable, str(SCRIPT), str(root), str(epoch), str(count)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.lines = self.process.stdout
        while self.lines.readline() != "stopping\n":
            assert self.process.poll() is None
        assert until(lambda: os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None)

    def wake(self) -> list[str]:
        """Lets it go on; what it says until it ends."""
        self.process.send_signal(signal.SIGCONT)
        said = self.lines.read().split("\n")
        self.lines.close()
        self.process.wait()
        return said


def test_a_producer_that_was_replaced_while_it_was_stopped_writes_nothing_more(tmp_path: Path) -> None:
    """FAULTS row 14: of an old epoch there is no record behind the first of a newer one."""
    root = tmp_path / "log"
    topic = FileLog(LocalStorage(root)).create(TopicSpec("t", durability="os"))
    zombies = [Zombie(root, epoch, 3) for epoch in (0, 1, 2)]
    for zombie in zombies[:2]:
        assert zombie.wake() == ["fenced", ""]
    assert zombies[2].wake()[-2] == "done", "nobody replaced the last one"
    told = [json.loads(record.value or b"") for record in records(topic)]  # type: ignore[arg-type]
    assert [row["epoch"] for row in told] == [0] * 3 + [1] * 3 + [2] * 23
    assert [row["n"] for row in told] == [*range(3), *range(3), *range(23)]
