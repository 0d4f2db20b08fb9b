"""A try begins with the work: messages that were only lent together with one that kills its consumer do not die of it."""

from pathlib import Path

import pytest

from penstock.core.time import FixedClock
from penstock.log.file.log import FileLog
from penstock.log.groups.leases import ManualClock
from penstock.queue.client.consumer import QueueConsumer, consumer_of
from penstock.queue.client.worker import Worker
from penstock.queue.memory import MemoryQueues
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.port import Consumer, Message, QueuePort, QueueSpec, Settlement
from penstock.storage.local import LocalStorage

NEIGHBOURS = [b"%d" % n for n in range(9)]


class Broker:
    """Queues whose consumers can be killed: nothing of theirs is settled, and their leases run out."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place, self.leases = kind, place, ManualClock()
        self.memory = MemoryQueues(FixedClock(1), self.leases)

    def queues(self) -> "MemoryQueues | LogQueues":
        """As a new process sees them."""
        log = FileLog(LocalStorage(self.place / "log", sync=False), FixedClock(1))
        return self.memory if self.kind == "memory" else LogQueues(log, leases=self.leases)

    def dies_of_the_first(self) -> bytes:
        """A consumer takes ten, begins with the first, and is killed."""
        consumer = QueueConsumer(self.queues().queue("q"), consumer_of(None, 10, None))
        begun = next(iter(consumer)).body
        self.leases.advance(31)
        return begun

    def dead(self) -> list[bytes]:
        return [delivery.message.body for delivery in self.queues().queue("q.dead").peek(100)]


@pytest.fixture(params=["memory", "log"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Broker:
    return Broker(request.param, tmp_path)


@pytest.mark.parametrize("tries", [1, 2, 5])
def test_only_the_message_that_kills_its_consumer_becomes_a_dead_letter(tries: int, broker: Broker) -> None:
    queue: QueuePort = broker.queues().create(QueueSpec("q", tries=tries))
    queue.send([Message(body) for body in [b"poison", *NEIGHBOURS]])
    assert [broker.dies_of_the_first() for _ in range(tries)] == [b"poison"] * tries
    assert broker.queues().queue("q").state().ready == len(NEIGHBOURS)
    assert broker.dead() == [b"poison"]
    assert {delivery.attempt for delivery in broker.queues().queue("q").peek(100)} == {0 if tries == 1 else 1}


def test_a_worker_tells_too_when_it_begins(broker: Broker) -> None:
    port = broker.queues().create(QueueSpec("q", tries=2))
    port.send([Message(body) for body in [b"poison", *NEIGHBOURS]])
    broker.dies_of_the_first()
    seen = []
    Worker(port, lambda message: seen.append((message.body, message.attempt)), 2, {"until_empty": True}).run()
    assert sorted(seen) == sorted((body, 2) for body in [b"poison", *NEIGHBOURS])


def test_a_consumer_that_does_not_tell_counts_as_one_that_begins_with_all(broker: Broker) -> None:
    port = broker.queues().create(QueueSpec("q", tries=2))
    port.send([Message(b"a"), Message(b"b")])
    for _ in range(2):
        assert not any(delivery.watched for delivery in port.receive(Consumer("old"), 2))
        broker.leases.advance(31)
    assert port.state().ready == 0
    assert sorted(broker.dead()) == [b"a", b"b"]


def test_what_a_journal_says_of_it_is_the_same_after_it_was_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.queue.on_log.shared_journal.ROLL", 1)
    broker = Broker("log", tmp_path)
    broker.queues().create(QueueSpec("q", tries=2)).send([Message(b"a"), Message(b"b")])
    broker.dies_of_the_first()
    lent = broker.queues().queue("q").receive(consumer_of(None, 2, None), 2)
    broker.queues().queue("q").settle([Settlement(lent[0].receipt, "begin")])
    assert broker.queues().queue("q").state().lent == 2
    broker.leases.advance(31)
    assert (broker.queues().queue("q").state().ready, broker.dead()) == (1, [b"a"])
