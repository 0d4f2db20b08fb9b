"""What can be seen of the demo from outside while it runs: decisions and views, read from the home as anybody could.

Of the engine only the decisions are imported: the rest of it takes a second to load, which its start has better use for.
"""

from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.core.time import NEVER
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.errors import PenstockError
from penstock.storage.local import LocalStorage
from penstock.views.view import View

UNPAID_SHOWN = 8
_RATE_OVER = 4_000_000  # microseconds


@dataclass
class Window:
    """The sales of all products in one window."""

    start: datetime
    orders: Counter[str] = field(default_factory=Counter)
    cents: Counter[str] = field(default_factory=Counter)


@dataclass
class Sight:
    """What was seen last. The views go on being there while the engine is not."""

    epoch: int = -1  # decided
    delivered: int = -1  # of sales_per_minute
    report_epoch: int = -1
    rows: int = 0  # orders and payments read
    rate: float = 0.0
    watermark: int = NEVER
    held_back_by: str = "no input"
    late: int = 0
    dead: int = 0
    sales: list[Window] = field(default_factory=list)
    takings: list[Window] = field(default_factory=list)
    unpaid: int = 0
    last_unpaid: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=UNPAID_SHOWN))


class Watch:
    """Looks when told to; what is not there yet is left as it was."""

    def __init__(self, home: Path) -> None:
        self.home, self.sight = home, Sight()
        self._decisions = Decisions(LocalStorage(str(home / "flows" / "shop")), "shop")
        self._views: dict[str, View] = {}
        self._unpaid_since = -1
        self._read: deque[tuple[int, int]] = deque()  # (clock, rows) of the last epochs

    def look(self) -> Sight:
        for part in (self._look_at_decisions, self._look_at_sales, self._look_at_unpaid, self._look_at_takings):
            with suppress(PenstockError):  # not there yet, or just being made
                part()
        return self.sight

    def close(self) -> None:
        for view in self._views.values():
            view.close()

    def _look_at_decisions(self) -> None:
        last = self._decisions.last()
        if last is None or last.epoch == self.sight.epoch:
            return
        sight = self.sight
        sight.epoch, sight.rows = last.epoch, _rows_read(last)
        sight.watermark, sight.held_back_by = _least(last)
        sight.late = last.fates.get("sales_per_minute", {}).get("diverted", 0)
        sight.dead = sum(fates.get("dead", 0) for fates in last.fates.values())
        sight.rate = self._rate(last.clock, sight.rows)

    def _rate(self, clock: int, rows: int) -> float:
        self._read.append((clock, rows))
        while len(self._read) > 2 and clock - self._read[0][0] > _RATE_OVER:
            self._read.popleft()
        since, before = self._read[0]
        return (rows - before) / ((clock - since) / 1e6) if clock > since else 0.0

    def _look_at_sales(self) -> None:
        view = self._view("sales_per_minute")
        self.sight.sales, self.sight.delivered = _windows(view), view.epoch

    def _look_at_takings(self) -> None:
        view = self._view("takings")
        self.sight.takings, self.sight.report_epoch = _windows(view), view.epoch

    def _look_at_unpaid(self) -> None:
        view = self._view("unpaid_orders")
        new = view.changes(self._unpaid_since)
        self._unpaid_since = new.epoch
        self.sight.unpaid += new.rows.num_rows
        latest = new.rows.sort_by("at").slice(max(0, new.rows.num_rows - UNPAID_SHOWN))
        self.sight.last_unpaid.extend(latest.to_pylist())

    def _view(self, name: str) -> View:
        if name not in self._views:
            self._views[name] = View(self.home / "views", name)
        return self._views[name]


def _rows_read(last: Decision) -> int:
    return sum(partition.next for source in last.sources.values() for partition in source.partitions.values())


def _least(last: Decision) -> tuple[int, str]:
    """The least watermark, and the partition that has it."""
    marks = [(p.watermark, f"{name}/{n}") for name, source in last.sources.items() for n, p in source.partitions.items()]
    return min(marks, default=(NEVER, "no input"))


def _windows(view: View) -> list[Window]:
    found: dict[datetime, Window] = {}
    for row in view.rows().to_pylist():
        window = found.setdefault(row["window_start"], Window(row["window_start"]))
        window.orders[row["product"]] += row["orders"]
        window.cents[row["product"]] += row["cents"]
    return [found[start] for start in sorted(found)]
