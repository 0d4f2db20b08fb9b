"""Snapshots save time and never change a result."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.time import FixedClock
from penstock.errors import BadInput, NotFound, StorageError
from penstock.events import Aggregate, EventStore, Snapshots
from penstock.events import snapshots as module
from penstock.events.event import Append, StoredEvent, Written
from penstock.events.memory import MemoryStreams
from penstock.events.snapshots import SnapshotStore
from penstock.events.store import snapshots_of
from penstock.events.types import EventTypes
from penstock.log.open import open_log
from penstock.testing.contracts.events.samples import EVENTS, Cart, ItemAdded, ItemRemoved

NOW = 1_700_000_000_000_000
MINUTE = 60_000_000
ITEMS = st.lists(st.builds(ItemAdded, st.sampled_from("AB"), st.integers(1, 3)) | st.builds(ItemRemoved, st.sampled_from("AB")))


@dataclass
class Counted(MemoryStreams):
    """Streams that count the events which are read."""

    events: int = field(default=0)

    def __init__(self) -> None:
        super().__init__(clock=FixedClock(NOW))
        self.events = 0

    def read(self, stream: str, start: int = 1, stop: int | None = None) -> list[StoredEvent]:
        found = list(super().read(stream, start, stop))
        self.events += len(found)
        return found


class Kept:
    """A store in memory with snapshots."""

    def __init__(self, policy: Snapshots, kept: MemoryStreams | None = None) -> None:
        self.clock, self.streams, self.kept = FixedClock(NOW), Counted(), kept or MemoryStreams()
        types = EventTypes(EVENTS)
        self.snapshots = SnapshotStore(self.kept, policy, types.forms, self.clock)
        self.store, self.plain = EventStore(self.streams, types, self.snapshots), EventStore(self.streams, types)

    def read_by(self, call: Callable[[], object]) -> int:
        """How many events a call reads."""
        before = self.streams.events
        call()
        return self.streams.events - before


def test_a_snapshot_is_made_when_there_are_enough_events() -> None:
    kept = Kept(Snapshots(every=5))
    for version in range(1, 13):
        kept.store.append("cart-1", [ItemAdded("A")])
        assert kept.store.load(Cart, "cart-1").items == {"A": version}
    assert [e.data[:12] for e in kept.kept.read("cart-1#Cart")] == ['{"version":5', '{"version":1']
    assert kept.read_by(lambda: kept.store.load(Cart, "cart-1")) == 3
    assert kept.read_by(lambda: kept.plain.load(Cart, "cart-1")) == 12


def test_a_snapshot_is_made_when_the_last_one_is_old() -> None:
    kept = Kept(Snapshots(every=None, age="1 minute"))
    for minutes, made in ((0, 0), (1, 1), (1, 1), (2, 2), (9, 3)):
        kept.clock.set(NOW + minutes * MINUTE)
        kept.store.append("cart-1", [ItemAdded("A")])
        kept.store.load(Cart, "cart-1")
        assert kept.kept.version("cart-1#Cart") == made
    kept.clock.set(NOW + 99 * MINUTE)
    kept.store.load(Cart, "cart-1")
    assert kept.kept.version("cart-1#Cart") == 3  # nothing has happened since


@given(ITEMS, st.integers(1, 4))
def test_a_snapshot_never_changes_a_result(events: list[object], every: int) -> None:
    kept = Kept(Snapshots(every=every))
    for version, event in enumerate(events, 1):
        kept.store.append("cart-1", [event])
        kept.store.load(Cart, "cart-1")
        for at in range(version + 1):
            ours, theirs = (store.state(Cart, "cart-1", version=at) for store in (kept.store, kept.plain))
            assert vars(ours) == vars(theirs)


class Before(Cart):
    __qualname__ = "Priced"

    def apply(self, event: object) -> None:
        super().apply(event)


class After(Cart):
    __qualname__ = "Priced"

    def apply(self, event: object) -> None:
        if not isinstance(event, ItemRemoved):
            super().apply(event)


class Numbered(Before):
    __qualname__ = "Priced"
    STATE: ClassVar[int] = 2


def states(kinds: list[type[Cart]]) -> list[dict[str, int]]:
    """What one class after the other says of the same events, with snapshots of those before it."""
    kept = Kept(Snapshots(every=1))
    kept.store.append("cart-1", [ItemAdded("A"), ItemRemoved("A")])
    return [kept.store.load(kind, "cart-1").items for kind in kinds]


def test_a_snapshot_of_other_code_is_not_used() -> None:
    assert states([Before, After, Before]) == [{}, {"A": 1}, {}]


def test_a_snapshot_that_is_trusted_across_versions_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SnapshotStore, "code_of", lambda self, kind: "the same")
    assert states([Before, After]) != [{}, {"A": 1}]


def test_code_is_known_by_its_methods_its_number_and_its_events() -> None:
    store = Kept(Snapshots()).snapshots
    other = SnapshotStore(MemoryStreams(), Snapshots(), EventTypes(EVENTS[:2]).forms)
    codes = [store.code_of(kind) for kind in (Before, After, Numbered)]
    assert len({*codes, other.code_of(Before)}) == 4
    assert store.code_of(Before) == codes[0]


def test_a_snapshot_of_events_that_the_stream_does_not_have_is_not_used() -> None:
    """The snapshots outlived a store that was restored from an older copy, or made anew."""
    kept = Kept(Snapshots(every=1))
    kept.store.append("cart-1", [ItemAdded("A"), ItemAdded("A")])
    kept.store.load(Cart, "cart-1")
    for events in ([ItemAdded("B")], [ItemAdded("B"), ItemAdded("C"), ItemAdded("C")]):
        other = Kept(Snapshots(every=10), kept.kept)
        other.store.append("cart-1", events)
        assert other.store.load(Cart, "cart-1").items == other.plain.load(Cart, "cart-1").items
    with pytest.raises(NotFound):
        Kept(Snapshots(), kept.kept).store.load(Cart, "cart-1")


class Tagged(Aggregate):
    """Its state is nothing that JSON can hold."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.items: set[str] = set()

    def apply(self, event: Any) -> None:
        self.items.add(event.item)


class Dumped(Tagged):
    def dump(self) -> list[str]:
        return sorted(self.items)

    def restore(self, state: list[str]) -> None:
        self.items = set(state)


class Tupled(Aggregate):
    """JSON gives back a list."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.items: tuple[str, ...] = ()

    def apply(self, event: Any) -> None:
        self.items = (*self.items, event.item)


def test_a_state_that_is_another_one_when_it_is_read_has_no_snapshot() -> None:
    for kind in (Tagged, Tupled):
        kept = Kept(Snapshots(every=1))
        kept.store.append("cart-1", [ItemAdded("A")])
        loaded = kept.store.load(kind, "cart-1")
        assert type(loaded.items) in (set, tuple)
        assert type(kept.store.load(kind, "cart-1").items) is type(loaded.items)
        with pytest.raises(BadInput, match="write its methods dump"):
            kept.snapshots.put(loaded, kept.streams.read("cart-1")[-1])


def test_an_aggregate_may_say_itself_how_it_is_kept() -> None:
    kept = Kept(Snapshots(every=1))
    kept.store.append("cart-1", [ItemAdded("A"), ItemAdded("B")])
    kept.store.load(Dumped, "cart-1")
    assert kept.read_by(lambda: kept.store.load(Dumped, "cart-1")) == 1
    assert kept.store.load(Dumped, "cart-1").items == {"A", "B"}


class Refusing(MemoryStreams):
    def append(self, appends: object) -> list[Written]:
        raise StorageError("the disk is gone")


def test_snapshots_that_cannot_be_written_or_read_cost_time_alone() -> None:
    kept = Kept(Snapshots(every=1), Refusing())
    kept.store.append("cart-1", [ItemAdded("A")])
    assert kept.store.load(Cart, "cart-1").items == {"A": 1}
    broken = Kept(Snapshots(every=1))
    broken.store.append("cart-1", [ItemAdded("A")])
    broken.kept.append([Append("cart-1#Cart", (module.NewEvent("Snapshot", 1, '{"odd":1}', "x", None),))])
    assert broken.store.load(Cart, "cart-1").items == {"A": 1}


def test_a_snapshot_stands_for_what_retention_took() -> None:
    kept = Kept(Snapshots(every=2))
    kept.store.append("cart-1", [ItemAdded("A"), ItemAdded("B")])
    kept.store.load(Cart, "cart-1")
    kept.store.append("cart-1", [ItemAdded("B")])
    whole = kept.streams.read("cart-1")

    class Short(MemoryStreams):
        def read(self, stream: str, start: int = 1, stop: int | None = None) -> list[StoredEvent]:
            return [event for event in whole[1:] if event.version >= start and (stop is None or event.version <= stop)]

    store = EventStore(Short(), EventTypes(EVENTS), kept.snapshots)
    assert store.load(Cart, "cart-1").items == {"A": 1, "B": 2}


def test_snapshots_are_a_topic_that_can_be_thrown_away(tmp_path: Path) -> None:
    def opened() -> EventStore:
        return EventStore.open("carts", EVENTS, snapshots=Snapshots(every=2), home=tmp_path)

    store = opened()
    for _ in range(5):
        store.run(Cart, "cart-1", lambda cart: cart.add("A"))
    log = open_log(tmp_path)
    assert log.topics() == ["carts", "carts.snapshots"]
    assert log.topic(snapshots_of("carts")).spec.compact
    assert log.topic(snapshots_of("carts")).ends()[0].next == 2
    log.delete(snapshots_of("carts"))
    assert store.load(Cart, "cart-1").items == opened().load(Cart, "cart-1").items == {"A": 5}


@pytest.mark.parametrize("policy", [{"every": 0}, {"age": "soon"}])
def test_a_policy_that_cannot_be_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Snapshots(**policy)
