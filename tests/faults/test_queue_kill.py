"""G22: every message that a queue took is acknowledged once or stands in the dead letters, whoever is killed."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from faults.seeds import SEED
from penstock.log.file import FileLog
from penstock.queue.log_queue import LogQueue
from penstock.queue.on_log import LogQueues
from penstock.queue.port import Consumer, Message, QueueSpec, Settlement
from penstock.storage.local import LocalStorage

pytestmark = pytest.mark.faults
SCRIPT = Path(__file__).with_name("queue_workers.py")
LEASE = 0.4


@dataclass
class Crew:
    """Consumers that are started and killed, and all that they said."""

    process: "subprocess.Popen[str]"
    alive: list[int] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)
    killed: int = 0

    def listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            words = line.split()
            self.lines.append(words)
            if words[0] == "pid":
                self.alive.append(int(words[1]))

    def start(self) -> None:
        assert self.process.stdin
        print("another", file=self.process.stdin, flush=True)

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.alive.remove(pid)
        self.killed += 1

    def said(self, word: str) -> list[list[str]]:
        return [words[1:] for words in self.lines if words[0] == word]


@contextmanager
def crew(home: Path) -> Iterator[Crew]:
    """Ends every consumer, whatever happens."""
    command = [sys.executable, str(SCRIPT), str(home), "q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        found = Crew(process)
        listener = threading.Thread(target=found.listen)
        listener.start()
        try:
            yield found
        finally:
            for pid in [int(words[0]) for words in found.said("pid")]:
                if pid in found.alive:
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()
            listener.join(30)


def sent(queue: LogQueue, first: int, count: int) -> list[str]:
    ids = [f"m{n}" for n in range(first, first + count)]
    queue.send([Message(id.encode(), id) for id in ids])
    return ids


def storm(home: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    queues = LogQueues(FileLog(LocalStorage(home, sync=False)))
    queue = queues.create(QueueSpec("q", lease=timedelta(seconds=LEASE), tries=4))
    ids = sent(queue, 0, 400)
    with crew(home) as found:
        for _ in range(4):
            found.start()
        deadline = time.monotonic() + 10 + kills
        while found.killed < kills and time.monotonic() < deadline:
            if len(found.said("got")) > 1.5 * found.killed and len(found.alive) > 1:
                found.kill(rng.choice(found.alive))
                found.start()
            if queue.state().ready < 100:
                ids += sent(queue, len(ids), 200)
            time.sleep(0.01)
    assert found.killed >= kills
    check(found, set(ids), queues)


def check(found: Crew, ids: set[str], queues: LogQueues) -> None:
    acked = [id for _, _, id in found.said("ack")]
    assert len(acked) == len(set(acked)), "acknowledged twice"
    tried = {id for _, _, id, _ in found.said("try")}
    left, dead = drained(queues.queue("q")), drained(queues.queue("q.dead"))
    there = [*left, *dead]
    assert len(there) == len(set(there)), "there twice"
    assert not set(acked) & set(there), "acknowledged, and there"
    unsaid = ids - set(acked) - set(there)  # acknowledged by one that was killed before it could say so
    assert unsaid <= tried, f"gone: {sorted(unsaid - tried)}"
    assert len(unsaid) <= found.killed
    assert acked
    no_two_hold_one(found)


def no_two_hold_one(found: Crew) -> None:
    """Whoever got a message after another got it after that one's lease, or after it began to acknowledge."""
    holds = defaultdict(list)
    for _, receipt, id, began, ended in found.said("got"):
        holds[id].append((int(receipt.split("-")[1]), int(began), int(ended)))
    given_up = {receipt: int(at) for _, receipt, _, at in found.said("try")}
    places = {id: receipt.split("-")[0] for _, receipt, id, _, _ in found.said("got")}
    again = 0
    for id, times in holds.items():
        for (token, began, _), (_, _, ended) in pairwise(sorted(times)):
            free = min(began + LEASE * 1_000_000, given_up.get(f"{places[id]}-{token}", 1 << 62))
            assert ended >= free, f"{id} was lent while it was held"
            again += 1
    assert again, "nothing was ever lent again: the kills showed nothing"


def drained(queue: LogQueue) -> list[str]:
    """All that is in it; what those that were killed held comes back when its lease has run out."""
    found: list[str] = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        got = queue.receive(Consumer("drain", prefetch=10_000, lease=timedelta(minutes=5)), 500)
        found += [d.message.id for d in got]
        assert not queue.settle([Settlement(d.receipt, "ack") for d in got])
        if not got and not queue.state().lent:
            return found
        if not got:
            time.sleep(0.02)
    raise AssertionError("the queue does not become empty")


def test_every_message_is_acknowledged_once_through_three_hundred_kills(tmp_path: Path) -> None:
    storm(tmp_path, 300, SEED)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_every_message_is_acknowledged_once_through_thousands_of_kills(tmp_path: Path, seed: int) -> None:
    storm(tmp_path, 1_000, SEED + 100 + seed)
