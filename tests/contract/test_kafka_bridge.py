"""Bridges between queues and topics of a real Kafka."""

import secrets

import pytest

from penstock.log.consumer import records
from penstock.log.open import open_log
from penstock.log.port import TopicSpec
from penstock.queue.bridge.to_queue import TopicToQueue
from penstock.queue.bridge.to_topic import QueueToTopic
from penstock.queue.memory import MemoryQueues
from penstock.queue.port import Consumer, Message, QueueSpec
from penstock.testing.servers.kafka_broker import KafkaBroker


def test_messages_go_into_kafka_once_and_come_back(kafka_broker: KafkaBroker) -> None:
    log = open_log(url=f"{kafka_broker.url}?prefix=t{secrets.token_hex(4)}.")
    topic, queues = log.create(TopicSpec("orders", partitions=2)), MemoryQueues()
    queue, back = queues.create(QueueSpec("orders")), queues.create(QueueSpec("back"))
    for part in (range(50), range(25, 75)):  # a half of them comes again
        queue.send([Message(b"%d" % number, f"m-{number}", key=str(number), route="a.b") for number in part])
        moved = QueueToTopic(queue, topic).run()
    assert (moved.moved, moved.doubles) == (25, 25)
    found = list(records(topic))
    assert sorted(int(record.value) for record in found) == list(range(75))  # type: ignore[arg-type]
    assert TopicToQueue(log, "orders", back, lease="6 seconds").run().moved == 75
    taken = back.receive(Consumer("anna", prefetch=100), 100)
    assert {d.message.id for d in taken} == {f"orders/{record.partition}/{record.offset}" for record in found}
    assert {d.message.route for d in taken} == {"a.b"}


def test_a_bridge_into_kafka_that_was_replaced_writes_nothing(kafka_broker: KafkaBroker) -> None:
    from penstock.errors import Fenced

    log = open_log(url=f"{kafka_broker.url}?prefix=t{secrets.token_hex(4)}.")
    topic, queue = log.create(TopicSpec("orders", partitions=2)), MemoryQueues().create(QueueSpec("orders"))
    first, second = QueueToTopic(queue, topic), QueueToTopic(queue, topic)
    first.run()
    second.run()
    queue.send([Message(b"a", "a")])
    with pytest.raises(Fenced, match="has taken over"):
        first._move(queue.receive(Consumer("zombie")))
    assert second.run().moved == 1
    assert len(list(records(topic))) == 1
