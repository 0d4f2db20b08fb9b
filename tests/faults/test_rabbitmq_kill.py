"""G23: every message that a RabbitMQ confirmed is acknowledged or stands in the dead letters, whichever consumer is killed."""

import os
import random
import secrets
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from faults.seeds import SEED
from penstock.queue.dead import dead_letter
from penstock.queue.port import Consumer, Message, QueuePort, QueueSpec, Settlement
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.rabbitmq_server import RabbitServer
from waiting import until

pytestmark = pytest.mark.faults
SCRIPT = Path(__file__).with_name("rabbit_workers.py")
TRIES = 4


class Crew:
    """Consumers that are started and killed, and all that they said."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process, self.alive, self.killed = process, list[int](), 0
        self.lines: list[list[str]] = []

    def listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.split())
            if self.lines[-1][0] == "pid":
                self.alive.append(int(self.lines[-1][1]))

    def start(self) -> None:
        assert self.process.stdin
        print("another", file=self.process.stdin, flush=True)

    def kill(self, pid: int) -> None:
        self.alive.remove(pid)
        os.kill(pid, signal.SIGKILL)
        self.killed += 1

    def said(self, word: str) -> list[list[str]]:
        return [words[1:] for words in list(self.lines) if words[0] == word]


@contextmanager
def crew(url: str) -> Iterator[Crew]:
    """Ends every consumer, whatever happens."""
    command = [sys.executable, str(SCRIPT), url, "q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        found = Crew(process)
        listener = threading.Thread(target=found.listen)
        listener.start()
        try:
            yield found
        finally:
            for pid in found.alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()
            listener.join(30)


def drained(queue: QueuePort, tries: int) -> Counter[str]:
    found: Counter[str] = Counter()
    while deliveries := queue.receive(Consumer("drain", prefetch=10_000), 500):
        for delivery in deliveries:
            found[delivery.message.id] += 1
            said = dead_letter(delivery.message)
            assert delivery.attempt <= tries
            assert said is None or said.count == tries
        assert not queue.settle([Settlement(delivery.receipt, "ack") for delivery in deliveries])
    return found


def storm(server: RabbitServer, kills: int) -> None:
    rng, url = random.Random(SEED), f"{server.url}?prefix=t{secrets.token_hex(4)}."
    with RabbitQueues(url) as queues:
        queue, sent = queues.create(QueueSpec("q", tries=TRIES)), 0
        with crew(url) as found:
            for _ in range(3):
                found.start()
            while found.killed < kills:
                if queue.state().ready < 100:
                    queue.send([Message(b"", f"m{number}") for number in range(sent, sent + 200)])
                    sent += 200
                got = len(found.said("got"))
                assert until(lambda got=got: len(found.said("got")) > got + 3, 60)  # type: ignore[misc]
                found.kill(rng.choice(found.alive))
                found.start()
                assert until(lambda: len(found.alive) >= 3, 60)
        acked = Counter(id for _, id in found.said("ack"))
        tried = {id for _, id in found.said("try")}
        left, dead = drained(queue, TRIES), drained(queues.queue("q.dead"), TRIES)
        for name in queues.names():
            queues.delete(name)
    there = acked + left + dead
    assert max(there.values()) == 1, f"twice: {[id for id, count in there.items() if count > 1]}"
    missing = {f"m{number}" for number in range(sent)} - there.keys()  # acknowledged by one that was killed before it said so
    assert missing <= tried
    assert len(missing) <= found.killed
    assert any(int(attempt) > 1 for _, _, attempt in found.said("got")), "the kills showed nothing"


def test_no_message_is_lost_or_done_twice_although_consumers_are_killed(rabbitmq_server: RabbitServer) -> None:
    storm(rabbitmq_server, kills=30)


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_no_message_is_lost_or_done_twice_through_hundreds_of_kills(rabbitmq_server: RabbitServer) -> None:
    storm(rabbitmq_server, kills=400)
