"""Bridges between queues and topics, in memory: what is moved, what is known, what is refused."""

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import orjson
import pytest

from penstock.core.schema import Schema
from penstock.core.time import FixedClock
from penstock.errors import BadInput, BadName, Fenced, LogError, Unroutable
from penstock.log.consumer import records
from penstock.log.memory import MemoryLog
from penstock.log.port import Appended, Topic, TopicSpec
from penstock.log.producer import Producer
from penstock.queue.bridge.bridge import Moved
from penstock.queue.bridge.to_queue import TopicToQueue
from penstock.queue.bridge.to_topic import QueueToTopic
from penstock.queue.dead_letters import dead_letter
from penstock.queue.memory import MemoryQueues
from penstock.queue.port import Binding, Consumer, Delivery, Limit, Message, QueuePort, QueueSpec, Settlement
from waiting import until

NOW = 1_705_312_800_000_000


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def topic(log: MemoryLog) -> Topic:
    return log.create(TopicSpec("orders", partitions=3))


@pytest.fixture
def queues() -> MemoryQueues:
    return MemoryQueues()


@pytest.fixture
def queue(queues: MemoryQueues) -> QueuePort:
    return queues.create(QueueSpec("emails", lease=timedelta(minutes=5)))


def filled(queue: QueuePort, *ids: str) -> None:
    queue.send([Message(b'{"id": "%s"}' % id.encode(), id, key=id, headers={"h": b"1"}, route="a.b", priority=3) for id in ids])


def values(topic: Topic) -> list[str]:
    return sorted(orjson.loads(record.value)["id"] for record in records(topic))  # type: ignore[arg-type]


def taken(queue: QueuePort) -> list[Message]:
    found: list[Message] = []
    while deliveries := queue.receive(Consumer("anna", prefetch=10_000), 100):
        found += [delivery.message for delivery in deliveries]
        queue.settle([Settlement(delivery.receipt, "ack") for delivery in deliveries])
    return found


# Into a topic


def test_messages_are_in_the_topic_and_off_the_queue(queue: QueuePort, topic: Topic) -> None:
    filled(queue, "a", "b", "c")
    moved = QueueToTopic(queue, topic).run()
    assert (moved.taken, moved.moved, moved.doubles) == (3, 3, 0)
    assert values(topic) == ["a", "b", "c"]
    assert (queue.state().ready, queue.state().lent) == (0, 0)
    [record] = [record for record in records(topic) if record.key == b"a"]
    assert record.headers["h"] == b"1"
    said = orjson.loads(record.headers["penstock-message"])
    assert said == {"id": "a", "bridge": "emails-to-orders", "route": "a.b", "priority": 3}


def test_a_message_is_acknowledged_only_after_the_topic_has_it(queue: QueuePort, topic: Topic) -> None:
    filled(queue, "a")
    seen: list[int] = []

    class Watching(Wrapped):
        def settle(self, settlements: Sequence[Settlement]) -> Sequence[str]:
            seen.append(len(values(topic)))
            return self.inner.settle(settlements)

    QueueToTopic(Watching(queue), topic).run()
    assert seen == [1]


def test_what_comes_again_is_known_by_its_id_also_by_a_bridge_that_is_started_anew(queue: QueuePort, topic: Topic) -> None:
    filled(queue, "a", "b", "b", "c")
    assert QueueToTopic(queue, topic).run().doubles == 1
    filled(queue, "b", "c", "d")
    again = QueueToTopic(queue, topic).run()
    assert (again.moved, again.doubles) == (1, 2)
    assert values(topic) == ["a", "b", "c", "d"]


def test_messages_without_an_id_are_written_as_often_as_they_come(queue: QueuePort, topic: Topic) -> None:
    class Nameless(Wrapped):
        def receive(self, consumer: Consumer, most: int = 1, auto: bool = False) -> Sequence[Delivery]:
            return [d._replace(message=d.message._replace(id="")) for d in self.inner.receive(consumer, most, auto)]

    filled(queue, "a", "a")
    assert QueueToTopic(Nameless(queue), topic).run().moved == 2


def test_bridges_of_other_names_have_ids_of_their_own(queues: MemoryQueues, queue: QueuePort, topic: Topic) -> None:
    other = queues.create(QueueSpec("others"))
    filled(queue, "1")
    filled(other, "1")
    assert [QueueToTopic(each, topic).run().moved for each in (queue, other)] == [1, 1]
    assert values(topic) == ["1", "1"]


def test_so_many_ids_are_remembered(queue: QueuePort, topic: Topic) -> None:
    for id in "abcd":
        filled(queue, id)
        QueueToTopic(queue, topic, remember=2).run()
    filled(queue, "b", "c", "d")
    assert QueueToTopic(queue, topic, remember=2).run().doubles == 2
    filled(queue, "b", "b")
    assert QueueToTopic(queue, topic, remember=0).run().moved == 2


def test_ids_are_remembered_for_so_long(queue: QueuePort) -> None:
    clock = FixedClock(NOW)
    topic = MemoryLog(clock).create(TopicSpec("orders"))
    bridge = QueueToTopic(queue, topic, span="1 hour", clock=clock)
    filled(queue, "a")
    bridge.run()
    clock.set(NOW + 3_000_000_000)
    filled(queue, "a")
    assert bridge.run().doubles == 1
    clock.set(NOW + 4_000_000_000)
    filled(queue, "a")
    assert bridge.run().moved == 2


def test_what_the_topic_does_not_take_is_a_dead_letter_and_can_be_mended(
    queues: MemoryQueues, queue: QueuePort, log: MemoryLog
) -> None:
    topic = log.create(TopicSpec("typed", schema=Schema.of("n long")))
    queue.send([Message(b'{"n": 1}', "a"), Message(b"no JSON", "b"), Message(b'{"n": "x"}', "c"), Message(b'{"n": 2}', "d")])
    moved = QueueToTopic(queue, topic).run()
    assert (moved.moved, moved.refused) == (2, 2)
    letters = taken(queues.queue("emails.dead"))
    assert [letter.id for letter in letters] == ["b", "c"]
    assert all((said := dead_letter(letter)) and said.reason for letter in letters)
    queue.send([Message(b'{"n": 3}', "b")])
    assert QueueToTopic(queue, topic).run().moved == 1


def test_a_bridge_that_is_started_shuts_the_one_before_it_out(queue: QueuePort, topic: Topic) -> None:
    first, second = QueueToTopic(queue, topic), QueueToTopic(queue, topic)
    first.run()
    second.run()
    filled(queue, "a")
    with pytest.raises(Fenced, match="another bridge called emails-to-orders has taken over"):
        first._move(queue.receive(Consumer("zombie"), 1))
    assert second.run().moved == 1
    assert values(topic) == ["a"]
    assert queue.state().lent == 0


def test_of_bridges_that_start_at_once_one_is_left(queue: QueuePort, topic: Topic) -> None:
    bridges = [QueueToTopic(queue, topic) for _ in range(4)]
    threads = [threading.Thread(target=bridge._begin) for bridge in bridges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    able = []
    for number, bridge in enumerate(bridges):
        filled(queue, f"m{number}")
        try:
            bridge._move(queue.receive(Consumer(f"c{number}"), 1))
            able.append(bridge)
        except Fenced:
            pass
    assert len(able) == 1
    assert len({bridge._epoch for bridge in bridges}) == 4


def test_a_topic_that_grows_is_fenced_off_in_its_new_partitions(queue: QueuePort, log: MemoryLog) -> None:
    topic = log.create(TopicSpec("growing"))
    bridge = QueueToTopic(queue, topic)
    bridge.run()
    log.alter(TopicSpec("growing", partitions=4))
    filled(queue, *map(str, range(20)))
    bridge._move(queue.receive(Consumer("c", prefetch=100), 100))
    assert len(values(topic)) == 20
    assert all(topic.senders(number)["bridge.emails-to-growing"].sequence == 1 for number in range(4))


def test_an_append_that_fails_is_done_anew_and_nothing_is_there_twice(queue: QueuePort, topic: Topic) -> None:
    """Of three partitions, the second does not take its part: the first has its rows already."""
    failing = FailingOnce(topic)
    filled(queue, *map(str, range(30)))
    troubles: list[str] = []
    bridge = QueueToTopic(queue, failing, report=lambda moved, trouble: troubles.append(trouble) if trouble else None)
    thread = threading.Thread(target=lambda: bridge.run(follow=True))
    thread.start()
    assert until(lambda: len(values(topic)) >= 30, 30)
    assert until(lambda: queue.state().lent == 0, 30)
    bridge.stop()
    thread.join()
    assert values(topic) == sorted(map(str, range(30)))
    assert troubles == ["the disk is gone"]
    assert bridge.moved.doubles > 0
    assert bridge.moved.troubles == 1


def test_without_follow_what_fails_is_raised_and_given_back(queue: QueuePort, topic: Topic) -> None:
    filled(queue, *map(str, range(30)))
    with pytest.raises(LogError, match="the disk is gone"):
        QueueToTopic(queue, FailingOnce(topic)).run()
    assert queue.state().ready == 30
    assert [d.attempt for d in queue.receive(Consumer("anna"), 1)] == [1]


def test_names_and_numbers_that_cannot_be_are_refused(queue: QueuePort, topic: Topic, log: MemoryLog) -> None:
    with pytest.raises(BadName):
        QueueToTopic(queue, topic, "a/b")
    for wrong in ({"batch": 0}, {"remember": -1}):
        with pytest.raises(BadInput):
            QueueToTopic(queue, topic, **wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        TopicToQueue(log, "orders", queue, batch=0)


# Into a queue


def test_records_are_messages_whose_ids_are_their_positions(queue: QueuePort, topic: Topic, log: MemoryLog) -> None:
    with Producer(topic) as producer:
        producer.send(b"one", key="k", partition=1, headers={"h": b"1"})
        producer.send(b"two", partition=1)
        producer.send(b"three", partition=2)
    moved = TopicToQueue(log, "orders", queue).run()
    assert (moved.taken, moved.moved) == (3, 3)
    found = {message.id: message for message in taken(queue)}
    assert found.keys() == {"orders/1/0", "orders/1/1", "orders/2/0"}
    one = found["orders/1/0"]
    assert (one.body, one.key, dict(one.headers)) == (b"one", "k", {"h": b"1"})
    assert TopicToQueue(log, "orders", queue).run().taken == 0


def test_rows_of_a_typed_topic_are_json_and_deletes_are_no_messages(queue: QueuePort, log: MemoryLog) -> None:
    topic = log.create(TopicSpec("typed", schema=Schema.of("n long, name string"), key="n"))
    with Producer(topic) as producer:
        producer.send({"n": 1, "name": "ü"})
        producer.delete(1)
    moved = TopicToQueue(log, "typed", queue).run()
    assert (moved.moved, moved.refused) == (1, 1)
    assert [orjson.loads(message.body) for message in taken(queue)] == [{"n": 1, "name": "ü"}]


def test_an_offset_is_committed_only_after_the_queue_has_the_message(queue: QueuePort, topic: Topic, log: MemoryLog) -> None:
    with Producer(topic) as producer:
        for number in range(10):
            producer.send(b"%d" % number, partition=0)

    class Breaking(Wrapped):
        def send(self, messages: Sequence[Message], wait: float = 0.0) -> Sequence[str | None]:
            if messages[0].id == "orders/0/4":
                raise LogError("the broker is gone")
            return self.inner.send(messages, wait)

    with pytest.raises(LogError):
        TopicToQueue(log, "orders", Breaking(queue), batch=2).run()
    [state] = log.groups().describe("bridge.orders-to-emails")
    assert state.partitions[0].offset == 4
    assert TopicToQueue(log, "orders", queue).run().moved == 6
    assert [message.id for message in taken(queue)] == [f"orders/0/{n}" for n in range(10)]


def test_routes_survive_the_way_there_and_back(queues: MemoryQueues, queue: QueuePort, topic: Topic, log: MemoryLog) -> None:
    filled(queue, "a")
    QueueToTopic(queue, topic).run()
    back = queues.create(QueueSpec("back", bindings=(Binding("a.*"),)))
    TopicToQueue(log, "orders", back).run()
    [message] = taken(back)
    assert (message.route, dict(message.headers)) == ("a.b", {"h": b"1"})


def test_a_full_queue_slows_the_bridge_down_and_loses_nothing(queues: MemoryQueues, topic: Topic, log: MemoryLog) -> None:
    small = queues.create(QueueSpec("small", limit=Limit("push-back", 5, 40)))
    with Producer(topic) as producer:
        for number in range(50):
            producer.send(b"x" * 10, partition=number % 3)
    bridge = TopicToQueue(log, "orders", small)
    thread = threading.Thread(target=lambda: bridge.run())
    thread.start()
    found: list[str] = []
    assert until(lambda: bool(found.extend(m.id for m in taken(small)) or len(found) >= 50), 30)
    thread.join()
    assert len(set(found)) == 50


def test_a_bridge_into_a_full_queue_can_be_stopped(queues: MemoryQueues, topic: Topic, log: MemoryLog) -> None:
    small = queues.create(QueueSpec("small", limit=Limit("push-back", 1)))
    with Producer(topic) as producer:
        producer.send(b"a")
        producer.send(b"b")
    bridge = TopicToQueue(log, "orders", small)
    thread = threading.Thread(target=lambda: bridge.run(follow=True))
    thread.start()
    assert until(lambda: small.state().ready == 1, 30)
    bridge.stop()
    thread.join()
    assert len(taken(small)) == 1
    assert TopicToQueue(log, "orders", small).run().moved == 1


def test_a_record_that_no_queue_takes_stops_the_bridge_and_is_told(queues: MemoryQueues, topic: Topic, log: MemoryLog) -> None:
    bound = queues.create(QueueSpec("bound", bindings=(Binding("orders.#"),)))
    with Producer(topic) as producer:
        producer.send(b"a")
    with pytest.raises(Unroutable):
        TopicToQueue(log, "orders", bound).run(follow=True)


def test_a_bridge_that_follows_moves_what_comes_later(queue: QueuePort, queues: MemoryQueues, topic: Topic, log: MemoryLog) -> None:
    other = queues.create(QueueSpec("other"))
    bridges = [QueueToTopic(queue, topic), TopicToQueue(log, "orders", other)]
    threads = [threading.Thread(target=bridge.run, args=(True,)) for bridge in bridges]
    for thread in threads:
        thread.start()
    for id in "abc":
        filled(queue, id)
        assert until(lambda id=id: other.state().counts.get("sent", 0) == "abc".index(id) + 1, 30)  # type: ignore[misc]
    for bridge in bridges:
        bridge.stop()
    for thread in threads:
        thread.join()
    assert len(taken(other)) == 3


def test_what_was_moved_is_told_in_words() -> None:
    assert str(Moved()) == "0 moved"
    assert str(Moved(5, 1_200, 2, 1, 3, 4)) == "1,200 moved · 2 doubles · 1 refused · 3 lent again · 4 tries in vain"


class Wrapped:
    """A queue, with a part of it made otherwise."""

    def __init__(self, inner: QueuePort) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class FailingOnce:
    """A topic whose second partition does not take its rows, once."""

    def __init__(self, inner: Topic) -> None:
        self.inner, self.failed = inner, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def append(self, partition: int, rows: Any, **how: Any) -> Appended:
        if partition == 1 and rows.num_rows and not self.failed:
            self.failed = True
            raise LogError("the disk is gone")
        return self.inner.append(partition, rows, **how)
