"""What every store of events must pass. Subclass `EventStoreContract`, say how your streams are made, run pytest.

class TestMyStreams(EventStoreContract):
    def make(self, place, clock):
        return MyStreams(place / "events", clock)
"""

import threading
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from penstock.core.time import FixedClock, moment
from penstock.errors import AlreadyThere, BadInput, BadName, BadTime, NotFound, VersionConflict
from penstock.events.event import Changes
from penstock.events.expected import ANY, EXISTS, NEW
from penstock.events.port import Streams
from penstock.events.store import EventStore
from penstock.events.types import EventTypes
from penstock.testing.contracts.events.samples import EVENTS, Cart, CheckedOut, ItemAdded, ItemRemoved, ShoppingCart

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
A, B, C = ItemAdded("A"), ItemAdded("B", 2), ItemAdded("C")


class EventStoreContract(ABC):
    """The promises of `penstock.events`, each as a test."""

    @abstractmethod
    def make(self, place: Path, clock: FixedClock) -> Streams:
        """A store without events that takes its times from the clock."""

    @pytest.fixture
    def clock(self) -> FixedClock:
        return FixedClock(NOW)

    @pytest.fixture
    def store(self, tmp_path: Path, clock: FixedClock) -> EventStore:
        return EventStore(self.make(tmp_path, clock), EventTypes(EVENTS))

    def test_events_get_versions_from_one_on(self, store: EventStore) -> None:
        first, second = store.append("cart-1", [A, B]), store.append("cart-1", [C])
        assert (first.version, second.version, store.version("cart-1")) == (2, 3, 3)
        assert [(e.version, e.event) for e in store.read("cart-1")] == [(1, A), (2, B), (3, C)]
        assert second.position == store.read("cart-1")[-1].position
        assert first.position < second.position

    def test_streams_have_versions_of_their_own(self, store: EventStore) -> None:
        for stream in ("cart-1", "cart-2", "cart-1"):
            store.append(stream, [A])
        assert (store.version("cart-1"), store.version("cart-2"), store.version("cart-3")) == (2, 1, 0)
        assert [e.stream for e in store.read("cart-1")] == ["cart-1", "cart-1"]
        assert store.read("cart-3") == []

    def test_an_append_at_the_version_expected_succeeds(self, store: EventStore) -> None:
        store.append("cart-1", [A], expected=NEW)
        store.append("cart-1", [B], expected=1)
        store.append("cart-1", [B], expected=EXISTS)
        store.append("cart-1", [B], expected=ANY)
        store.append("cart-2", [B], expected=0)
        assert (store.version("cart-1"), store.version("cart-2")) == (4, 1)

    @pytest.mark.parametrize("expected", [NEW, 0, 1, 3, 7])
    def test_an_append_at_another_version_is_told_what_it_missed(self, store: EventStore, expected: int) -> None:
        store.append("cart-1", [A, B])
        with pytest.raises(VersionConflict, match="is at version 2") as caught:
            store.append("cart-1", [C], expected=expected)
        known = expected if isinstance(expected, int) else 0
        assert caught.value.actual == 2
        assert [e.event for e in caught.value.missed] == [A, B][known:]
        assert store.version("cart-1") == 2

    def test_a_first_append_at_a_later_version_is_refused(self, store: EventStore) -> None:
        for expected in (5, EXISTS):
            with pytest.raises(VersionConflict) as caught:
                store.append("cart-1", [A], expected=expected)
            assert (caught.value.actual, caught.value.missed) == (0, ())

    def test_the_same_id_again_is_success_and_changes_nothing(self, store: EventStore) -> None:
        first = store.append("cart-1", [A, B], ids=["a", "b"], expected=NEW)
        store.append("cart-1", [C])
        for expected in (NEW, ANY, 0, 3, EXISTS):
            again = store.append("cart-1", [A, B], ids=["a", "b"], expected=expected)
            assert (again.version, again.position, again.duplicate) == (2, first.position, True)
        assert [e.id for e in store.read("cart-1", 1, 2)] == ["a", "b"]
        assert store.version("cart-1") == 3

    def test_ids_are_those_of_a_stream(self, store: EventStore) -> None:
        assert not store.append("cart-1", [A], ids=["a"]).duplicate
        assert not store.append("cart-2", [A], ids=["a"]).duplicate

    def test_events_that_are_there_in_part_are_refused(self, store: EventStore) -> None:
        store.append("cart-1", [A, B, C], ids=["a", "b", "c"])
        for ids in (["b", "x"], ["x", "b"], ["b", "a"], ["a", "c"]):
            with pytest.raises(AlreadyThere):
                store.append("cart-1", [A, B], ids=ids)
        assert store.version("cart-1") == 3

    def test_several_streams_get_their_events_all_or_none(self, store: EventStore) -> None:
        store.append("cart-2", [A])
        with pytest.raises(VersionConflict) as caught:
            store.append_together([Changes("cart-1", [A], NEW), Changes("cart-2", [B], NEW)])
        assert (caught.value.stream, store.version("cart-1")) == ("cart-2", 0)
        made = store.append_together([Changes("cart-1", [A, B], NEW), Changes("cart-2", [B], 1)])
        assert [(w.stream, w.version) for w in made] == [("cart-1", 2), ("cart-2", 2)]
        again = [Changes("cart-1", [A], ids=["x"]), Changes("cart-2", [A], ids=["x"])]
        first = store.append_together(again)
        assert [w.position for w in store.append_together(again)] == [w.position for w in first]

    @pytest.mark.parametrize(("stream", "events", "more"), [
        ("cart-1", [], {}),
        ("", [A], {}),
        ("two\nlines", [A], {}),
        ("x" * 513, [A], {}),
        ("cart-1", [A, B], {"ids": ["a"]}),
        ("cart-1", [A, B], {"ids": ["a", "a"]}),
        ("cart-1", [A], {"expected": -1}),
        ("cart-1", [A], {"expected": "1"}),
        ("cart-1", ["no event"], {}),
        ("cart-1", [A], {"at": "10001-01-01T00:00:00Z"}),
    ])  # fmt: skip
    def test_what_cannot_be_appended_is_refused(
        self, store: EventStore, stream: str, events: list[object], more: dict[str, object]
    ) -> None:
        with pytest.raises(BadInput):
            store.append(stream, events, **more)  # type: ignore[arg-type]
        assert list(store.streams()) == []

    def test_streams_with_names_that_none_can_have_are_refused_when_read(self, store: EventStore) -> None:
        with pytest.raises(BadName):
            store.read("")

    def test_a_part_of_a_stream_is_read_by_versions_and_times(self, store: EventStore, clock: FixedClock) -> None:
        for number, event in enumerate([A, B, C]):
            clock.set(NOW + number * SECOND)
            store.append("cart-1", [event])
        assert [e.event for e in store.read("cart-1", from_version=2)] == [B, C]
        assert [e.event for e in store.read("cart-1", from_version=2, to=2)] == [B]
        assert [e.event for e in store.read("cart-1", to=9)] == [A, B, C]
        assert [e.event for e in store.read("cart-1", at=moment(NOW + 2 * SECOND))] == [A, B]

    def test_who_when_and_why_is_kept(self, store: EventStore, clock: FixedClock) -> None:
        store.append("cart-1", [A], who="ann", correlation="visit-7", causation="click-3")
        store.append("cart-1", [B])
        first, second = store.read("cart-1")
        assert (first.who, first.correlation, first.causation, first.at) == ("ann", "visit-7", "click-3", moment(NOW))
        assert (second.who, second.correlation, second.causation) == (None, None, None)

    def test_times_in_a_stream_never_go_back(self, store: EventStore, clock: FixedClock) -> None:
        store.append("cart-1", [A], at="2024-01-15T10:00:00Z")
        with pytest.raises(BadTime):
            store.append("cart-1", [B], at="2024-01-15T09:59:59Z")
        store.append("cart-1", [B], at="2024-01-15T10:00:00Z")
        clock.set(NOW - 10 * 365 * 86_400 * SECOND)
        store.append("cart-1", [C])
        assert [e.at.isoformat() for e in store.read("cart-1")] == ["2024-01-15T10:00:00+00:00"] * 3
        store.append("cart-2", [A], at="1969-01-15T10:00:00Z")
        assert store.read("cart-2")[0].at.year == 1969

    def test_folding_any_prefix_is_the_state_at_its_version(self, store: EventStore, clock: FixedClock) -> None:
        events = [A, B, ItemRemoved("A"), A, ItemAdded("B", 3)]
        states = [{"A": 1}, {"A": 1, "B": 2}, {"B": 2}, {"B": 2, "A": 1}, {"B": 5, "A": 1}]
        for number, event in enumerate(events):
            clock.set(NOW + number * SECOND)
            store.append("cart-1", [event])
        for version, items in enumerate(states, 1):
            assert store.state(Cart, "cart-1", version=version).items == items
            assert store.state(ShoppingCart, "cart-1", at=moment(NOW + version * SECOND)).items == items
        assert store.state(ShoppingCart, "cart-1", at=moment(NOW)).items == {}
        assert store.state(ShoppingCart, "cart-1", version=0).items == {}
        with pytest.raises(NotFound, match="no version 6"):
            store.state(Cart, "cart-1", version=6)
        with pytest.raises(BadInput):
            store.state(Cart, "cart-1", version=1, at=moment(NOW))

    def test_an_aggregate_is_saved_and_loaded(self, store: EventStore) -> None:
        cart = Cart("cart-1")
        assert store.save(cart) is None
        cart.add("A")
        cart.add("B", 2)
        position = store.save(cart)
        assert (cart.version, cart.recorded, store.save(cart)) == (2, [], None)
        loaded = store.load(Cart, "cart-1")
        assert (loaded.items, loaded.version, loaded.id) == ({"A": 1, "B": 2}, 2, "cart-1")
        assert position == store.read("cart-1")[-1].position
        with pytest.raises(NotFound, match="no stream 'cart-2'"):
            store.load(Cart, "cart-2")

    def test_of_two_who_save_one_is_refused_and_a_command_is_run_again(self, store: EventStore) -> None:
        store.run(Cart, "cart-1", lambda cart: cart.add("A"))
        ours, theirs = store.load(Cart, "cart-1"), store.load(Cart, "cart-1")
        theirs.check_out()
        store.save(theirs)
        ours.check_out()
        with pytest.raises(VersionConflict) as caught:
            store.save(ours)
        assert [e.event for e in caught.value.missed] == [CheckedOut()]
        assert store.save(ours, retry=Cart.check_out) is None
        assert (ours.version, ours.done, store.version("cart-1")) == (2, True, 2)

    def test_what_was_recorded_is_stored_once_however_often_it_is_saved(self, store: EventStore) -> None:
        cart = Cart("cart-1")
        cart.add("A")
        events, ids = list(cart.recorded), list(cart.event_ids)
        first = store.save(cart)
        cart.version, cart.recorded, cart.event_ids = 0, events, ids  # as if the answer had never come
        assert store.save(cart) == first
        assert (store.version("cart-1"), cart.version) == (1, 1)

    def test_one_of_many_threads_wins_each_version(self, store: EventStore) -> None:
        won: list[tuple[int, int]] = []
        lost: list[tuple[int, VersionConflict]] = []

        def race(number: int) -> None:
            for version in range(10):
                try:
                    store.append("cart-1", [ItemAdded(f"{number}")], expected=version)
                    won.append((version, number))
                except VersionConflict as conflict:
                    lost.append((version, conflict))

        threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(version for version, _ in won) == list(range(10))
        assert len(lost) == 70
        assert all(len(conflict.missed) == conflict.actual - version > 0 for version, conflict in lost)
        assert [e.event for e in store.read("cart-1")] == [ItemAdded(f"{number}") for _, number in sorted(won)]

    def test_commands_of_many_threads_all_take_effect(self, store: EventStore) -> None:
        def work() -> None:
            for _ in range(5):
                store.run(Cart, "cart-1", lambda cart: cart.add("A"))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.load(Cart, "cart-1").items == {"A": 15}

    def test_all_streams_are_listed(self, store: EventStore, clock: FixedClock) -> None:
        store.append("cart-2", [A])
        clock.set(NOW + SECOND)
        store.append("cart-1", [A, B])
        store.append("cart-2", [B])
        found = [(s.stream, s.events, s.version, s.first, s.last) for s in store.streams()]
        assert found == [("cart-1", 2, 2, NOW + SECOND, NOW + SECOND), ("cart-2", 2, 2, NOW, NOW + SECOND)]
