"""What queues must pass on leases: a part of the suite."""

from penstock.core.time import micros
from penstock.queue.port import Consumer, QueuePort, QueuesPort, Settlement
from penstock.testing.contracts.queue.bench import QueueBench, bodies, letters, needs


class LeaseContract(QueueBench):
    """What is held for longer than its lease is lent to the next; whoever had it before cannot settle it any more."""

    @needs("leases", "attempts")
    def test_a_message_whose_lease_runs_out_is_lent_again(self, queue: QueuePort) -> None:
        """FAULTS row 17."""
        queue.send(letters("a"))
        [dead] = self.take(queue, by="dead")
        self.advance(2)
        assert self.none(queue)
        self.advance(1.2)
        [heir] = self.take(queue, by="heir")
        assert (dead.attempt, heir.attempt) == (1, 2)
        for fate in ("ack", "nack", "reject", "extend"):
            assert list(queue.settle([Settlement(dead.receipt, fate)])) == [dead.receipt]
        self.settle(queue, "ack", heir)
        assert self.none(queue)

    @needs("leases")
    def test_a_lease_that_ran_out_is_out_even_if_nobody_took_over(self, queue: QueuePort) -> None:
        queue.send(letters("a", "b"))
        first, second = self.take(queue, 2)
        self.settle(queue, "extend", second, delay=9 * self.tick)
        self.advance(3.2)
        told = [Settlement(first.receipt, "ack"), Settlement(second.receipt, "ack")]
        assert list(queue.settle(told)) == [first.receipt]
        assert bodies(self.take(queue)) == [b"a"]

    @needs("leases", "old place")
    def test_what_is_lost_stands_where_it_stood(self, queue: QueuePort) -> None:
        queue.send(letters(*"abcd"))
        taken = self.take(queue, 3)
        self.settle(queue, "ack", taken[1])
        self.advance(3.2)
        assert bodies(self.take(queue, 3, by="heir")) == [b"a", b"c", b"d"]

    @needs("leases")
    def test_a_consumer_may_ask_for_a_lease_of_its_own(self, queue: QueuePort) -> None:
        queue.send(letters("a", "b"))
        self.take(queue, by="short", lease=self.tick)
        [long] = self.take(queue, by="long", lease=9 * self.tick)
        self.advance(1.2)
        assert bodies(self.take(queue, by="heir")) == [b"a"]
        self.advance(4)
        self.settle(queue, "ack", long)

    @needs("leases")
    def test_what_a_consumer_lost_leaves_room_for_more(self, queue: QueuePort) -> None:
        queue.send(letters("a", "b"))
        self.take(queue, prefetch=1)
        assert not queue.receive(Consumer("anna", prefetch=1))
        self.advance(3.2)
        assert bodies(self.take(queue, prefetch=1)) == [b"a"]

    @needs("leases", "extend")
    def test_a_lease_begins_anew_when_it_is_extended(self, queue: QueuePort) -> None:
        queue.send(letters("a"))
        [delivery] = self.take(queue)
        for _ in range(3):
            self.advance(2)
            self.settle(queue, "extend", delivery)
        self.settle(queue, "extend", delivery, delay=5 * self.tick)
        self.advance(4)
        assert self.none(queue)
        self.settle(queue, "ack", delivery)
        assert self.none(queue)

    @needs("leases", "extend")
    def test_a_lease_is_as_long_as_it_was_extended_for(self, queue: QueuePort) -> None:
        queue.send(letters("a"))
        [delivery] = self.take(queue)
        self.settle(queue, "extend", delivery, delay=self.tick)
        self.advance(1.2)
        assert list(queue.settle([Settlement(delivery.receipt, "extend")])) == [delivery.receipt]
        assert bodies(self.take(queue)) == [b"a"]

    @needs("leases", "extend")
    def test_a_lease_can_be_extended_and_the_message_settled_in_one_call(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send(letters("a", "b"))
        a, b = self.take(queue, 2)
        told = [Settlement(a.receipt, "extend"), Settlement(a.receipt, "ack"), Settlement(b.receipt, "extend")]
        assert list(queue.settle([*told, Settlement(b.receipt, "nack")])) == []
        assert bodies(self.take(queues.queue("emails"))) == [b"b"]
        assert self.none(queue)

    @needs("leases", "clocks")
    def test_clocks_that_are_set_forward_and_back_change_no_lease(self, queue: QueuePort) -> None:
        """FAULTS row 37: leases run by a clock that nobody sets."""
        queue.send(letters("a"))
        [delivery] = self.take(queue)
        for hours in (1, -2, 1):
            self.wall.set(self.wall.now() + hours * 3_600_000_000)
            assert self.none(queue)
        self.settle(queue, "extend", delivery)
        self.even.advance((3 * self.tick).total_seconds())
        assert bodies(self.take(queue)) == [b"a"]

    @needs("leases", "clocks")
    def test_a_lease_ends_at_its_last_moment(self, queue: QueuePort) -> None:
        queue.send(letters("a"))
        [delivery] = self.take(queue)
        self.even.at += micros(3 * self.tick) - 1
        assert self.none(queue)
        self.even.at += 1
        assert list(queue.settle([Settlement(delivery.receipt, "ack")])) == [delivery.receipt]
        assert bodies(self.take(queue)) == [b"a"]
