"""What queues must pass on overload: a part of the suite."""

import threading
from collections.abc import Callable, Sequence

import pytest

from penstock.errors import BadInput, Full
from penstock.queue.port import Limit, Message, Policy, QueuePort, QueuesPort
from penstock.testing.contracts.queue.bench import QueueBench, bodies, letters, needs


class LimitsContract(QueueBench):
    """FAULTS row 19: what happens when messages come faster than they are taken is a choice, and is counted."""

    def limited(self, queues: QueuesPort, policy: Policy, messages: int | None = None, bytes: int | None = None) -> QueuePort:
        return self.create(queues, limit=Limit(policy, messages, bytes))

    def test_a_buffer_keeps_what_comes(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "buffer", messages=2)
        queue.send(letters(*"abc"))
        queue.send(letters(*"def"))
        assert bodies(self.take(queue, 6)) == [b"a", b"b", b"c", b"d", b"e", b"f"]

    # push-back

    @needs("push-back", "all or nothing")
    def test_a_full_queue_pushes_back_and_nothing_of_it_is_sent(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "push-back", messages=3)
        queue.send(letters("a", "b"))
        for wait in (0.0, 0.05):
            with pytest.raises(Full, match=r"emails is full: it holds at most 3 messages(?s:.*)nothing of this was sent"):
                queue.send(letters("c", "d"), wait)
        queue.send(letters("e"))
        assert bodies(self.take(queue, 3)) == [b"a", b"b", b"e"]
        assert self.none(queue)

    @needs("push-back", "counts")
    def test_what_was_refused_is_counted(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "push-back", messages=1)
        queue.send(letters("a"))
        for _ in range(2):
            with pytest.raises(Full):
                queue.send(letters("b"))
        assert (queue.state().counts["refused"], queue.state().counts["sent"]) == (2, 1)

    @needs("push-back", "lent counts")
    def test_what_is_lent_takes_room_until_it_is_done(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "push-back", messages=2)
        queue.send(letters("a", "b"))
        taken = self.take(queue, 2)
        with pytest.raises(Full):
            queue.send(letters("c"))
        self.settle(queue, "reject", taken[0])
        queue.send(letters("c"))
        with pytest.raises(Full):
            queue.send(letters("d"))
        self.settle(queue, "ack", taken[1])
        queue.send(letters("d"))
        assert bodies(self.take(queue, 2)) == [b"c", b"d"]

    @needs("push-back")
    def test_a_sender_that_waits_goes_on_when_there_is_room(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "push-back", messages=1)
        queue.send(letters("a"))
        self.until_sent(queue, lambda: self.settle(queue, "ack", *self.take(queue)))
        assert bodies(self.take(queue)) == [b"z"]

    @needs("push-back")
    def test_a_sender_that_waits_goes_on_after_a_purge(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "push-back", messages=1)
        queue.send(letters("a"))
        self.until_sent(queue, lambda: queues.purge("emails"))
        assert bodies(self.take(queue)) == [b"z"]

    @needs("push-back", "expiry", "clocks")
    def test_what_expires_makes_room(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "push-back", messages=1)
        queue.send([Message(b"a", ttl=self.tick)])
        self.until_sent(queue, lambda: self.advance(1.2))
        assert bodies(self.take(queue)) == [b"z"]

    def until_sent(self, queue: QueuePort, make_room: Callable[[], object]) -> None:
        """A sender that waits for room, and somebody who makes some."""
        told: list[Sequence[str | None]] = []
        begun = threading.Event()

        def send() -> None:
            begun.set()
            told.append(queue.send([Message(b"z", "z")], 60))

        sender = threading.Thread(target=send)
        sender.start()
        assert begun.wait(60)
        make_room()
        sender.join()
        assert [list(ids) for ids in told] == [["z"]]

    @needs("push-back", "all or nothing")
    def test_what_never_fits_is_refused_at_once(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "push-back", messages=3, bytes=1_000)
        for messages in (letters(*"abcd"), [Message(b"x" * 2_000)]):
            with pytest.raises(BadInput, match=r"batch exceeds the limit of queue emails(?s:.*)smaller batches"):
                queue.send(messages, 60)
        assert self.none(queue)
        queue.send(letters(*"abc"))

    @needs("push-back", "all or nothing")
    def test_bytes_are_a_limit_too(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "push-back", bytes=1_000)
        queue.send([Message(b"x" * 300)] * 2)
        with pytest.raises(Full, match="1,000 bytes"):
            queue.send([Message(b"x" * 300)] * 2)
        queue.send([Message(b"x" * 300)])
        self.take(queue, 3)
        assert self.none(queue)

    # drop-newest

    @needs("drop-newest")
    def test_a_full_queue_does_not_keep_the_newest(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "drop-newest", messages=3)
        assert list(queue.send([Message(b"a", "a")])) == ["a"]
        assert list(queue.send([Message(name.encode(), name) for name in "bcde"])) == ["b", "c", None, None]
        assert list(queue.send(letters("f"), 60)) == [None]
        assert bodies(self.take(queue, 3)) == [b"a", b"b", b"c"]
        assert self.none(queue)

    @needs("drop-newest", "counts")
    def test_what_was_not_kept_is_counted(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "drop-newest", messages=2)
        queue.send([Message(b"a", "same")] * 5)
        counts = queue.state().counts
        assert (counts["sent"], counts["dropped"]) == (5, 3)

    @needs("drop-newest", "lent counts")
    def test_there_is_room_again_once_one_is_done(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "drop-newest", messages=1)
        queue.send(letters("a"))
        taken = self.take(queue)
        assert list(queue.send(letters("b"))) == [None]
        self.settle(queue, "ack", *taken)
        assert list(queue.send([Message(b"c", "c")])) == ["c"]
        assert bodies(self.take(queue)) == [b"c"]

    @needs("drop-newest")
    def test_bytes_are_a_limit_for_the_newest_too(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "drop-newest", bytes=1_000)
        assert [bool(id) for id in queue.send([Message(b"x" * 300)] * 5)] == [True, True, True, False, False]
        self.take(queue, 3)
        assert self.none(queue)

    # drop-oldest

    @needs("drop-oldest")
    def test_the_oldest_make_room(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "drop-oldest", messages=3)
        for name in "abcde":
            assert queue.send(letters(name))[0]
        self.seen(queue, lambda state: state.ready == 3)
        assert bodies(self.take(queue, 3)) == [b"c", b"d", b"e"]
        assert self.none(queue)

    @needs("drop-oldest")
    def test_of_too_many_at_once_the_newest_are_kept(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "drop-oldest", messages=3)
        queue.send(letters(*"abcdefg"))
        self.seen(queue, lambda state: state.ready == 3)
        assert bodies(self.take(queue, 3)) == [b"e", b"f", b"g"]

    @needs("drop-oldest", "lent counts")
    def test_what_is_lent_is_not_dropped(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "drop-oldest", messages=3)
        queue.send(letters(*"abc"))
        a, b = self.take(queue, 2)
        queue.send(letters("d", "e"))
        assert bodies(self.take(queue)) == [b"e"]
        self.settle(queue, "ack", a)
        queue.send(letters("f"))
        self.settle(queue, "nack", b)
        assert bodies(self.take(queue, 2)) == [b"b", b"f"]

    @needs("drop-oldest", "counts", "lent counts")
    def test_what_made_room_is_counted(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "drop-oldest", messages=2)
        queue.send(letters(*"abcde"))
        self.take(queue, 2)
        queue.send(letters("f"))
        counts = queue.state().counts
        assert (counts["sent"], counts["dropped"], queue.state().lent) == (6, 4, 2)

    @needs("drop-oldest")
    def test_bytes_are_a_limit_for_the_oldest_too(self, queues: QueuesPort) -> None:
        queue = self.limited(queues, "drop-oldest", bytes=1_000)
        queue.send([Message(name.encode() * 300) for name in "abcde"])
        self.seen(queue, lambda state: state.ready == 3)
        assert [body[:1] for body in bodies(self.take(queue, 3))] == [b"c", b"d", b"e"]

    # Of a source

    @needs("source limits", "push-back", "all or nothing")
    def test_a_full_queue_pushes_back_whoever_sends_to_its_source(self, queues: QueuesPort) -> None:
        queue, audit = self.limited(queues, "push-back", messages=1), self.create(queues, "audit", source="emails")
        audit.send(letters("a"))
        with pytest.raises(Full, match="emails is full"):
            audit.send(letters("b"))
        assert bodies(self.take(queue)) == bodies(self.take(audit)) == [b"a"]
        assert self.none(audit)

    @needs("source limits", "drop-newest")
    def test_what_a_source_does_not_keep_is_in_none_of_its_queues(self, queues: QueuesPort) -> None:
        queue, audit = self.limited(queues, "drop-newest", messages=1), self.create(queues, "audit", source="emails")
        assert list(audit.send([Message(b"a", "a"), Message(b"b", "b")])) == ["a", None]
        assert list(queue.send(letters("c"))) == [None]
        assert bodies(self.take(queue)) == bodies(self.take(audit)) == [b"a"]
        assert self.none(audit)
