"""The shop under test: no broker, no JVM, no waiting."""

import runpy
from pathlib import Path
from typing import Any

import orjson
import pytest

HERE = Path(__file__).parent


def flow(name: str) -> Any:
    return runpy.run_path(str(HERE / f"{name}.py"))["flow"]


def data(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (HERE / f"{name}.jsonl").read_bytes().splitlines()]


def order(at: str) -> dict[str, Any]:
    return {"order_id": at, "product": "ProductA", "amount": 10, "at": f"2024-01-15T{at}"}


def test_an_order_is_paid_or_unpaid_and_a_payment_without_an_order_is_nothing() -> None:
    with flow("flow").test() as t:
        t.send("orders", *data("orders"))
        t.send("payments", *data("payments"))
        t.end()
        found = [(row["order_id"], row["amount"], row["paid"], row["status"]) for row in t.rows("order_status")]
        assert found == [("OrderID1", 20, 20, "Paid"), ("OrderID2", 15, None, "Unpaid")]
        assert [row["order_id"] for row in t.rows("settled_orders")] == ["OrderID1"]


def test_orders_are_counted_in_the_minute_they_were_made() -> None:
    with flow("flow").test() as t:
        t.send("orders", *(order(at) for at in ("10:00:15", "10:00:45", "10:01:10", "10:01:50", "10:02:20")))
        t.end()
        counted = [(f"{row['window_start']:%H:%M}", row["orders"]) for row in t.rows("sales_per_minute")]
        assert counted == [("10:00", 2), ("10:01", 2), ("10:02", 1)]


def test_an_order_that_comes_after_its_minute_is_complete_can_be_looked_at() -> None:
    with flow("flow").test() as t:
        t.send("orders", order("10:00:15"), order("10:02:20"), order("10:00:30"))
        t.end()
        assert [row["order_id"] for row in t.rows("late_orders")] == ["10:00:30"]
        assert [row["orders"] for row in t.rows("sales_per_minute")] == [1, 1]


@pytest.mark.parametrize("point", ["after_run", "before_decide", "after_decide", "after_sweep"])
def test_nothing_is_lost_or_doubled_when_the_engine_dies(point: str) -> None:
    with flow("flow").test() as t:
        t.send("orders", order("10:00:15"), order("10:00:45"))
        t.crash(point)
        t.send("orders", order("10:01:10"))
        t.end()
        assert [row["orders"] for row in t.rows("sales_per_minute")] == [2, 1]
        assert len(t.rows("order_status")) == 3


def test_the_second_flow_sums_up_what_the_first_one_settled() -> None:
    with flow("report").test() as t:
        t.send("settled_orders", {"order_id": "a", "product": "ProductA", "paid": 20}, at="2024-01-15T10:04:59")
        t.send("settled_orders", {"order_id": "b", "product": "ProductA", "paid": 5}, at="2024-01-15T10:05:00")
        t.end()
        assert [(f"{row['window_start']:%H:%M}", row["paid"]) for row in t.rows("takings")] == [("10:00", 20), ("10:05", 5)]
