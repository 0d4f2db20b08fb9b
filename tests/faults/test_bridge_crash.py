"""G24: bridges into a topic that crash at any step, stand still while another one works, and go on: each message is there once."""

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

import orjson
import pytest

from penstock.errors import Fenced
from penstock.log.consumer import records
from penstock.log.groups.leases import ManualClock
from penstock.log.memory import MemoryLog
from penstock.log.port import TopicSpec
from penstock.queue.bridge.deduplication import SeenIds
from penstock.queue.bridge.to_topic import QueueToTopic
from penstock.queue.memory import MemoryQueues
from penstock.queue.on_log.records import HEADER
from penstock.queue.port import Consumer, Delivery, Message, QueueSpec, Settlement

pytestmark = pytest.mark.faults
SEEDS = 300


@dataclass
class Actor:
    """A bridge that is stopped between any two of its steps, for good or for a while."""

    bridge: QueueToTopic
    number: int
    begun: bool = False
    hands: list[Delivery] = field(default_factory=list)
    written: bool = False

    def step(self, queue: "Stage") -> None:
        if not self.begun:
            self.bridge._begin()
            self.begun = True
        elif not self.hands:
            self.hands = list(queue.queue.receive(Consumer(f"actor {self.number}"), queue.rng.randint(1, 4)))
        elif not self.written:
            queue.order(self)
        else:
            queue.settle(self)


class Stage:
    """A queue, a topic, and bridges between them, moved by chance."""

    def __init__(self, seed: int) -> None:
        self.rng, self.leases = random.Random(seed), ManualClock()
        self.queue = MemoryQueues(leases=self.leases).create(QueueSpec("q", lease=timedelta(seconds=10), tries=1_000))
        self.topic = MemoryLog().create(TopicSpec("t", partitions=2))
        self.actors: list[Actor] = []
        self.sent = 0

    def order(self, actor: Actor) -> None:
        actor.bridge._write(actor.hands)
        actor.written = True

    def settle(self, actor: Actor) -> None:
        self.queue.settle([Settlement(delivery.receipt, "ack") for delivery in actor.hands])
        actor.hands, actor.written = [], False

    def run(self) -> None:
        for _ in range(self.rng.randint(20, 80)):
            act = self.rng.random()
            if act < 0.2:
                self.send()
            elif act < 0.3:
                self.leases.advance(11)
            elif act < 0.4 or not self.actors:
                self.actors.append(Actor(QueueToTopic(self.queue, self.topic), len(self.actors)))
            elif act < 0.5:
                self.actors.remove(self.rng.choice(self.actors))
            else:
                self.move(self.rng.choice(self.actors))
        self.leases.advance(11)
        QueueToTopic(self.queue, self.topic).run()

    def send(self) -> None:
        ids = [f"m-{self.sent + n}" for n in range(self.rng.randint(1, 4))]
        self.sent += len(ids)
        doubled = self.rng.random() < 0.2  # the sender's connection broke before it was confirmed
        self.queue.send([Message(b"", id, key=id) for id in ids * (2 if doubled else 1)])

    def move(self, actor: Actor) -> None:
        try:
            actor.step(self)
        except Fenced:
            self.actors.remove(actor)

    def check(self) -> None:
        found = Counter(orjson.loads(record.headers[HEADER])["id"] for record in records(self.topic))
        assert found == Counter(f"m-{number}" for number in range(self.sent))
        assert not self.queue.state().ready


def caught() -> bool:
    for seed in range(SEEDS):
        stage = Stage(seed)
        stage.run()
        try:
            stage.check()
        except AssertionError:
            return True
    return False


def test_each_message_is_in_the_topic_once_whichever_bridge_crashes_or_stands_still() -> None:
    for seed in range(SEEDS):
        stage = Stage(seed)
        stage.run()
        stage.check()


def test_a_bridge_that_shuts_nobody_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueToTopic, "_known_epoch", lambda self: -1)
    monkeypatch.setattr(QueueToTopic, "_fenced_off", lambda self: True)

    def unsigned(self: QueueToTopic, partition: int, rows: object) -> bool:
        return self._topic.append(partition, rows).duplicate  # type: ignore[arg-type]

    monkeypatch.setattr(QueueToTopic, "_append", unsigned)
    assert caught()


def test_a_bridge_that_looks_at_the_topic_before_it_shuts_others_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real, init = SeenIds.read_back, QueueToTopic.__init__

    def made(self: QueueToTopic, *given: object, **named: object) -> None:
        init(self, *given, **named)  # type: ignore[arg-type]
        real(self._ids, self._topic, self.name)

    monkeypatch.setattr(QueueToTopic, "__init__", made)
    monkeypatch.setattr(SeenIds, "read_back", lambda self, topic, bridge: None)
    assert caught()


def test_a_bridge_that_forgets_what_it_wrote_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeenIds, "read_back", lambda self, topic, bridge: None)
    assert caught()


def test_a_bridge_that_acknowledges_first_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Stage.order

    def first(self: Stage, actor: Actor) -> None:
        lost = self.queue.settle([Settlement(delivery.receipt, "ack") for delivery in actor.hands])
        if not lost and self.rng.random() < 0.5:  # a crash in between
            self.actors.remove(actor)
            return
        real(self, actor)

    monkeypatch.setattr(Stage, "order", first)
    assert caught()
