"""Events are frozen dataclasses: what they may hold, how they are stored, and what becomes of those that nobody knows."""

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.position import Position
from penstock.errors import BadInput, BadRow, Damaged, NotFound
from penstock.events.event import NOBODY, StoredEvent
from penstock.events.types import EventTypes
from penstock.events.upcasting import Form


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass(frozen=True)
class Price:
    amount: Decimal
    currency: str = "EUR"


@dataclass(frozen=True)
class Everything:
    text: str
    number: int
    real: float
    yes: bool
    at: dt.datetime
    day: dt.date
    amount: Decimal
    id: UUID
    size: Size
    price: Price
    data: bytes
    names: tuple[str, ...]
    prices: list[Price]
    pair: tuple[int, Decimal]
    tags: frozenset[str]
    by_number: dict[int, Decimal]
    kind: Literal["a", "b"] = "a"
    maybe: Price | None = None
    either: int | str = 0
    anything: Any = None


@dataclass(frozen=True)
class Renamed:
    NAME: ClassVar[str] = "item_added"
    NUMBER: ClassVar[int] = 3
    item: str


def stored(name: str, number: int, data: str) -> StoredEvent:
    return StoredEvent("cart-1", 4, name, number, "id", 0, data, NOBODY, Position("carts", 0, 7))


def again(types: EventTypes, event: object) -> Any:
    (name, number), data = types.encode(event)
    return types.decode(stored(name, number, data))


names = st.text(max_size=5)
amounts = st.decimals(allow_nan=False, allow_infinity=False)
prices = st.builds(Price, amounts, names)
events = st.builds(
    Everything,
    text=names,
    number=st.integers(-(2**63), 2**63 - 1),
    real=st.floats(allow_nan=False, allow_infinity=False),
    yes=st.booleans(),
    at=st.datetimes(timezones=st.just(dt.UTC)),
    day=st.dates(),
    amount=amounts,
    id=st.uuids(),
    size=st.sampled_from(Size),
    price=prices,
    data=st.binary(max_size=9),
    names=st.lists(names, max_size=3).map(tuple),
    prices=st.lists(prices, max_size=2),
    pair=st.tuples(st.integers(0, 9), amounts),
    tags=st.frozensets(names, max_size=3),
    by_number=st.dictionaries(st.integers(0, 99), amounts, max_size=2),
    kind=st.sampled_from(["a", "b"]),
    maybe=st.none() | prices,
    either=st.integers(0, 9) | names,
    anything=st.none() | st.booleans() | st.lists(st.integers(0, 9), max_size=2),
)


@given(events)
def test_what_is_stored_is_read_again(event: Everything) -> None:
    assert again(EventTypes([Everything]), event) == event


def test_an_event_has_the_name_and_number_that_its_class_says() -> None:
    assert EventTypes([Renamed]).encode(Renamed("A"))[0] == Form("item_added", 3)
    assert EventTypes(Renamed | Price).encode(Price(Decimal(1)))[0] == Form("Price", 1)  # type: ignore[arg-type]


def test_two_classes_are_not_the_same_event() -> None:
    @dataclass(frozen=True)
    class Other:
        NAME: ClassVar[str] = "item_added"
        NUMBER: ClassVar[int] = 3

    with pytest.raises(BadInput, match="two classes are the event item_added 3"):
        EventTypes([Renamed, Other])
    EventTypes([Renamed, Renamed])


@pytest.mark.parametrize("kind", [str, "Renamed", 7])
def test_what_is_no_frozen_dataclass_is_no_event(kind: object) -> None:
    with pytest.raises(BadInput):
        EventTypes([kind])


def test_a_mutable_dataclass_is_no_event() -> None:
    @dataclass
    class Mutable:
        item: str

    with pytest.raises(BadInput, match="frozen dataclasses"):
        EventTypes([Mutable])


@pytest.mark.parametrize("hint", [complex, list[complex], "dt.datetime | dt.date", type])
def test_a_field_that_cannot_be_stored_is_refused_when_the_store_is_opened(hint: Any) -> None:
    kind = dataclass(frozen=True)(type("Odd", (), {"__annotations__": {"field": hint}, "__module__": __name__}))
    with pytest.raises(BadInput, match=r"Odd\.field"):
        EventTypes([kind])


def test_a_value_that_its_field_does_not_promise_is_refused() -> None:
    with pytest.raises(BadRow, match="Renamed cannot be stored"):
        EventTypes([Renamed]).encode(Renamed(object()))  # type: ignore[arg-type]


def test_an_unknown_event_is_an_error_that_names_it_or_is_skipped() -> None:
    with pytest.raises(NotFound, match="does not know: Gone 2") as caught:
        EventTypes([Renamed]).decode(stored("Gone", 2, "{}"))
    assert "carts/0@7" in str(caught.value)
    assert "item_added 3" in str(caught.value)
    assert EventTypes([Renamed], unknown="skip").decode(stored("Gone", 2, "{}")) is None
    with pytest.raises(BadInput):
        EventTypes([Renamed], unknown="perhaps")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="was not told"):
        EventTypes([Renamed]).encode(Price(Decimal(1)))


@pytest.mark.parametrize("data", ['{"items":"A"}', "{}", "[]", "no json"])
def test_an_event_that_does_not_fit_its_class_is_named(data: str) -> None:
    with pytest.raises(Damaged, match="item_added 3 at version 4 of stream 'cart-1'"):
        EventTypes([Renamed]).decode(stored("item_added", 3, data))
