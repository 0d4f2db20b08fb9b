"""What queues must pass on dead letters: a part of the suite."""

import pytest

from penstock.queue.dead_letters import HEADER
from penstock.queue.port import Consumer, Message, QueuePort, QueuesPort
from penstock.testing.contracts.queue.bench import QueueBench, bodies, letters, needs


class DyingContract(QueueBench):
    """What cannot be done goes to the dead letters, whole and with a reason, and blocks nobody."""

    def test_a_message_that_is_rejected_is_a_dead_letter_with_all_that_is_to_be_known(
        self, queues: QueuesPort, queue: QueuePort
    ) -> None:
        sent = Message(b"poison", "m-1", "anna", {"tenant": b"a"}, route="mail.new")
        queue.send([sent, Message(b"good")])
        bad, good = self.take(queue, 2)
        self.settle(queue, "reject", bad, reason="cannot be read: größer als 🐢")
        [(letter, said)] = self.dead_of(queues)
        kept = {name: value for name, value in letter.headers.items() if name != HEADER}
        assert letter._replace(headers=kept) == sent
        assert (said.queue, said.reason, said.count) == ("emails", "cannot be read: größer als 🐢", 1)
        assert said.origin == bad.origin
        assert said.origin
        assert said.at.endswith("Z")
        self.settle(queue, "ack", good)
        assert self.none(queue)

    @needs("attempts")
    def test_a_message_that_always_fails_is_dead_after_its_last_try(self, queues: QueuesPort) -> None:
        """FAULTS row 18."""
        queue = self.create(queues, tries=3)
        queue.send([Message(b"poison", "bad"), Message(b"good")])
        for attempt in (1, 2, 3):
            [bad] = self.take(queue, prefetch=1)
            assert (bad.message.id, bad.attempt) == ("bad", attempt)
            self.settle(queue, "nack", bad, reason=f"failed for the {attempt}. time")
        assert bodies(self.take(queue)) == [b"good"]
        assert self.none(queue)
        [(letter, said)] = self.dead_of(queues)
        assert (letter.id, said.count, said.reason) == ("bad", 3, "failed for the 3. time")

    @needs("leases", "attempts")
    def test_a_message_that_kills_its_consumers_is_dead_after_its_last_try(self, queues: QueuesPort) -> None:
        queue = self.create(queues, tries=2)
        queue.send([Message(b"poison", "bad")])
        for _ in range(2):
            self.take(queue)
            self.advance(3.2)
        assert self.none(queue)
        [(letter, said)] = self.dead_of(queues)
        assert (letter.id, said.count, said.reason) == ("bad", 2, "its lease ran out")

    def test_with_one_try_the_first_that_fails_is_the_last(self, queues: QueuesPort) -> None:
        queue = self.create(queues, tries=1)
        queue.send(letters("a"))
        self.settle(queue, "nack", *self.take(queue))
        [(letter, said)] = self.dead_of(queues)
        assert (letter.body, said.count) == (b"a", 1)
        assert said.reason
        assert self.none(queue)

    @needs("expiry")
    def test_what_nobody_took_in_time_is_dead(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send([Message(b"late", "late", ttl=2 * self.tick), Message(b"patient")])
        self.advance(2.2)
        assert bodies(self.take(queue)) == [b"patient"]
        assert self.none(queue)
        [(letter, said)] = self.dead_of(queues)
        assert (letter.id, said.reason, said.count) == ("late", "nobody took it in time", 0)

    @needs("expiry")
    def test_what_was_taken_in_time_may_take_longer(self, queues: QueuesPort) -> None:
        queue = self.create(queues, lease=9 * self.tick)
        queue.send([Message(b"a", ttl=2 * self.tick), Message(b"b", ttl=2 * self.tick)])
        a, b = self.take(queue, 2)
        self.advance(2.2)
        self.settle(queue, "ack", a)
        self.settle(queue, "nack", b)
        assert self.none(queue)
        [(letter, said)] = self.dead_of(queues)
        assert (letter.body, said.reason) == (b"b", "nobody took it in time")

    @needs("expiry", "delay")
    def test_what_expires_before_its_time_comes_is_never_lent(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send([Message(b"a", delay=3 * self.tick, ttl=2 * self.tick)])
        self.advance(3.2)
        assert self.none(queue)
        assert [letter.body for letter, _ in self.dead_of(queues)] == [b"a"]

    def test_dead_letters_are_a_queue(self, queues: QueuesPort, queue: QueuePort) -> None:
        dead = queues.queue("emails.dead")
        queue.send(letters(*"abc"))
        for delivery in self.take(queue, 3):
            self.settle(queue, "reject", delivery)
        taken = self.take(dead, 3)
        assert sorted(bodies(taken)) == [b"a", b"b", b"c"]
        self.settle(dead, "ack", *taken[1:])
        self.settle(dead, "nack", taken[0])
        assert bodies(self.take(dead)) == bodies(taken[:1])
        dead.send(letters("d"))
        assert bodies(self.take(dead)) == [b"d"]

    @needs("expiry", "delay")
    def test_a_dead_letter_waits_for_whoever_looks(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send([Message(b"a", delay=self.tick, ttl=3 * self.tick)])
        self.advance(1.2)
        self.settle(queue, "reject", *self.take(queue))
        dead = queues.queue("emails.dead")
        assert bodies(self.take(dead, by="reader", lease=self.tick)) == [b"a"]
        self.advance(3.2)
        assert bodies(self.take(dead, by="another")) == [b"a"]

    def test_queues_may_share_their_dead_letters(self, queues: QueuesPort) -> None:
        for name in ("emails", "videos"):
            queue = self.create(queues, name, dead="graveyard")
            queue.send(letters(name))
            self.settle(queue, "reject", *self.take(queue))
        assert sorted(said.queue for _, said in self.dead_of(queues, count=2)) == ["emails", "videos"]

    @needs("counts")
    def test_what_died_is_counted_and_leaves_the_queue(self, queue: QueuePort) -> None:
        queue.send(letters(*"abc"))
        self.settle(queue, "reject", *self.take(queue, 2))
        state = self.seen(queue, lambda state: state.lent == 0)
        assert (state.ready, state.counts["dead"]) == (1, 2)

    @pytest.mark.parametrize("reason", ["", "half a \ud83d pair", "x" * 5_000, '"quoted"\n\0'])
    def test_any_reason_will_do(self, queues: QueuesPort, queue: QueuePort, reason: str) -> None:
        queue.send(letters("a"))
        self.settle(queue, "reject", *self.take(queue), reason=reason)
        [(letter, said)] = self.dead_of(queues)
        assert letter.body == b"a"
        assert said.reason == reason.replace("\ud83d", "?") if reason else said.reason
        assert not queue.receive(Consumer("anna"))
