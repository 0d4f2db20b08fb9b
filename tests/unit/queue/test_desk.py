"""What is done to a book can be written down and done again: the copy is as good as the book."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.queue.on_log import commands
from penstock.queue.port import Consumer, QueueSpec, QueueState, Settlement
from penstock.queue.state.machine import Book, Item, Now
from penstock.queue.state.snapshot import restored, taken
from penstock.queue.state.stats import state_of

SECOND = timedelta(seconds=1)
PRIORITIES, KEYS = st.sampled_from([0, 0, 1, 9]), st.sampled_from([None, "k", "l"])
DELAYS, TTLS = st.sampled_from([0, 0, 0, 3]), st.sampled_from([0, 0, 0, 4])
FATES = st.sampled_from(["ack", "nack", "nack", "reject", "extend"])
ADMIT = st.tuples(st.just("admit"), st.lists(st.tuples(PRIORITIES, DELAYS, TTLS, KEYS), min_size=1, max_size=4))
LEND = st.tuples(st.just("lend"), st.sampled_from(["anna", "ben"]), st.integers(1, 5), st.integers(1, 6))
TOLD = st.tuples(st.integers(0, 8), FATES, st.none() | st.integers(1, 3), st.booleans())
STEPS = st.one_of(
    ADMIT,
    ADMIT,
    LEND,
    LEND,
    st.tuples(st.just("settle"), st.lists(TOLD, min_size=1, max_size=4)),
    st.tuples(st.just("pass"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("drop"), st.integers(0, 2), st.integers(0, 3)),
    st.tuples(st.just("purge")),
    st.tuples(st.just("turn away"), st.integers(0, 2)),
    st.tuples(st.just("boot"), st.sampled_from(["b1", "b2"])),
)


class Office:
    """A book with a journal, and copies of it that live by the journal alone."""

    def __init__(self, spec: QueueSpec) -> None:
        self.spec, self.now = spec, Now("b1", 0, 1_000_000_000)
        self.book, self.follower = Book(spec.ordered, spec.tries), Book(spec.ordered, spec.tries)
        self.journal: list[Any] = []
        self.place, self.receipts = 0, list[str]()

    def do(self, step: tuple[Any, ...]) -> None:
        if step[0] == "pass":
            self.now = self.now._replace(wall=self.now.wall + step[1] * 1_000_000, beat=self.now.beat + step[2] * 1_000_000)
        elif step[0] == "boot":
            self.now = self.now._replace(boot=step[1])
        events = commands.waken(self.book, self.now)
        if step[0] not in ("pass", "boot"):
            events += getattr(self, step[0].replace(" ", "_"))(*step[1:])
        events += commands.finish(self.book, [self.book.items[place] for place in self.book.leaving], "dead")
        written = orjson.loads(orjson.dumps(events))
        self.journal += written
        for event in written:
            again(self.follower, event)
        commands.waken(self.follower, self.now)  # it looks at the clock, too, whenever it reads on

    def admit(self, wishes: Sequence[tuple[Any, ...]]) -> list[Any]:
        said = []
        for priority, delay, ttl, key in wishes:
            self.place += 1
            due, expires = (self.now.wall + after * 1_000_000 if after else 0 for after in (delay, ttl))
            said.append([self.place, self.place % 7, self.now.wall, priority, due, expires, key])
        event = ["admit", said]
        again(self.book, event)
        return [event]

    def lend(self, who: str, most: int, lease: int) -> list[Any]:
        items, events = commands.lend(self.book, self.spec, Consumer(who, 6, lease * SECOND), most, self.now)
        self.receipts += map(commands.receipt, items)
        return events

    def settle(self, told: Sequence[tuple[int, Any, int | None, bool]]) -> list[Any]:
        settlements = [
            Settlement(self.receipts[-1 - which % len(self.receipts)], fate, None if delay is None else delay * SECOND, "", tried)
            for which, fate, delay, tried in told
            if self.receipts
        ]
        return commands.settle(self.book, self.spec, settlements, self.now)[1]

    def drop(self, messages: int, size: int) -> list[Any]:
        return commands.finish(self.book, commands.oldest_free(self.book, messages, size), "dropped")

    def purge(self) -> list[Any]:
        return commands.finish(self.book, list(self.book.in_line()), "purged")

    def turn_away(self, count: int) -> list[Any]:
        return commands.turn_away(self.book, count)


def again(book: Book, event: list[Any]) -> None:
    if event[0] == "admit":
        book.admit([Item(*said) for said in event[1]])
    else:
        commands.told(book, event)


def known(book: Book, spec: QueueSpec, now: Now) -> tuple[QueueState, object]:
    """All that anybody can find out about a book, to the very end."""
    commands.waken(book, now)
    state, line, ends = state_of(book, spec, now), [i.place for i in book.in_line()], list[object]()
    for _ in range(4):
        items, _ = commands.lend(book, spec, Consumer("last", 1_000), 3, now)
        ends.append([(i.place, i.count, commands.receipt(i)) for i in items])
        commands.settle(book, spec, [Settlement(commands.receipt(i), "ack") for i in items[:2]], now)
        now = now._replace(beat=now.beat + 7_000_000, wall=now.wall + 7_000_000)
        commands.waken(book, now)
        ends.append(sorted(book.leaving.items()))
        commands.finish(book, [book.items[place] for place in list(book.leaving)], "dead")
    return state, (line, ends, state_of(book, spec, now), {name: count for name, count in book.counts.items() if count})


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=40), st.booleans(), st.integers(1, 3))
def test_a_book_that_is_told_the_same_again_is_the_same_again(steps: list[tuple[Any, ...]], ordered: bool, tries: int) -> None:
    spec = QueueSpec("q", ordered=ordered, tries=tries, lease=3 * SECOND, retry=SECOND)
    office = Office(spec)
    for step in steps:
        office.do(step)
    late = Book(ordered, tries)
    for event in office.journal:
        again(late, event)
    stored = restored(orjson.loads(orjson.dumps(taken(office.book))))
    expected = known(office.book, spec, office.now)
    assert known(office.follower, spec, office.now) == expected
    assert known(late, spec, office.now) == expected
    assert known(stored, spec, office.now) == expected


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_the_books_balance_and_what_is_counted_twice_agrees(steps: list[tuple[Any, ...]], ordered: bool) -> None:
    office = Office(QueueSpec("q", ordered=ordered, tries=2))
    for step in steps:
        office.do(step)
        book = office.book
        gone = sum(book.counts[how] for how in ("acked", "dead", "dropped", "purged"))
        assert book.counts["sent"] == gone + len(book.items)
        assert book.bytes == sum(item.size for item in book.items.values())
        state = state_of(book, office.spec, office.now)
        assert sum(book.held.values()) == state.lent
        assert not book.leaving


def test_what_is_told_in_one_call_is_written_in_its_order() -> None:
    office = Office(QueueSpec("q"))
    office.do(("admit", [(0, 0, 0, None)] * 4))
    office.do(("lend", "anna", 4, 5))
    a, b, c, d = office.receipts
    fates = [(a, "extend"), (a, "ack"), (b, "ack"), (c, "nack"), (d, "ack")]
    lost, events = commands.settle(office.book, office.spec, [Settlement(r, f) for r, f in fates], office.now)  # type: ignore[arg-type]
    assert lost == []
    assert [event[0] for event in events] == ["extend", "done", "back", "done"]
    assert events[1] == ["done", "acked", [1, 2]]


def test_a_receipt_that_is_used_twice_in_one_call_counts_once() -> None:
    office = Office(QueueSpec("q"))
    office.do(("admit", [(0, 0, 0, None)] * 2))
    office.do(("lend", "anna", 2, 5))
    a, b = office.receipts
    told = [Settlement(a, "ack"), Settlement(a, "nack"), Settlement(b, "reject"), Settlement(b, "ack"), Settlement(a, "ack")]
    assert commands.settle(office.book, office.spec, told, office.now)[0] == [a, b, a]


def test_at_least_so_many_and_so_large_are_the_oldest() -> None:
    book = Book()
    book.admit([Item(place, size, 0) for place, size in enumerate((5, 1, 9, 2), 1)])
    assert [i.place for i in commands.oldest_free(book, 1, 0)] == [1]
    assert [i.place for i in commands.oldest_free(book, 0, 6)] == [1, 2]
    assert [i.place for i in commands.oldest_free(book, 0, 7)] == [1, 2, 3]
    assert [i.place for i in commands.oldest_free(book, 9, 0)] == [1, 2, 3, 4]
    assert commands.oldest_free(book, 0, 0) == commands.oldest_free(book, -1, -5) == []


def test_an_event_of_an_unknown_kind_is_noticed() -> None:
    with pytest.raises(ValueError, match="no event is called surprise"):
        commands.told(Book(), ["surprise"])
