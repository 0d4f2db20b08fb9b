"""The demo's books: what the log holds against what came out, row by row; and the verdict."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.demo.oracle import Key, expected_of
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.run.progress import balance
from penstock.errors import NotFound
from penstock.log.open import open_log
from penstock.views.view import View


@dataclass(frozen=True)
class Entry:
    """One line of the books."""

    what: str
    expected: int
    found: int
    lost: int
    doubled: int

    @classmethod
    def of(cls, what: str, expected: Counter[Key], found: Counter[Key]) -> "Entry":
        """Compared key by key: a lost row and a doubled one do not make up for each other."""
        lost, doubled = (expected - found).total(), (found - expected).total()
        return cls(what, expected.total(), found.total(), lost, doubled)

    @property
    def balanced(self) -> bool:
        return self.lost == self.doubled == 0


@dataclass(frozen=True)
class Books:
    entries: tuple[Entry, ...]  # in rows
    sums: tuple[Entry, ...]  # in cents
    unbalanced: tuple[str, ...]  # steps whose fates do not add up
    produced: int  # orders that the log has acknowledged
    counted: int  # orders in sales_per_minute
    late: int
    dead: int
    paid: int
    unpaid: int

    @property
    def lost(self) -> int:
        return sum(entry.lost for entry in self.entries)

    @property
    def doubled(self) -> int:
        return sum(entry.doubled for entry in self.entries)

    @property
    def ok(self) -> bool:
        whole = self.produced == self.counted + self.late + self.dead
        return whole and not self.unbalanced and all(entry.balanced for entry in (*self.entries, *self.sums))


def close_books(home: Path, orders: int) -> Books:
    """Reads log, topics and views of a home whose flows have ended. orders: how many were acknowledged when they were sent."""
    want = expected_of(home)
    sent = Counter((f"o{n:07d}",) for n in range(orders))
    minutes, takings = _view(home, "sales_per_minute"), _view(home, "takings")
    sales = _by_window(minutes, "orders")
    late, unpaid = _keys(_view(home, "late_orders"), "order_id"), _keys(_view(home, "unpaid_orders"), "order_id")
    dead, unjoined = _topic(home, "shop.dead", "partition", "offset"), _topic(home, "shop.late", "topic", "partition", "offset")
    paid = _topic(home, "settled_orders", "order_id", "payments_at")
    entries = (
        Entry.of("orders sent, in the log", sent, want.logged),
        Entry.of("orders in sales_per_minute", want.sales, sales),
        Entry.of("late orders in late_orders", want.late, late),
        Entry.of("unreadable orders in shop.dead", want.dead, dead),
        Entry.of("paid orders in settled_orders", want.settled, paid),
        Entry.of("unpaid orders in unpaid_orders", want.unpaid, unpaid),
        Entry.of("not joined: late, in shop.late", want.unjoined, unjoined),
        Entry.of("paid orders, second flow", want.takings, _by_window(takings, "orders")),
    )
    sums = (
        Entry.of("sales, first flow", want.sales_cents, _by_window(minutes, "cents")),
        Entry.of("takings, second flow", want.takings_cents, _by_window(takings, "cents")),
    )
    totals = [found.total() for found in (sales, late, dead, paid, unpaid)]
    return Books(entries, sums, _unbalanced(home), orders, *totals)


def _unbalanced(home: Path) -> tuple[str, ...]:
    """Steps of both flows whose rows in are not the sum of their fates."""
    found = []
    for flow in ("shop", "report"):
        last = decisions_of(home, flow).last()
        for step, rows, known in balance(last.fates) if last else ():
            if rows != known:
                found.append(f"{flow}, step {step}: {rows:,} rows in, {known:,} accounted for")
    return tuple(found)


def _by_window(table: pa.Table, column: str) -> Counter[Key]:
    sums: Counter[Key] = Counter()
    for product, start, value in zip(*_columns(table, "product", "window_start", column), strict=True):
        sums[product, start] += value
    return sums


def _keys(table: pa.Table, *names: str) -> Counter[Key]:
    return Counter(zip(*_columns(table, *names), strict=True))


def _columns(table: pa.Table, *names: str) -> list[list[object]]:
    """Values as Python has them; times as microseconds."""
    columns = [table.column(name) for name in names]
    return [(c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c).to_pylist() for c in columns]


def _view(home: Path, name: str) -> pa.Table:
    with View(home / "views", name) as view:
        return view.rows()


def _topic(home: Path, name: str, *columns: str) -> Counter[Key]:
    """The rows of a topic; none if it was never made: a flow makes its topics of late and dead rows when it needs them."""
    try:
        topic = open_log(home).topic(name)
    except NotFound:
        return Counter()
    found: Counter[Key] = Counter()
    for partition in topic.ends():
        for chunk in topic.read(partition):
            found.update(_keys(pa.Table.from_batches([chunk.rows]), *columns))
    return found
