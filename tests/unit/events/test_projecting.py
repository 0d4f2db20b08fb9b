"""The events of a store as a stream of a flow: typed, upcast, and with the guarantees of any stream."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from penstock import Flow, FlowTest, agg
from penstock.errors import BadInput
from penstock.events import EventStore, Upcaster
from penstock.log.memory import MemoryLog
from penstock.testing.contracts.events.samples import EVENTS, Cart, CheckedOut, ItemAdded, ItemRemoved


@dataclass(frozen=True)
class Priced:
    """It was {"cents"} once; one of its fields has a name that is taken."""

    NUMBER: ClassVar[int] = 2
    price: Decimal
    at: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class PricedFirst:
    NAME: ClassVar[str] = "Priced"
    cents: int


@dataclass(frozen=True)
class OtherQuantity:
    quantity: str


def described(store: EventStore, *kinds: type[Any]) -> Flow:
    flow = Flow("carts")
    store.stream(flow, *kinds, lateness="0 seconds").view("seen", key=["stream", "version"])
    return flow


def rows_of(test: FlowTest, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in test.rows("seen")]


def unopened(**settings: Any) -> EventStore:
    """A store that only describes: the flow's test has its log."""
    return EventStore.open("carts", EVENTS, log=MemoryLog(), **settings)


def test_events_are_rows_with_a_column_for_every_field() -> None:
    with described(unopened(), Cart).test() as t:
        store = EventStore.open("carts", EVENTS, log=t.log)
        store.append("cart-1", [ItemAdded("A", 2), ItemRemoved("A")], who="ann")
        store.append("cart-2", [CheckedOut()])
        t.epoch()
        found = rows_of(t, "stream", "version", "event", "item", "quantity", "who")
        assert found == [
            ("cart-1", 1, "ItemAdded", "A", 2, "ann"),
            ("cart-1", 2, "ItemRemoved", "A", None, "ann"),
            ("cart-2", 1, "CheckedOut", None, None, None),
        ]


def test_events_of_some_classes_are_a_stream_of_their_own() -> None:
    store, flow = unopened(), Flow("carts")
    store.stream(flow, ItemAdded).group_by("item").agg(added=agg.sum("quantity")).view("added")
    store.stream(flow, ItemRemoved).group_by("item").agg(removed=agg.count()).view("removed")
    with flow.test() as t:
        EventStore.open("carts", EVENTS, log=t.log).append("cart-1", [ItemAdded("A", 2), ItemAdded("A"), ItemRemoved("A")])
        t.epoch()
        assert t.rows("added") == [{"item": "A", "added": 3}]
        assert t.rows("removed") == [{"item": "A", "removed": 1}]


def test_old_events_are_upcast_on_their_way() -> None:
    upcasters = [Upcaster("Priced", 1, lambda fields: {"price": str(fields["cents"] / 100), "at": "then"})]
    kinds: dict[str, Any] = {"events": [Priced], "upcasters": upcasters}
    with described(EventStore.open("carts", log=MemoryLog(), **kinds)).test() as t:
        EventStore.open("carts", [PricedFirst], log=t.log).append("cart-1", [PricedFirst(250)])
        EventStore.open("carts", log=t.log, **kinds).append("cart-1", [Priced(Decimal("1.5"), "now", ("x", "y"))])
        t.epoch()
        assert rows_of(t, "price", "data_at", "tags") == [(Decimal("2.5"), "then", "[]"), (Decimal("1.5"), "now", '["x","y"]')]


def test_unknown_events_are_dead_letters_or_skipped() -> None:
    for unknown, dead in (("error", 1), ("skip", 0)):
        with described(unopened(unknown=unknown)).test() as t:
            EventStore.open("carts", [*EVENTS, OtherQuantity], log=t.log).append("cart-1", [ItemAdded("A"), OtherQuantity("many")])
            t.epoch()
            assert rows_of(t, "version") == [(1,)]
            assert len(t.rows("dead")) == dead


def test_fields_of_one_name_and_several_types_are_refused() -> None:
    store = EventStore.open("carts", [ItemAdded, OtherQuantity], log=MemoryLog())
    with pytest.raises(BadInput, match="field 'quantity' of event OtherQuantity"):
        store.stream(Flow("carts"))
    store.stream(Flow("carts"), ItemAdded)
    with pytest.raises(BadInput, match="neither an event"):
        store.stream(Flow("carts"), Priced)
