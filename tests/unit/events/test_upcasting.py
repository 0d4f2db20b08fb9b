"""Events of old forms are read as those of today, one upcaster behind the other; golden ones stay as they were stored."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.core.position import Position
from penstock.errors import BadInput, Damaged, NotFound
from penstock.events import EventStore, Form, Upcaster, fold
from penstock.events.event import NOBODY, StoredEvent
from penstock.events.memory import MemoryStreams
from penstock.events.types import EventTypes


@dataclass(frozen=True)
class ItemAdded:
    """The third form: it began as {"item"}, then had a quantity, now a price, too."""

    NUMBER: ClassVar[int] = 3
    item: str
    quantity: int
    cents: int


@dataclass(frozen=True)
class ItemAddedFirst:
    NAME: ClassVar[str] = "ItemAdded"
    item: str


@dataclass(frozen=True)
class Emptied:
    pass


class Total:
    def __init__(self) -> None:
        self.cents = 0

    def apply(self, event: object) -> None:
        match event:
            case ItemAdded(_, quantity, cents):
                self.cents += quantity * cents
            case Emptied():
                self.cents = 0


def with_quantity(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"quantity": 1}


def with_price(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"cents": {"A": 250}.get(fields["item"], 100)}


UPCASTERS = [
    Upcaster("ItemAdded", 1, with_quantity),
    Upcaster("ItemAdded", 2, with_price),
    Upcaster("Cleared", 1, lambda fields: {}, to=Form("Emptied", 1)),
]
TYPES = EventTypes([ItemAdded, Emptied], upcasters=UPCASTERS)
# As they were stored once, and must be read for ever.
GOLDEN = [
    ("ItemAdded", 1, '{"item":"A"}', ItemAdded("A", 1, 250)),
    ("ItemAdded", 2, '{"item":"B","quantity":3}', ItemAdded("B", 3, 100)),
    ("ItemAdded", 3, '{"item":"B","quantity":3,"cents":90}', ItemAdded("B", 3, 90)),
    ("Cleared", 1, '{"why":"done"}', Emptied()),
    ("Emptied", 1, "{}", Emptied()),
]


def stored(name: str, number: int, data: str) -> StoredEvent:
    return StoredEvent("cart-1", 1, name, number, "id", 0, data, NOBODY, Position("carts", 0, 0))


@pytest.mark.parametrize(("name", "number", "data", "event"), GOLDEN)
def test_a_golden_event_is_read_as_one_of_today(name: str, number: int, data: str, event: object) -> None:
    assert TYPES.decode(stored(name, number, data)) == event


def test_upcast_then_fold_is_the_fold_of_new_events() -> None:
    upcast = [TYPES.decode(stored(*golden[:3])) for golden in GOLDEN]
    assert fold(Total(), upcast[:3]).cents == fold(Total(), [golden[3] for golden in GOLDEN[:3]]).cents == 250 + 300 + 270
    assert fold(Total(), upcast).cents == 0


def test_a_store_that_old_code_wrote_is_read_and_written_on(tmp_path: Path) -> None:
    EventStore.open("carts", [ItemAddedFirst], home=tmp_path).append("cart-1", [ItemAddedFirst("A")])
    store = EventStore.open("carts", [ItemAdded, Emptied], upcasters=UPCASTERS, home=tmp_path)
    store.append("cart-1", [ItemAdded("B", 2, 50)], expected=1)
    assert [e.event for e in store.read("cart-1")] == [ItemAdded("A", 1, 250), ItemAdded("B", 2, 50)]
    assert store.state(Total, "cart-1").cents == 350
    with pytest.raises(NotFound, match="ItemAdded 3"):
        EventStore.open("carts", [ItemAddedFirst], home=tmp_path).read("cart-1")
    old = EventStore.open("carts", [ItemAddedFirst], home=tmp_path, unknown="skip")
    assert [e.event for e in old.read("cart-1")] == [ItemAddedFirst("A")]


def test_an_event_that_is_skipped_still_has_its_version() -> None:
    streams = MemoryStreams()
    EventStore(streams, EventTypes([ItemAdded, Emptied])).append("cart-1", [Emptied(), ItemAdded("A", 1, 1)])
    store = EventStore(streams, EventTypes([ItemAdded], unknown="skip"))
    assert [e.version for e in store.read("cart-1")] == [2]
    assert store.append("cart-1", [ItemAdded("A", 1, 1)], expected=2).version == 3


def test_an_upcaster_that_fails_names_the_event() -> None:
    with pytest.raises(Damaged, match="ItemAdded 2 at version 1 of stream 'cart-1'"):
        TYPES.decode(stored("ItemAdded", 2, "{}"))


@pytest.mark.parametrize(
    ("upcasters", "why"),
    [
        ([Upcaster("ItemAdded", 4, with_price)], "end at ItemAdded 5, which no class is"),
        ([Upcaster("ItemAdded", 1, with_price)], "end at ItemAdded 2"),
        ([*UPCASTERS, Upcaster("ItemAdded", 2, with_price)], "two upcasters for events ItemAdded 2"),
        ([Upcaster("A", 1, with_price, Form("B", 1)), Upcaster("B", 1, with_price, Form("A", 1))], "round in a circle"),
    ],
)
def test_upcasters_that_lead_nowhere_are_refused(upcasters: list[Upcaster], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        EventTypes([ItemAdded, Emptied], upcasters=upcasters)
