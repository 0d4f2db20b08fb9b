"""The history of a stream says what each event changed, and an export runs as a test."""

import datetime as dt
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

import pytest

from penstock.errors import BadInput
from penstock.events import EventStore
from penstock.events.exporting import Code, as_test
from penstock.events.history import ABSENT, Change, compare, parts
from penstock.events.memory import MemoryStreams
from penstock.events.types import EventTypes
from penstock.testing.contracts.events.samples import EVENTS, Cart, CheckedOut, ItemAdded, ItemRemoved, ShoppingCart


class Size(Enum):
    SMALL = "s"


@dataclass(frozen=True)
class Inner:
    price: Decimal


@dataclass
class State:
    name: str = "x"
    inner: Inner = field(default_factory=lambda: Inner(Decimal("1.50")))
    tags: set[str] = field(default_factory=lambda: {"b", "a"})
    lines: list[dict[str, int]] = field(default_factory=lambda: [{"n": 1}, {}])


@pytest.fixture
def store() -> EventStore:
    store = EventStore(MemoryStreams(), EventTypes(EVENTS))
    store.append("cart-1", [ItemAdded("A"), ItemAdded("B", 2)], who="ann", at="2024-01-15T10:00:00Z", correlation="visit-7")
    store.append("cart-1", [ItemRemoved("A"), CheckedOut()], who="bob", at="2024-01-15T10:05:00Z", causation="click-3")
    return store


def test_every_event_has_what_it_changed(store: EventStore) -> None:
    steps = store.history(Cart, "cart-1")
    assert [step.recorded.event for step in steps] == [e.event for e in store.read("cart-1")]
    assert [step.changes for step in steps] == [
        (Change("items.A", ABSENT, 1),),
        (Change("items.B", ABSENT, 2),),
        (Change("items.A", 1, ABSENT),),
        (Change("done", False, True),),
    ]
    assert [(s.recorded.who, s.recorded.correlation, s.recorded.causation) for s in steps[1:3]] == [
        ("ann", "visit-7", None),
        ("bob", None, "click-3"),
    ]
    assert str(steps[2].changes[0]) == "items.A: 1 → ∅"


def test_a_class_of_any_kind_has_a_history(store: EventStore) -> None:
    assert [len(step.changes) for step in store.history(ShoppingCart, "cart-1")] == [1, 1, 1, 0]


def test_a_state_is_taken_apart_to_its_last_part() -> None:
    found = parts(State())
    assert found == {
        "name": "x",
        "inner.price": Decimal("1.50"),
        "tags": ("a", "b"),
        "lines.0.n": 1,
        "lines.1": {},
    }
    assert compare(found, found) == ()


def test_an_export_is_a_test_that_runs(store: EventStore, tmp_path: Path) -> None:
    module = "penstock.testing.contracts.events.samples"
    file = tmp_path / "test_exported.py"
    file.write_text(as_test(Cart, "cart-1", store.read("cart-1"), module))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)], capture_output=True, text=True
    )
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    file.write_text(file.read_text().replace("'B': 2", "'B': 3", 1))
    assert subprocess.run([sys.executable, "-m", "pytest", "-q", str(file)], capture_output=True, cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (("a",), "('a',)"),
        ([1, 2.5], "[1, 2.5]"),
        ({"b", "a"}, "set(['a', 'b'])"),
        ({"a": {1: True}}, "{'a': {1: True}}"),
        (Inner(Decimal("1.50")), "Inner(price=Decimal('1.50'))"),
        (Size.SMALL, "Size.SMALL"),
        (dt.date(2024, 1, 15), "date.fromisoformat('2024-01-15')"),
        (dt.datetime(2024, 1, 15, tzinfo=dt.UTC), "datetime.fromisoformat('2024-01-15T00:00:00+00:00')"),
        (UUID(int=1), "UUID('00000000-0000-0000-0000-000000000001')"),
    ],
)
def test_values_are_written_as_python(value: object, text: str) -> None:
    assert Code().of(value) == text


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(BadInput, match="a object in an event"):
        Code().of(object())
