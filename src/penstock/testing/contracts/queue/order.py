"""What queues must pass on priorities, delays and ordered keys: a part of the suite."""

from typing import Any

from penstock.queue.port import Consumer, Message, QueuePort, QueuesPort
from penstock.testing.contracts.queue.bench import QueueBench, bodies, letters, needs


class OrderContract(QueueBench):
    """The highest priority first, then the oldest; nothing before its time; of one key, one at a time."""

    @needs("priority")
    def test_the_highest_priority_comes_first_and_then_the_oldest(self, queue: QueuePort) -> None:
        queue.send([Message(f"{priority}{number}".encode(), priority=priority) for number in (1, 2) for priority in range(10)])
        first = self.take(queue, 3)
        assert bodies(first) == [b"91", b"92", b"81"]
        self.settle(queue, "ack", *first)
        queue.send([Message(b"93", priority=9)])
        rest = [f"{priority}{number}".encode() for priority in range(7, -1, -1) for number in (1, 2)]
        assert bodies(self.take(queue, 18)) == [b"93", b"82", *rest]

    @needs("priority")
    def test_a_priority_comes_out_as_it_went_in(self, queue: QueuePort) -> None:
        queue.send([Message(b"a", priority=7)])
        assert self.take(queue)[0].message.priority == 7

    @needs("priority", "old place")
    def test_what_is_given_back_keeps_its_priority(self, queue: QueuePort) -> None:
        queue.send([Message(b"low"), Message(b"high", priority=5), Message(b"higher", priority=5)])
        self.settle(queue, "nack", *self.take(queue))
        assert bodies(self.take(queue, 3)) == [b"high", b"higher", b"low"]

    @needs("delay")
    def test_a_message_waits_for_its_time(self, queue: QueuePort) -> None:
        queue.send([Message(b"later", delay=2 * self.tick), Message(b"now")])
        assert bodies(self.take(queue)) == [b"now"]
        self.advance(1)
        assert self.none(queue)
        self.advance(1.2)
        assert bodies(self.take(queue)) == [b"later"]

    @needs("delay")
    def test_those_that_wait_come_when_their_time_has_come(self, queue: QueuePort) -> None:
        queue.send([Message(str(ticks).encode(), delay=ticks * self.tick) for ticks in (6, 2, 4)])
        for ticks in (2, 4, 6):
            self.advance(2.05)
            [delivery] = self.take(queue)
            assert delivery.message.body == str(ticks).encode()
            self.settle(queue, "ack", delivery)
            assert self.none(queue)

    @needs("delay", "old place")
    def test_one_whose_time_has_come_stands_where_it_would_have_stood(self, queue: QueuePort) -> None:
        queue.send([Message(b"first", delay=self.tick), *letters("second", "third")])
        self.advance(1.2)
        assert bodies(self.take(queue, 3)) == [b"first", b"second", b"third"]

    # Ordered keys

    def ordered(self, queues: QueuesPort, **settings: Any) -> QueuePort:
        return self.create(queues, ordered=True, **settings)

    @needs("ordered")
    def test_of_one_key_one_message_is_lent_at_a_time(self, queues: QueuesPort) -> None:
        queue = self.ordered(queues)
        queue.send([Message(name.encode(), key=name[0]) for name in ("a1", "a2", "b1", "a3", "b2")])
        first = self.take(queue, 2)
        assert bodies(first) == [b"a1", b"b1"]
        assert self.none(queue)
        self.settle(queue, "ack", first[0])
        assert bodies(self.take(queue, by="ben")) == [b"a2"]
        assert self.none(queue)
        self.settle(queue, "ack", first[1])
        assert bodies(self.take(queue)) == [b"b2"]

    @needs("ordered")
    def test_messages_without_a_key_wait_for_nobody(self, queues: QueuesPort) -> None:
        queue = self.ordered(queues)
        queue.send([Message(b"1"), Message(b"a", key="k"), Message(b"2"), Message(b"b", key="k"), Message(b"", key="")])
        assert bodies(self.take(queue, 4)) == [b"1", b"a", b"2", b""]
        assert self.none(queue)

    @needs("ordered")
    def test_a_key_keeps_its_order_when_its_first_is_given_back(self, queues: QueuesPort) -> None:
        queue = self.ordered(queues)
        queue.send(letters(*"abc", key="k"))
        for body in (b"a", b"a", b"a", b"b", b"b", b"c"):
            [delivery] = self.take(queue)
            assert delivery.message.body == body
            assert self.none(queue)
            self.settle(queue, "nack" if delivery.attempt < {b"a": 3, b"b": 2}.get(body, 1) else "ack", delivery)
        assert self.none(queue)

    @needs("ordered", "leases")
    def test_a_key_keeps_its_order_when_a_lease_runs_out(self, queues: QueuesPort) -> None:
        queue = self.ordered(queues)
        queue.send(letters("a", "b", key="k"))
        self.take(queue, by="dead")
        self.advance(3.2)
        [first] = self.take(queue, by="heir")
        assert first.message.body == b"a"
        assert self.none(queue)
        self.settle(queue, "ack", first)
        assert bodies(self.take(queue)) == [b"b"]

    @needs("ordered", "delay")
    def test_a_first_that_rests_holds_up_its_key_and_no_other(self, queues: QueuesPort) -> None:
        queue = self.ordered(queues)
        queue.send([*letters("a1", "a2", key="a"), *letters("b1", key="b")])
        [a1] = self.take(queue)
        self.settle(queue, "nack", a1, delay=2 * self.tick)
        assert bodies(self.take(queue)) == [b"b1"]
        assert self.none(queue)
        self.advance(2.2)
        [a1] = self.take(queue)
        assert a1.message.body == b"a1"
        self.settle(queue, "ack", a1)
        assert bodies(self.take(queue)) == [b"a2"]

    @needs("ordered", "delay")
    def test_one_that_waits_for_its_time_holds_up_those_behind_it(self, queues: QueuesPort) -> None:
        queue = self.ordered(queues)
        queue.send([Message(b"a", key="k", delay=self.tick), Message(b"b", key="k")])
        assert self.none(queue)
        self.advance(1.2)
        self.settle(queue, "ack", *self.take(queue))
        assert bodies(self.take(queue)) == [b"b"]

    @needs("ordered")
    def test_a_first_that_dies_lets_the_next_one_forward(self, queues: QueuesPort) -> None:
        """FAULTS row 18: a poison message does not block its key."""
        queue = self.ordered(queues, tries=2)
        queue.send(letters(*"abcd", key="k"))
        self.settle(queue, "reject", *self.take(queue))
        for _ in range(2):
            [b] = self.take(queue)
            assert b.message.body == b"b"
            self.settle(queue, "nack", b)
        assert bodies(self.take(queue)) == [b"c"]
        assert [letter.body for letter, _ in self.dead_of(queues, count=2)] == [b"a", b"b"]

    @needs("ordered", "expiry")
    def test_one_that_expires_lets_the_next_one_forward(self, queues: QueuesPort) -> None:
        queue = self.ordered(queues)
        queue.send([Message(b"a", key="k", ttl=self.tick), Message(b"b", key="k", ttl=self.tick), Message(b"c", key="k")])
        self.advance(1.2)
        assert bodies(self.take(queue)) == [b"c"]

    @needs("ordered", "priority")
    def test_a_key_keeps_its_order_whatever_the_priorities_say(self, queues: QueuesPort) -> None:
        queue = self.ordered(queues)
        queue.send([Message(b"a1", key="a"), Message(b"a2", key="a", priority=9), Message(b"b1", key="b", priority=5)])
        taken = self.take(queue, 2)
        assert bodies(taken) == [b"b1", b"a1"]
        self.settle(queue, "ack", taken[1])
        assert bodies(self.take(queue)) == [b"a2"]

    @needs("ordered")
    def test_a_purge_leaves_the_first_that_is_lent_and_the_key_goes_on(self, queues: QueuesPort) -> None:
        queue = self.ordered(queues)
        queue.send(letters(*"abc", key="k"))
        [a] = self.take(queue)
        assert queues.purge("emails") == 2
        queue.send(letters("d", key="k"))
        assert not queue.receive(Consumer("ben"))
        self.settle(queue, "ack", a)
        assert bodies(self.take(queue)) == [b"d"]
