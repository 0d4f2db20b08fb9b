"""What the demo must come to: computed again from the log alone, row by row in plain Python, without flow, engine or views."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from penstock.core.arrow import values_in
from penstock.core.columns import VALUE
from penstock.log.open import open_log

SECOND = 1_000_000  # times are microseconds
LATENESS, WITHIN = 10 * SECOND, 60 * SECOND
MINUTE, FIVE_MINUTES = 60 * SECOND, 300 * SECOND
Key = tuple[Any, ...]


class Row(NamedTuple):
    place: tuple[int, int]  # partition, offset
    value: dict[str, Any]
    at: int
    watermark: float  # the greatest time of the earlier rows of its partition, less the lateness


@dataclass
class Expected:
    """Per output: how often each row must be there, by key; sums in cents."""

    logged: Counter[Key] = field(default_factory=Counter)
    dead: Counter[Key] = field(default_factory=Counter)
    late: Counter[Key] = field(default_factory=Counter)
    unjoined: Counter[Key] = field(default_factory=Counter)  # too late for the join: topic, partition, offset
    sales: Counter[Key] = field(default_factory=Counter)
    sales_cents: Counter[Key] = field(default_factory=Counter)
    settled: Counter[Key] = field(default_factory=Counter)
    unpaid: Counter[Key] = field(default_factory=Counter)
    takings: Counter[Key] = field(default_factory=Counter)
    takings_cents: Counter[Key] = field(default_factory=Counter)


def expected_of(home: Path) -> Expected:
    """The outcome of the whole log: a window takes a row when its end lies behind the row's watermark, the join when the row's
    time does not lie before it."""
    out = Expected()
    payments = _on_time_payments(home, out)
    for row in rows(home, "orders"):
        order = row.value
        out.logged[order["order_id"],] += 1
        if not isinstance(order["cents"], int):
            out.dead[row.place] += 1
            continue
        start = row.at - row.at % MINUTE
        if start + MINUTE > row.watermark:
            out.sales[order["product"], start] += 1
            out.sales_cents[order["product"], start] += order["cents"]
        else:
            out.late[order["order_id"],] += 1
        if row.at >= row.watermark:
            _settle(out, row, payments.get(order["order_id"], []))
        else:
            out.unjoined["orders", *row.place] += 1
    return out


def _on_time_payments(home: Path, out: Expected) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows(home, "payments"):
        if row.at >= row.watermark:
            found[row.value["order_id"]].append(row)
        else:
            out.unjoined["payments", *row.place] += 1
    return found


def _settle(out: Expected, order: Row, payments: list[Row]) -> None:
    partners = [p for p in payments if order.at <= p.at <= order.at + WITHIN]
    if not partners:
        out.unpaid[order.value["order_id"],] += 1
    for payment in partners:
        window = (order.value["product"], payment.at - payment.at % FIVE_MINUTES)
        out.settled[order.value["order_id"], payment.at] += 1
        out.takings[window] += 1
        out.takings_cents[window] += payment.value["paid"]


def rows(home: Path, topic: str) -> Iterator[Row]:
    """The records of a raw topic with their watermarks, partition by partition."""
    source = open_log(home).topic(topic)
    for partition in source.ends():
        greatest = float("-inf")
        for chunk in source.read(partition):
            for number, raw in enumerate(values_in(chunk.rows.column(VALUE), bytes)):
                value = orjson.loads(raw)
                at = round(datetime.fromisoformat(value["at"]).timestamp() * SECOND)
                yield Row((partition, chunk.frame.base + number), value, at, greatest - LATENESS)
                greatest = max(greatest, at)
