"""What is done to a state machine can be written as events and applied again: the copy is as good as the first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.queue.port import Consumer, QueueSpec, QueueState, Settlement
from penstock.queue.state import events, transitions
from penstock.queue.state.clock import Now
from penstock.queue.state.events import Extended, Finished, Rebooted, Returned
from penstock.queue.state.item import Item
from penstock.queue.state.machine import StateMachine
from penstock.queue.state.snapshot import restored, snapshot
from penstock.queue.state.stats import state_of

SECOND = timedelta(seconds=1)
PRIORITIES, KEYS = st.sampled_from([0, 0, 1, 9]), st.sampled_from([None, "k", "l"])
DELAYS, TTLS = st.sampled_from([0, 0, 0, 3]), st.sampled_from([0, 0, 0, 4])
FATES = st.sampled_from(["ack", "nack", "nack", "reject", "extend"])
ADMIT = st.tuples(st.just("admit"), st.lists(st.tuples(PRIORITIES, DELAYS, TTLS, KEYS), min_size=1, max_size=4))
LEASE = st.tuples(st.just("lease"), st.sampled_from(["anna", "ben"]), st.integers(1, 5), st.integers(1, 6))
SETTLED = st.tuples(st.integers(0, 8), FATES, st.none() | st.integers(1, 3), st.booleans())
STEPS = st.one_of(
    ADMIT,
    ADMIT,
    LEASE,
    LEASE,
    st.tuples(st.just("settle"), st.lists(SETTLED, min_size=1, max_size=4)),
    st.tuples(st.just("pass"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("drop"), st.integers(0, 2), st.integers(0, 3)),
    st.tuples(st.just("purge")),
    st.tuples(st.just("turn away"), st.integers(0, 2)),
    st.tuples(st.just("boot"), st.sampled_from(["b1", "b2"])),
)


class Office:
    """A state machine with a journal, and copies of it that live by the journal alone."""

    def __init__(self, spec: QueueSpec) -> None:
        self.spec, self.now = spec, Now("b1", 0, 1_000_000_000)
        self.machine, self.follower = StateMachine(spec.ordered, spec.tries), StateMachine(spec.ordered, spec.tries)
        self.journal: list[Any] = []
        self.position, self.receipts = 0, list[str]()

    def do(self, step: tuple[Any, ...]) -> None:
        if step[0] == "pass":
            self.now = self.now._replace(wall=self.now.wall + step[1] * 1_000_000, beat=self.now.beat + step[2] * 1_000_000)
        elif step[0] == "boot":
            self.now = self.now._replace(boot=step[1])
        happened: list[Any] = [Rebooted(self.now.boot)] if self.machine.advance(self.now) else []
        if step[0] not in ("pass", "boot"):
            happened += getattr(self, step[0].replace(" ", "_"))(*step[1:])
        happened += transitions.finish(self.machine, [self.machine.items[p] for p in self.machine.dying], "dead")
        written = orjson.loads(orjson.dumps([event.encode() for event in happened]))
        self.journal += written
        for event in written:
            again(self.follower, event)
        self.follower.advance(self.now)  # it looks at the clock, too, whenever it reads on

    def admit(self, messages: Sequence[tuple[Any, ...]]) -> list[Any]:
        rows = []
        for priority, delay, ttl, key in messages:
            self.position += 1
            due, expires = (self.now.wall + after * 1_000_000 if after else 0 for after in (delay, ttl))
            rows.append([self.position, self.position % 7, self.now.wall, priority, due, expires, key])
        event = Admitted(rows)
        event.apply(self.machine)
        return [event]

    def lease(self, who: str, most: int, lease: int) -> list[Any]:
        consumer = Consumer(who, 6, lease * SECOND)
        items = transitions.lease(self.machine, self.spec, consumer, most, self.now)
        self.receipts += map(receipt, items)
        return transitions.leased(consumer, items)

    def settle(self, settled: Sequence[tuple[int, Any, int | None, bool]]) -> list[Any]:
        settlements = [
            Settlement(self.receipts[-1 - which % len(self.receipts)], fate, None if delay is None else delay * SECOND, "", tried)
            for which, fate, delay, tried in settled
            if self.receipts
        ]
        return transitions.settle(self.machine, self.spec, settlements, self.now)[1]

    def drop(self, messages: int, size: int) -> list[Any]:
        return transitions.finish(self.machine, transitions.oldest_waiting(self.machine, messages, size), "dropped")

    def purge(self) -> list[Any]:
        return transitions.finish(self.machine, list(self.machine.waiting()), "purged")

    def turn_away(self, count: int) -> list[Any]:
        return transitions.count_dropped(self.machine, count)


@dataclass(frozen=True)
class Admitted:
    """Messages that are sent; each broker has an event of its own for that."""

    rows: Sequence[Sequence[Any]]

    def encode(self) -> list[Any]:
        return ["admit", self.rows]

    def apply(self, machine: StateMachine) -> None:
        machine.admit([Item(*row) for row in self.rows])


def again(machine: StateMachine, encoded: list[Any]) -> None:
    event = Admitted(encoded[1]) if encoded[0] == "admit" else events.decode(encoded)
    assert event.encode() == encoded
    event.apply(machine)


def receipt(item: Item) -> str:
    return f"{item.position}-{item.token}"


def known(machine: StateMachine, spec: QueueSpec, now: Now) -> tuple[QueueState, object]:
    """All that anybody can find out about a queue, to the very end."""
    machine.advance(now)
    state, line, ends = state_of(machine, spec, now), [i.position for i in machine.waiting()], list[object]()
    for _ in range(4):
        items = transitions.lease(machine, spec, Consumer("last", 1_000), 3, now)
        ends.append([(i.position, i.attempts, receipt(i)) for i in items])
        transitions.settle(machine, spec, [Settlement(receipt(i), "ack") for i in items[:2]], now)
        now = now._replace(beat=now.beat + 7_000_000, wall=now.wall + 7_000_000)
        machine.advance(now)
        ends.append(sorted(machine.dying.items()))
        transitions.finish(machine, [machine.items[p] for p in list(machine.dying)], "dead")
    return state, (line, ends, state_of(machine, spec, now), {name: count for name, count in machine.counts.items() if count})


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=40), st.booleans(), st.integers(1, 3))
def test_the_same_events_lead_to_the_same_state(steps: list[tuple[Any, ...]], ordered: bool, tries: int) -> None:
    spec = QueueSpec("q", ordered=ordered, tries=tries, lease=3 * SECOND, retry=SECOND)
    office = Office(spec)
    for step in steps:
        office.do(step)
    late = StateMachine(ordered, tries)
    for event in office.journal:
        again(late, event)
    stored = restored(orjson.loads(orjson.dumps(snapshot(office.machine))))
    expected = known(office.machine, spec, office.now)
    assert known(office.follower, spec, office.now) == expected
    assert known(late, spec, office.now) == expected
    assert known(stored, spec, office.now) == expected


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_the_books_balance_and_what_is_counted_twice_agrees(steps: list[tuple[Any, ...]], ordered: bool) -> None:
    office = Office(QueueSpec("q", ordered=ordered, tries=2))
    for step in steps:
        office.do(step)
        machine = office.machine
        gone = sum(machine.counts[how] for how in ("acked", "dead", "dropped", "purged"))
        assert machine.counts["sent"] == gone + len(machine.items)
        assert machine.bytes == sum(item.size for item in machine.items.values())
        state = state_of(machine, office.spec, office.now)
        assert sum(machine.held.values()) == state.lent
        assert not machine.dying


def test_what_is_told_in_one_call_is_written_in_its_order() -> None:
    office = Office(QueueSpec("q"))
    office.do(("admit", [(0, 0, 0, None)] * 4))
    office.do(("lease", "anna", 4, 5))
    a, b, c, d = office.receipts
    fates = [(a, "extend"), (a, "ack"), (b, "ack"), (c, "nack"), (d, "ack")]
    lost, settled = transitions.settle(office.machine, office.spec, [Settlement(r, f) for r, f in fates], office.now)  # type: ignore[arg-type]
    assert lost == []
    assert [type(event) for event in settled] == [Extended, Finished, Returned, Finished]
    assert settled[1] == Finished("acked", [1, 2])
    assert [event.encode()[0] for event in settled] == ["extend", "done", "back", "done"]


def test_a_receipt_that_is_used_twice_in_one_call_counts_once() -> None:
    office = Office(QueueSpec("q"))
    office.do(("admit", [(0, 0, 0, None)] * 2))
    office.do(("lease", "anna", 2, 5))
    a, b = office.receipts
    settlements = [Settlement(a, "ack"), Settlement(a, "nack"), Settlement(b, "reject"), Settlement(b, "ack"), Settlement(a, "ack")]
    assert transitions.settle(office.machine, office.spec, settlements, office.now)[0] == [a, b, a]


def test_at_least_so_many_and_so_large_are_the_oldest() -> None:
    machine = StateMachine()
    machine.admit([Item(position, size, 0) for position, size in enumerate((5, 1, 9, 2), 1)])
    assert [i.position for i in transitions.oldest_waiting(machine, 1, 0)] == [1]
    assert [i.position for i in transitions.oldest_waiting(machine, 0, 6)] == [1, 2]
    assert [i.position for i in transitions.oldest_waiting(machine, 0, 7)] == [1, 2, 3]
    assert [i.position for i in transitions.oldest_waiting(machine, 9, 0)] == [1, 2, 3, 4]
    assert transitions.oldest_waiting(machine, 0, 0) == transitions.oldest_waiting(machine, -1, -5) == []


def test_an_event_of_an_unknown_kind_is_noticed() -> None:
    with pytest.raises(ValueError, match="no event is called surprise"):
        events.decode(["surprise"])


ENCODED = [
    ["boot", "b1"],
    ["take", "anna", 7, 50, [1, 2]],
    ["take", "anna", 7, 50, [1, 2], True],
    ["begin", [1]],
    ["extend", 60, [1]],
    ["back", 70, "too early", [1]],
    ["untried", 0, [2]],
    ["aside", "no such address", [3]],
    ["done", "acked", [1, 2]],
    ["count", "dropped", 3],
]


@pytest.mark.parametrize("encoded", ENCODED, ids=lambda encoded: encoded[0])
def test_events_are_read_and_written_as_journals_have_always_held_them(encoded: list[Any]) -> None:
    assert events.decode(encoded).encode() == encoded
