"""G23: every message that a RabbitMQ confirmed is acknowledged or stands in the dead letters, whichever consumer is killed."""

import random
import secrets
from collections import Counter

import pytest

from amount import cases
from faults.queue_crew import crew
from faults.seeds import SEED
from penstock.queue.dead_letters import dead_letter
from penstock.queue.port import Consumer, Message, QueuePort, QueueSpec, Settlement
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.servers.rabbitmq_server import RabbitServer
from waiting import until

pytestmark = pytest.mark.faults
TRIES = 4


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
        with crew(url, prefetch=8) as found:
            for _ in range(3):
                found.start()
            while found.killed < kills:
                if queue.state().ready < 100:
                    queue.send([Message(b"", f"m{number}") for number in range(sent, sent + 200)])
                    sent += 200
                got = len(found.said("got"))
                assert until(lambda got=got: len(found.said("got")) > got + 3, 60)  # type: ignore[misc]
                found.kill(rng.choice(list(found.alive)))
                found.start()
                assert until(lambda: len(found.alive) >= 3, 60)
        acked = Counter(id for _, _, id in found.said("ack"))
        tried = {id for _, _, id, _ in found.said("try")}
        left, dead = drained(queue, TRIES), drained(queues.queue("q.dead"), TRIES)
        for name in queues.names():
            queues.delete(name)
    there = acked + left + dead
    assert max(there.values()) == 1, f"twice: {[id for id, count in there.items() if count > 1]}"
    missing = {f"m{number}" for number in range(sent)} - there.keys()  # acknowledged by one that was killed before it said so
    assert missing <= tried
    assert len(missing) <= found.killed
    assert any(int(attempt) > 1 for _, _, _, attempt, *_ in found.said("got")), "the kills showed nothing"


def test_no_message_is_lost_or_done_twice_although_consumers_are_killed(rabbitmq_server: RabbitServer) -> None:
    storm(rabbitmq_server, kills=30)


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_no_message_is_lost_or_done_twice_through_hundreds_of_kills(rabbitmq_server: RabbitServer) -> None:
    storm(rabbitmq_server, kills=cases(150))
