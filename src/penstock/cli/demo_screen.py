"""The demo on a terminal: live tables, and a log of what happens; or, without one, plain lines on standard error."""

import sys
import time
from collections import deque
from types import TracebackType
from typing import Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli.demo_watch import Sight, Window
from penstock.engine.progress import clock_text

_EVERY = 5.0  # seconds between two lines of progress without a terminal
_STYLES = {"bad": "bold red", "good": "green", "plain": ""}


class Stage(Protocol):
    """Who shows the demo."""

    def __enter__(self) -> "Stage": ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def tell(self, what: str, mood: str = "plain") -> None:
        """Something happened; mood: plain, good or bad."""
        ...

    def show(self, sight: Sight, doing: str, sold: int) -> None:
        """Called several times a second. doing: the state of the engine in a few words; sold: orders sent so far."""
        ...


class Lines:
    """Plain lines on standard error."""

    def __init__(self) -> None:
        self._started = self._last = time.monotonic()

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def tell(self, what: str, mood: str = "plain") -> None:
        print(f"{time.monotonic() - self._started:5.1f} s  {what}", file=sys.stderr, flush=True)

    def show(self, sight: Sight, doing: str, sold: int) -> None:
        if time.monotonic() - self._last < _EVERY:
            return
        self._last = time.monotonic()
        self.tell(
            f"{doing} · {sold:,} orders sent · epoch {sight.epoch} · {sight.rows:,} rows read · {len(sight.sales)} minutes closed"
            f" · {sight.unpaid:,} unpaid · {sight.late} late · {sight.dead} dead"
        )


class Screen:
    """Tables that are drawn anew in place; the last ones stay on the terminal."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._started = time.monotonic()
        self._events: deque[Text] = deque(maxlen=9)
        self._state: tuple[Sight, str, int] = (Sight(), "", 0)
        self._live = Live(console=console, get_renderable=self._drawn, refresh_per_second=5, vertical_overflow="crop")

    def __enter__(self) -> "Screen":
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.__exit__(kind, error, trace)

    def tell(self, what: str, mood: str = "plain") -> None:
        at = Text(f"{time.monotonic() - self._started:5.1f} s  ", style="dim")
        self._events.append(at.append(what, style=_STYLES[mood] or "default"))

    def show(self, sight: Sight, doing: str, sold: int) -> None:
        self._state = (sight, doing, sold)

    def _drawn(self) -> RenderableType:
        sight, doing, sold = self._state
        shown = max(3, min(8, self._console.height - 26))
        tables = Table.grid(expand=True, padding=(0, 1))
        for ratio in (5, 4, 4):
            tables.add_column(ratio=ratio)
        tables.add_row(
            _framed("sales per minute", _windows(sight.sales, shown, "minute"), f"{len(sight.sales)} minutes closed"),
            _framed("unpaid after a minute", _unpaid(sight, shown), f"{sight.unpaid:,} orders"),
            _framed("takings, by the second flow", _windows(sight.takings, shown, "5 min from"), "reads topic settled_orders"),
        )
        return Group(Text(self._title, style="bold"), tables, _engine(sight, doing, sold), self._log())

    def _log(self) -> RenderableType:
        lines = [*self._events, *[Text("")] * ((self._events.maxlen or 0) - len(self._events))]
        return Panel(Group(*lines), title="what happens", title_align="left", box=box.ROUNDED, border_style="dim")


def _framed(title: str, table: RenderableType, note: str) -> Panel:
    return Panel(
        table, title=title, title_align="left", subtitle=note, subtitle_align="right", box=box.ROUNDED, border_style="cyan"
    )


def _windows(windows: list[Window], shown: int, unit: str) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column(unit)
    for name in ("orders", "amount"):
        table.add_column(name, justify="right")
    table.add_column("best", no_wrap=True)
    for window in windows[-shown:]:
        best = window.cents.most_common(1)[0][0]
        table.add_row(f"{window.start:%H:%M}", f"{window.orders.total():,}", money(window.cents.total()), best)
    for _ in range(shown - len(windows)):
        table.add_row("·", "", "", "", style="dim")
    return table


def _unpaid(sight: Sight, shown: int) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("order")
    table.add_column("ordered")
    table.add_column("amount", justify="right")
    rows = list(sight.last_unpaid)[-shown:]
    for row in rows:
        table.add_row(row["order_id"], f"{row['at']:%H:%M:%S}", money(row["cents"]))
    for _ in range(shown - len(rows)):
        table.add_row("·", "", "", style="dim")
    return table


def _engine(sight: Sight, doing: str, sold: int) -> Panel:
    style = "bold red" if doing.startswith("killed") else "bold green" if doing == "running" else "bold yellow"
    line = Text.assemble((doing, style))
    if sight.epoch >= 0:
        line.append(f" · epoch {sight.epoch} · {sight.rate:,.0f} rows/s · watermark {clock_text(sight.watermark)}")
        line.append(f", held back by {sight.held_back_by}", style="dim")
    more = Text(f"{sold:,} orders sent · {sight.rows:,} rows read · {sight.late:,} late · {sight.dead:,} unreadable")
    return Panel(Group(line, more), title="engine", title_align="left", box=box.ROUNDED, border_style="dim")


def money(cents: int) -> str:
    return f"{cents / 100:,.2f}"
