"""What queues must pass on names, on looking, and on what cannot be: a part of the suite."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.core.time import micros
from penstock.errors import AlreadyThere, BadInput, BadName, NotFound
from penstock.queue.port import Binding, Consumer, Limit, Message, QueuePort, QueueSpec, QueuesPort, Settlement
from penstock.testing.contracts.queue.bench import QueueBench, bodies, letters, needs

_LONG = timedelta(days=400)


class NamesContract(QueueBench):
    """Making, deleting, purging, looking."""

    def test_a_queue_is_made_with_its_dead_letters(self, queues: QueuesPort) -> None:
        assert queues.names() == []
        spec = QueueSpec("videos", lease=timedelta(seconds=7), tries=4, retry=self.tick, limit=Limit("buffer", 5, 1_000))
        assert queues.create(spec).spec == queues.queue("videos").spec == spec
        queues.create(QueueSpec("emails", source="videos", bindings=(Binding("a.*"),)))
        assert queues.names() == ["emails", "emails.dead", "videos", "videos.dead"]
        assert queues.queue("emails").spec.bindings == (Binding("a.*"),)

    def test_a_queue_can_be_opened_twice_and_is_one(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send(letters("a"))
        [delivery] = self.take(queues.queue("emails"))
        assert self.none(queue)
        self.settle(queue, "ack", delivery)
        assert self.none(queues.queue("emails"))

    def test_there_is_one_queue_of_a_name(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send(letters("a"))
        with pytest.raises(AlreadyThere, match="emails"):
            queues.create(QueueSpec("emails", tries=2))
        assert queues.queue("emails").spec == queue.spec
        assert bodies(self.take(queue)) == [b"a"]

    def test_a_queue_that_is_not_there_is_not_found_and_the_close_ones_are_named(self, queues: QueuesPort) -> None:
        with pytest.raises(NotFound, match="there is no queue emails"):
            queues.queue("emails")
        self.create(queues)
        for look in (queues.queue, queues.delete, queues.purge):
            with pytest.raises(NotFound, match=r"no queue email(?s:.*)did you mean emails"):
                look("email")

    def test_a_queue_is_deleted_and_its_dead_letters_stay(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send(letters("a", "b"))
        self.settle(queue, "reject", *self.take(queue))
        self.wait(lambda: queues.queue("emails.dead").state().ready == 1)
        queues.delete("emails")
        assert queues.names() == ["emails.dead"]
        with pytest.raises(NotFound):
            queues.queue("emails")
        assert bodies(self.take(queues.queue("emails.dead"))) == [b"a"]

    def test_a_queue_that_is_made_again_is_empty(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send(letters("a", "b"))
        self.take(queue)
        queues.delete("emails")
        again = self.create(queues)
        assert self.none(again)
        again.send(letters("c"))
        assert bodies(self.take(again)) == [b"c"]

    def test_whoever_still_holds_a_queue_that_is_gone_is_told(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send(letters("a", "b"))
        [delivery] = self.take(queue)
        queues.delete("emails")
        for use in (
            lambda: queue.send(letters("c")),
            lambda: queue.receive(Consumer("anna")),
            lambda: queue.settle([Settlement(delivery.receipt, "ack")]),
        ):
            with pytest.raises(NotFound):
                use()

    def test_a_purge_removes_what_nobody_holds(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send(letters(*"abcd"))
        held = self.take(queue)
        assert queues.purge("emails") == 3
        assert queues.purge("emails") == 0
        assert self.none(queue)
        self.settle(queue, "nack", *held)
        assert bodies(self.take(queue)) == [b"a"]

    @needs("delay", "leases", "counts")
    def test_a_purge_removes_what_waits_and_what_was_lost(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send(letters("a"))
        self.take(queue)
        queue.send([Message(b"b", delay=9 * self.tick)])
        self.advance(3.2)
        assert queues.purge("emails") == 2
        self.advance(9)
        assert self.none(queue)
        assert queue.state().counts["purged"] == 2

    # Looking

    @needs("peek")
    def test_a_look_at_the_first_messages_changes_nothing(self, queue: QueuePort) -> None:
        queue.send(letters(*"abcd"))
        self.take(queue)
        self.seen(queue, lambda state: state.ready == 3)
        for _ in range(2):
            looked = queue.peek(2)
            assert bodies(looked) == [b"b", b"c"]
            assert [delivery.receipt for delivery in looked] == ["", ""]
        assert bodies(queue.peek()) == [b"b", b"c", b"d"]
        [b] = self.take(queue)
        assert (b.message.body, b.attempt) == (b"b", 1)

    @needs("peek", "delay")
    def test_a_look_shows_what_waits_behind_what_does_not(self, queue: QueuePort) -> None:
        queue.send([Message(b"later", delay=self.tick), *letters("now")])
        assert bodies(queue.peek()) == [b"now", b"later"]

    def test_the_state_tells_what_is_ready_and_what_is_lent(self, queue: QueuePort) -> None:
        queue.send(letters(*"abcde"))
        taken = self.take(queue, 2)
        state = self.seen(queue, lambda state: (state.ready, state.lent) == (3, 2))
        assert state.spec == queue.spec
        assert all(isinstance(note, str) for note in state.notes)
        self.settle(queue, "ack", *taken)
        self.seen(queue, lambda state: (state.ready, state.lent) == (3, 0))

    @needs("clocks", "delay")
    def test_the_state_tells_what_waits_and_how_much_there_is_since_when(self, queue: QueuePort) -> None:
        began = self.wall.now()
        assert queue.state().oldest is None
        queue.send([Message(b"x" * 100, delay=2 * self.tick)])
        self.advance(1)
        queue.send([Message(b"x" * 50)])
        state = queue.state()
        assert (state.ready, state.delayed, state.lent) == (1, 1, 0)
        assert (state.bytes, state.oldest) == (150, began)
        assert self.take(queue)[0].sent == began + micros(self.tick)

    @needs("holders", "leases")
    def test_the_state_tells_who_holds_how_much_and_for_how_long(self, queue: QueuePort) -> None:
        queue.send(letters(*"abc"))
        self.take(queue, 2, by="anna")
        self.take(queue, 1, by="ben", lease=2 * self.tick)
        anna, ben = queue.state().holders
        assert (anna.consumer, anna.messages, ben.consumer, ben.messages) == ("anna", 2, "ben", 1)
        second = self.tick.total_seconds()
        assert ben.seconds is not None
        assert anna.seconds is not None
        assert second < ben.seconds <= 2 * second < anna.seconds <= 3 * second
        self.advance(2.2)
        assert [held.consumer for held in queue.state().holders] == ["anna"]

    @needs("counts", "attempts")
    def test_the_state_counts_and_the_books_balance(self, queues: QueuesPort, queue: QueuePort) -> None:
        queue.send(letters(*"abcdef"))
        taken = self.take(queue, 3)
        self.settle(queue, "ack", taken[0])
        self.settle(queue, "reject", taken[1])
        self.settle(queue, "nack", taken[2])
        self.take(queue)
        queues.purge("emails")
        queue.send(letters("g"))
        state = self.seen(queue, lambda state: state.lent == 1)
        counts = {"sent": 7, "acked": 1, "dead": 1, "purged": 3, "lent again": 1}
        assert {name: count for name, count in state.counts.items() if count} == counts
        assert counts["sent"] == counts["acked"] + counts["dead"] + counts["purged"] + state.ready + state.lent

    # What cannot be

    @pytest.mark.parametrize("name", ["", "..", "a/b", "a\0b", "x" * 300, "ü", "a."])
    def test_a_name_outside_the_allow_list_is_refused(self, queues: QueuesPort, name: str) -> None:
        for spec in (QueueSpec(name), QueueSpec("emails", dead=name or "/"), QueueSpec("emails", source=name or "/")):
            with pytest.raises(BadName):
                queues.create(spec)
        assert queues.names() == []

    @pytest.mark.parametrize(
        "wrong",
        [
            {"tries": 0},
            {"tries": -1},
            {"lease": timedelta(0)},
            {"lease": timedelta(seconds=-1)},
            {"lease": _LONG},
            {"retry": timedelta(seconds=-1)},
            {"retry": _LONG},
            {"dead": "emails"},
            {"limit": Limit("push-back")},
            {"limit": Limit("drop-oldest", 0)},
            {"limit": Limit("drop-newest", 5, -1)},
            {"limit": Limit("burn", 5)},  # type: ignore[arg-type]
            {"source": "others", "limit": Limit("push-back", 5)},
            {"source": "others", "limit": Limit("drop-newest", 5)},
            {"bindings": (Binding("a..b"),)},
            {"bindings": (Binding("a.b*"),)},
            {"bindings": (Binding("x" * 300),)},
            {"bindings": (Binding(headers={"": b"x"}),)},
            {"bindings": (Binding(headers={"a": "text"}),)},  # type: ignore[dict-item]
        ],
    )
    def test_settings_that_cannot_be_are_refused(self, queues: QueuesPort, wrong: dict[str, Any]) -> None:
        with pytest.raises(BadInput):
            queues.create(replace(QueueSpec("emails"), **wrong))
        assert queues.names() == []

    @pytest.mark.parametrize(
        "wrong",
        [
            {"body": "text"},
            {"body": None},
            {"id": "x" * 201},
            {"id": "two\nlines"},
            {"id": 5},
            {"key": b"bytes"},
            {"key": "\ud800"},
            {"headers": {"a": "text"}},
            {"headers": {"": b"x"}},
            {"headers": {"\udfff": b"x"}},
            {"headers": [("a", b"x")]},
            {"priority": -1},
            {"priority": 10},
            {"priority": 1.5},
            {"delay": timedelta(seconds=-1)},
            {"delay": _LONG},
            {"delay": 5},
            {"ttl": timedelta(0)},
            {"ttl": timedelta(seconds=-1)},
            {"ttl": _LONG},
            {"route": "a..b"},
            {"route": "a.*"},
            {"route": "#"},
            {"route": "two words"},
            {"route": "x" * 300},
            {"route": "\ud800"},
            {"route": 5},
        ],
    )
    def test_a_message_that_cannot_be_is_refused_with_all_that_are_sent_with_it(
        self, queue: QueuePort, wrong: dict[str, Any]
    ) -> None:
        with pytest.raises(BadInput):
            queue.send([Message(b"a"), Message(b"b")._replace(**wrong), Message(b"c")])
        assert self.none(queue)
        assert queue.state().ready == 0

    @pytest.mark.parametrize(
        ("consumer", "most"),
        [
            (Consumer("anna"), 0),
            (Consumer("anna"), -1),
            (Consumer("anna", prefetch=0), 1),
            (Consumer("anna", lease=timedelta(0)), 1),
            (Consumer("anna", lease=_LONG), 1),
            (Consumer(""), 1),
            (Consumer("x" * 201), 1),
            (Consumer("\ud800"), 1),
        ],
    )
    def test_a_consumer_that_cannot_be_is_refused(self, queue: QueuePort, consumer: Consumer, most: int) -> None:
        queue.send(letters("a"))
        for auto in (False, True):
            with pytest.raises(BadInput):
                queue.receive(consumer, most, auto)
        assert bodies(self.take(queue)) == [b"a"]

    @pytest.mark.parametrize(
        "wrong",
        [
            [Settlement("", "ack")],
            [Settlement("no receipt", "ack")],
            [Settlement("1-²", "nack")],
            [{"fate": "burn"}],
            [{"fate": "nack", "delay": timedelta(seconds=-1)}],
            [{"fate": "nack", "delay": _LONG}],
            [{"fate": "extend", "delay": timedelta(0)}],
            [{"fate": "extend", "delay": _LONG}],
        ],
    )
    def test_a_settlement_that_cannot_be_is_refused_with_all_that_are_told_with_it(
        self, queue: QueuePort, wrong: Sequence[Any]
    ) -> None:
        queue.send(letters("a", "b"))
        a, b = self.take(queue, 2)
        bad = [Settlement(b.receipt, **one) if isinstance(one, dict) else one for one in wrong]
        with pytest.raises(BadInput):
            queue.settle([Settlement(a.receipt, "ack"), *bad])
        self.settle(queue, "nack", a, b)
        assert sorted(bodies(self.take(queue, 2))) == [b"a", b"b"]
