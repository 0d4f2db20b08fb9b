"""The customers of the demo: seeded, out of order within a bound, a few late, a few unreadable."""

from datetime import datetime, timedelta

import orjson

from penstock.demo.shop import DISORDER, LATE_BY, OPENING, PAID_WITHIN, Customers

RATE = 100.0


def arrivals(seconds: float, step: float = 2.4) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    customers = Customers(RATE)
    orders: list[bytes] = []
    payments: list[bytes] = []
    for tick in range(1, round(seconds / step) + 1):
        new = customers.until(tick * step)
        orders += new.orders
        payments += new.payments
    return [orjson.loads(line) for line in orders], [orjson.loads(line) for line in payments + customers.rest().payments]


def at(row: dict[str, object]) -> datetime:
    return datetime.fromisoformat(str(row["at"]))


def overtaken(rows: list[dict[str, object]]) -> list[timedelta]:
    """How far each row lies behind the newest one before it."""
    newest, out = OPENING, []
    for row in rows:
        out.append(newest - at(row))
        newest = max(newest, at(row))
    return out


def test_orders_are_numbered_without_a_gap_whatever_the_steps() -> None:
    orders, _ = arrivals(240)
    assert [row["order_id"] for row in orders] == [f"o{n:07d}" for n in range(24_000)]
    assert orders == arrivals(240, step=60)[0]


def test_rows_are_overtaken_by_less_than_the_lateness_except_the_late_ones() -> None:
    orders, payments = arrivals(240)
    behind = overtaken(orders)
    late = [b for b in behind if b > timedelta(seconds=DISORDER)]
    assert any(b > timedelta(seconds=1) for b in behind)
    assert late
    assert min(late) > timedelta(seconds=LATE_BY[0] - DISORDER)
    assert max(overtaken(payments)) <= timedelta(seconds=DISORDER + 0.1)


def test_most_orders_are_paid_once_and_in_time() -> None:
    orders, payments = arrivals(240)
    ordered = {row["order_id"]: row for row in orders}
    paid = [row["order_id"] for row in payments]
    assert len(paid) == len(set(paid))
    assert 0.8 < len(paid) / len(orders) < 0.9
    waits = [at(row) - at(ordered[row["order_id"]]) for row in payments]
    assert timedelta(0) <= min(waits) <= max(waits) <= timedelta(seconds=PAID_WITHIN + 0.1)


def test_a_few_orders_cannot_be_read_and_nobody_pays_for_them() -> None:
    orders, payments = arrivals(240)
    broken = {row["order_id"] for row in orders if not isinstance(row["cents"], int)}
    assert 1 <= len(broken) <= 20
    assert not broken & {row["order_id"] for row in payments}
