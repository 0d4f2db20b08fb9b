"""O1 is joined, O2 is unpaid, O3 is a payment without an order."""

import runpy
from pathlib import Path
from typing import Any

import orjson
import pytest

HERE = Path(__file__).parent

EXPECTED = [
    ("OrderID1", "ProductA", 20, 20, "Paid"),
    ("OrderID2", "ProductB", 15, None, "Unpaid"),
    ("OrderID3", None, None, 30, "No order"),
]


def flow() -> Any:
    return runpy.run_path(str(HERE / "flow.py"))["flow"]


def data(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (HERE / f"{name}.jsonl").read_bytes().splitlines()]


def shown(test: Any) -> list[tuple[Any, ...]]:
    return [(r["order_id"], r["product"], r["amount"], r["paid"], r["status"]) for r in test.rows("order_status")]


@pytest.mark.parametrize("first", ["orders", "payments"])
def test_every_order_and_every_payment_has_its_status(first: str) -> None:
    second = "payments" if first == "orders" else "orders"
    with flow().test() as t:
        t.send(first, *data(first))
        t.epoch()
        t.send(second, *data(second))
        t.end()
        assert sorted(shown(t)) == EXPECTED


def test_nobody_is_called_unpaid_while_a_payment_can_still_come() -> None:
    with flow().test() as t:
        t.send("orders", *data("orders"))
        t.send("payments", *data("payments"))
        t.catch_up()
        assert [row[0] for row in shown(t)] == ["OrderID1"]
        waiting = t.state("both")
        assert sorted(waiting["order_id"].to_pylist()) == ["OrderID2", "OrderID3"]
        late_enough = "2024-01-15T10:31:00Z"  # half an hour and more after OrderID2, and less after the payment of OrderID3
        t.mark("orders", late_enough)
        t.mark("payments", late_enough)
        t.catch_up()
        assert [row[0] for row in shown(t)] == ["OrderID1", "OrderID2"]


@pytest.mark.parametrize("point", ["after_run", "before_decide", "after_decide"])
def test_the_same_comes_out_when_the_engine_dies(point: str) -> None:
    with flow().test() as t:
        t.send("orders", *data("orders"))
        t.crash(point)
        t.send("payments", *data("payments"))
        t.end()
        assert sorted(shown(t)) == EXPECTED
