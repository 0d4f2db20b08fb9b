"""Projections in a home: views hold what was saved, and a new projection is built beside the old one."""

import threading
from pathlib import Path

import pytest

from faults.engine_shop import SparkFree
from penstock import Flow, View, agg
from penstock.engine.run import loop
from penstock.errors import NotYet
from penstock.events import EventStore, stream_of
from penstock.testing.contracts.events.samples import EVENTS, Cart, ItemAdded


def projection(name: str, times: bool = False) -> Flow:
    """How many pieces of each item were added, or how often."""
    flow = Flow(name)
    added = stream_of(flow, "carts", EVENTS, ItemAdded)
    counted = agg.sum("quantity") if not times else agg.count()
    added.group_by("item").agg(pieces=counted).view(name)
    return flow


def catch_up(home: Path, flow: Flow) -> None:
    runtime = SparkFree(home)
    driver = runtime.driver(runtime.plan(flow), threaded=False)
    driver.start()
    loop.catch_up(driver, threading.Event(), lambda report: None)
    driver.stop()


def pieces(view: View) -> dict[str, int]:
    return {row["item"]: row["pieces"] for row in view.rows().to_pylist()}


def test_a_view_is_waited_for_by_the_position_that_save_returns(tmp_path: Path) -> None:
    store = EventStore.open("carts", EVENTS, home=tmp_path)
    store.run(Cart, "cart-1", lambda cart: cart.add("A", 2))
    catch_up(tmp_path, projection("pieces"))
    with View(tmp_path / "views", "pieces") as view:
        position = store.run(Cart, "cart-1", lambda cart: cart.add("A", 3))
        assert position is not None
        with pytest.raises(NotYet):
            view.wait_for(position, timeout="10 ms")
        catch_up(tmp_path, projection("pieces"))
        view.wait_for(position)
        assert pieces(view) == {"A": 5}


def test_a_projection_is_built_anew_beside_the_old_one(tmp_path: Path) -> None:
    store = EventStore.open("carts", EVENTS, home=tmp_path)
    for quantity in (2, 3):
        store.run(Cart, "cart-1", lambda cart, quantity=quantity: cart.add("A", quantity))  # type: ignore[misc]
    catch_up(tmp_path, projection("pieces"))
    position = store.run(Cart, "cart-2", lambda cart: cart.add("B"))
    assert position is not None
    catch_up(tmp_path, projection("times", times=True))
    with View(tmp_path / "views", "pieces") as old, View(tmp_path / "views", "times") as new:
        new.wait_for(position)  # the new one has caught up, and readers may change over
        assert (pieces(old), pieces(new)) == ({"A": 5}, {"A": 2, "B": 1})
