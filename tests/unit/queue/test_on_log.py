"""One topic read as a log and as a queue: what each sees of the other, and what retention sees of both."""

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.core.schema import Schema
from penstock.core.time import FixedClock
from penstock.errors import BadInput, BadRow, Mismatch, OffsetGone
from penstock.log.consumer import read
from penstock.log.file.log import FileLog
from penstock.log.groups.consumer import GroupConsumer
from penstock.log.groups.leases import ManualClock
from penstock.log.groups.resetting import plan
from penstock.log.port import Chunk, Topic, TopicSpec
from penstock.log.producer import Producer
from penstock.queue.on_log.intake import Intake
from penstock.queue.on_log.queue import LogQueue
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.on_log.state import LogQueueState
from penstock.queue.port import Binding, Consumer, Delivery, Message, QueueSpec, Settlement
from penstock.queue.state.machine import StateMachine
from penstock.storage.local import LocalStorage

NOW = 1_700_000_000_000_000
ANNA = Consumer("anna")


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    return FileLog(LocalStorage(tmp_path, sync=False), FixedClock(NOW), segment_size=2_000)


@pytest.fixture
def queues(log: FileLog) -> LogQueues:
    return LogQueues(log, log.groups(), ManualClock())


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [d.message.body for d in deliveries]


def done(queue: LogQueue, *deliveries: Delivery) -> None:
    assert not queue.settle([Settlement(d.receipt, "ack") for d in deliveries])


def test_what_was_produced_to_a_topic_comes_out_of_its_queue(log: FileLog, queues: LogQueues) -> None:
    topic = log.create(TopicSpec("orders", 3))
    with Producer(topic) as producer:
        for n in range(6):
            producer.send(b"order %d" % n, key=f"k{n}", headers={"country": b"no"})
    got = queues.create(QueueSpec("orders")).receive(ANNA, 10)
    assert sorted(bodies(got)) == [b"order %d" % n for n in range(6)]
    assert {d.message.id for d in got} == {d.origin for d in got}
    assert {d.message.key for d in got} == {f"k{n}" for n in range(6)}
    assert all(d.message.headers == {"country": b"no"} for d in got)


def test_what_was_sent_to_a_queue_is_read_from_its_topic_whoever_acknowledged_it(log: FileLog, queues: LogQueues) -> None:
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"a", key="k"), Message(b"b")])
    done(queue, *queue.receive(ANNA, 2))
    [table] = read(log.topic("emails"))
    assert table["value"].to_pylist() == [b"a", b"b"]
    with GroupConsumer(log, "audit", "emails") as consumer:
        assert [r.value for r in consumer.records(follow=False)] == [b"a", b"b"]


def test_rows_of_a_typed_topic_are_messages_of_json(log: FileLog, queues: LogQueues) -> None:
    topic = log.create(TopicSpec("orders", schema=Schema.of("id long, text string")))
    queue = queues.create(QueueSpec("packing", source="orders"))
    with Producer(topic) as producer:
        producer.send({"id": 1, "text": "søt"})
    queue.send([Message(b'{"id": 2, "text": null}')])
    assert bodies(queue.receive(ANNA, 2)) == ['{"id":1,"text":"søt"}'.encode(), b'{"id":2,"text":null}']


def test_a_typed_topic_takes_no_message_that_is_no_row(log: FileLog, queues: LogQueues) -> None:
    log.create(TopicSpec("orders", schema=Schema.of("id long")))
    queue = queues.create(QueueSpec("packing", source="orders"))
    with pytest.raises(BadRow, match="does not take message m1") as refused:
        queue.send([Message(b'{"id": 1}'), Message(b"what?", "m1")])
    assert "nothing of this was sent" in str(refused.value)
    assert not queue.receive(ANNA, 5)


def test_deletes_are_no_messages(log: FileLog, queues: LogQueues) -> None:
    topic = log.create(TopicSpec("users", key="id"))
    queue = queues.create(QueueSpec("users"))
    with Producer(topic) as producer:
        producer.send({"id": 1})
        producer.delete({"id": 1})
        producer.send({"id": 2})
    assert bodies(queue.receive(ANNA, 5)) == [b'{"id":1}', b'{"id":2}']
    assert queue.state().ready == 0


def test_a_queue_may_begin_with_what_comes(queues: LogQueues) -> None:
    queues.create(QueueSpec("feed")).send([Message(b"before")])
    late = queues.create(QueueSpec("late", source="feed", start="latest"))
    early = queues.create(QueueSpec("early", source="feed"))
    late.send([Message(b"after")])
    assert bodies(late.receive(ANNA, 5)) == [b"after"]
    assert bodies(early.receive(ANNA, 5)) == [b"before", b"after"]


def test_partitions_that_are_added_are_read_too(log: FileLog, queues: LogQueues) -> None:
    log.create(TopicSpec("orders"))
    queues.create(QueueSpec("orders")).send([Message(b"b")])
    with Producer(log.alter(TopicSpec("orders", 2))) as producer:
        producer.send(b"a", partition=1)
    queue = LogQueues(log, leases=ManualClock()).queue("orders")
    assert sorted(bodies(queue.receive(ANNA, 5))) == [b"a", b"b"]


def test_retention_waits_for_a_queue_even_if_nobody_ever_asked_it(log: FileLog, queues: LogQueues) -> None:
    log.create(TopicSpec("emails", retain=timedelta(0)))
    queue = queues.create(QueueSpec("emails"))
    for n in range(100):
        queue.send([Message(b"x" * 100, f"m{n}")])
    log.clock.set(NOW + 1_000_000)  # type: ignore[attr-defined]
    log.clean("emails", log.groups().positions)
    assert len(queue.receive(Consumer("all", prefetch=200), 200)) == 100


def test_what_was_removed_before_it_was_lent_is_told(log: FileLog, queues: LogQueues) -> None:
    log.create(TopicSpec("emails", retain=timedelta(0)))
    queue = queues.create(QueueSpec("emails"))
    for _ in range(100):
        queue.send([Message(b"x" * 100)])
    log.clock.set(NOW + 1_000_000)  # type: ignore[attr-defined]
    log.clean("emails")  # by somebody who knows of no readers
    with pytest.raises(OffsetGone, match=r"emails/0: records 0 to \d+ were removed before queue emails had delivered them"):
        queue.receive(ANNA)
    queues.purge("emails")
    queue.send([Message(b"next")])
    assert bodies(queue.receive(ANNA, 5)) == [b"next"]


def test_another_topic_of_that_name_is_not_read(log: FileLog, queues: LogQueues) -> None:
    queues.create(QueueSpec("emails")).send([Message(b"a")])
    log.delete("emails")
    log.create(TopicSpec("emails"))
    with pytest.raises(Mismatch, match="read another topic emails"):
        LogQueues(log, leases=ManualClock()).queue("emails").receive(ANNA)


def test_how_far_a_queue_has_come_is_seen_among_the_groups_and_cannot_be_set(log: FileLog, queues: LogQueues) -> None:
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"a")])
    groups = log.groups()
    [state] = groups.describe("queue.emails")
    assert (state.topic, [p.offset for p in state.partitions]) == ("emails", [0])
    with pytest.raises(BadInput, match="is a queue"):
        plan(groups, "queue.emails", log.topic("emails"), "latest")
    with pytest.raises(BadInput, match="is a queue, which cannot be joined"), GroupConsumer(log, "queue.emails", "emails"):
        pass


def test_the_highest_priority_is_found_among_a_thousand(queues: LogQueues) -> None:
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"low") for _ in range(900)])
    queue.receive(ANNA)
    queue.send([Message(b"high", priority=9)])
    assert bodies(queue.receive(ANNA)) == [b"high"]


def test_what_one_queue_takes_the_others_take_too(queues: LogQueues) -> None:
    queues.create(QueueSpec("orders", bindings=(Binding("orders.*.eu"),)))
    queues.create(QueueSpec("all", source="orders"))
    queues.queue("all").send([Message(b"eu", route="orders.new.eu"), Message(b"us", route="orders.new.us")])
    assert bodies(queues.queue("orders").receive(ANNA, 5)) == [b"eu"]
    assert bodies(queues.queue("all").receive(ANNA, 5)) == [b"eu", b"us"]


def test_messages_in_frames_of_any_size_are_read_in_parts(log: FileLog, queues: LogQueues) -> None:
    queue = queues.create(QueueSpec("many"))
    queue.send([Message(b"%d" % n) for n in range(2_500)])
    queue.send([Message(b"last")])
    log.clean("many")
    other = LogQueues(log, leases=ManualClock()).queue("many")
    got: list[bytes] = []
    while part := other.receive(Consumer("c", prefetch=5_000), 700):
        got += bodies(part)
    assert got == [*(b"%d" % n for n in range(2_500)), b"last"]


def test_a_queue_is_used_on_both_sides_of_a_fork(queues: LogQueues) -> None:
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"parent")])
    queue.peek()
    locks = (queue.local.intake.stored._guard, queue.local.publisher.sends._guard)
    for lock in locks:
        lock.acquire()  # as by another thread at the moment of the fork
    pid = os.fork()
    if not pid:
        try:
            [delivery] = queue.receive(ANNA)
            done(queue, delivery)
            queue.send([Message(b"child")])
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    for lock in locks:
        lock.release()
    assert bodies(queue.receive(ANNA, 5)) == [b"child"]


class CountedReads:
    """A topic that counts how often it is read."""

    def __init__(self, topic: Topic) -> None:
        self._topic, self.reads = topic, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._topic, name)

    def read(self, *words: Any, **more: Any) -> Iterator[Chunk]:
        self.reads += 1
        return self._topic.read(*words, **more)


def test_messages_are_found_in_one_read_of_the_topic(log: FileLog, queues: LogQueues) -> None:
    spec = QueueSpec("emails")
    queues.create(spec).send([Message(b"a"), Message(b"b")])
    topic = CountedReads(log.topic("emails"))
    state = LogQueueState(StateMachine(), topic.id)  # type: ignore[arg-type]
    [event] = Intake(topic, spec).poll(state, 1, 0.0, queues.now())  # type: ignore[arg-type]
    assert (event.encode()[0], state.machine.ready, state.next) == ("in", 2, {0: 2})
    assert topic.reads == 1
