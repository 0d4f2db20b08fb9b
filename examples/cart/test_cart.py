"""The cart at every moment, two who race for it, and what was removed before the checkout."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.errors import VersionConflict
from penstock.events import EventStore

HERE = Path(__file__).parent
STATES = [  # behind each version
    {"A": 1},
    {"A": 1, "B": 1},
    {"B": 1},
    {"B": 1, "A": 1},
    {"B": 1, "A": 3},
    {"B": 1, "A": 3},
]
RACER = """
import sys
from cart import EVENTS, ItemAdded
from penstock.errors import VersionConflict
from penstock.events import EventStore
store = EventStore.open("carts", EVENTS)
won = []
sys.stdin.readline()
for version in range(40):
    try:
        store.append("race", [ItemAdded(sys.argv[1])], expected=version)
        won.append(version)
    except VersionConflict as conflict:
        assert conflict.actual > version and len(conflict.missed) == conflict.actual - version
print(won)
"""


class ShoppingCart:
    """As in a textbook: it has never heard of Penstock."""

    def __init__(self) -> None:
        self.items: dict[str, int] = {}

    def apply(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "ItemAdded":
            self.items[event.item] = self.items.get(event.item, 0) + event.quantity
        elif kind == "ItemRemoved":
            del self.items[event.item]
        elif kind == "QuantityChanged":
            self.items[event.item] = event.quantity


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType, ModuleType]]:
    """cart.py, shop.py and flow.py, in a home of their own."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(HERE)
    from importlib import import_module

    names = ("cart", "shop", "flow")
    for name in names:
        sys.modules.pop(name, None)
    yield tuple(import_module(name) for name in names)  # type: ignore[misc]
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def store(modules: tuple[ModuleType, ModuleType, ModuleType]) -> EventStore:
    cart, shop, _ = modules
    for _ in range(2):  # once is enough: the second time nothing changes
        shop.main()
    return EventStore.open("carts", cart.EVENTS)


def test_the_cart_at_every_moment(store: EventStore, modules: tuple[ModuleType, ModuleType, ModuleType]) -> None:
    cart, shop, _ = modules
    assert store.version("cart-1") == len(STATES)
    for version, items in enumerate(STATES, 1):
        after = shop.HAPPENED[version][0] if version < len(STATES) else "2024-01-15T11:00:00Z"
        assert store.state(cart.Cart, "cart-1", version=version).items == items
        assert store.state(cart.Cart, "cart-1", at=after).items == items
        assert store.state(ShoppingCart, "cart-1", version=version).items == items
    assert store.load(cart.Cart, "cart-1").checked_out


def test_a_cart_that_is_checked_out_refuses_more(store: EventStore, modules: tuple[ModuleType, ModuleType, ModuleType]) -> None:
    with pytest.raises(ValueError, match="was checked out"):
        store.run(modules[0].Cart, "cart-1", lambda cart: cart.add("C"))
    with pytest.raises(VersionConflict):
        store.append("cart-1", [modules[0].ItemAdded("C")], expected=3)


def test_what_was_removed_before_the_checkout(modules: tuple[ModuleType, ModuleType, ModuleType]) -> None:
    cart, shop, flow = modules
    with flow.flow.test() as t:
        t.clock.set("2024-01-15T11:00:00Z")
        store = EventStore.open("carts", cart.EVENTS, log=t.log)
        for at, event in shop.HAPPENED:
            store.append("cart-1", [event], at=at)
        t.epoch()
        (row,) = t.rows("removed")
        assert (row["item"], row["times"], row["last"].isoformat()) == ("A", 1, "2024-01-15T10:02:00+00:00")


def test_two_processes_race_for_one_cart(store: EventStore, modules: tuple[ModuleType, ModuleType, ModuleType]) -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen([sys.executable, "-c", RACER, name], **pipes) for name in ("ann", "bob")]
    won = [json.loads(racer.communicate("go\n")[0]) for racer in racers]
    assert sorted(won[0] + won[1]) == list(range(40))
    winners = [event.event.item for event in store.read("race")]
    assert [number for number, name in enumerate(winners) if name == "ann"] == won[0]
