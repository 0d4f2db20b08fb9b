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
from penstock.core.time import FOREVER, NEVER, moment

_EVERY = 5.0  # seconds between two lines of progress without a terminal
_WIDE = 110  # columns of a terminal with room for a little more
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

    def __init__(self, started: float) -> None:
        self._started = started
        self._last = time.monotonic()

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

    def __init__(self, console: Console, title: str, started: float) -> None:
        self._console, self._title, self._started = console, title, started
        self._events: deque[Text] = deque(maxlen=8)
        self._state: tuple[Sight, str, int] = (Sight(), "", 0)
        self._live = Live(console=console, get_renderable=self._drawn, refresh_per_second=5, vertical_overflow="crop")

    def __enter__(self) -> "Screen":
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.__exit__(kind, error, trace)

    def tell(self, what: str, mood: str = "plain") -> None:
        at = Text(f"{time.monotonic() - self._started:5.1f} s  ", style="dim", no_wrap=True, overflow="ellipsis")
        self._events.append(at.append(what, style=_STYLES[mood] or "default"))

    def show(self, sight: Sight, doing: str, sold: int) -> None:
        self._state = (sight, doing, sold)

    def _drawn(self) -> RenderableType:
        sight, doing, sold = self._state
        shown, wide = max(3, min(8, self._console.height - 20)), self._console.width >= _WIDE
        tables = Table.grid(expand=True, padding=(0, 1))
        for ratio in (5, 4, 5):
            tables.add_column(ratio=ratio)
        tables.add_row(
            _framed("sales per minute", _windows(sight.sales, shown, "minute", wide), f"{len(sight.sales)} minutes closed"),
            _framed("unpaid orders", _unpaid(sight, shown, wide), f"{sight.unpaid:,} orders"),
            _framed("takings per 5 min", _windows(sight.takings, shown, "from", wide), "by the second flow"),
        )
        return Group(Text(self._title, style="bold"), tables, _engine(sight, doing, sold), self._log())

    def _log(self) -> RenderableType:
        lines = [*self._events, *[Text("")] * ((self._events.maxlen or 0) - len(self._events))]
        return Panel(Group(*lines), title="what happens", title_align="left", box=box.ROUNDED, border_style="dim")


def _framed(title: str, table: RenderableType, note: str) -> Panel:
    return Panel(
        table, title=title, title_align="left", subtitle=note, subtitle_align="right", box=box.ROUNDED, border_style="cyan"
    )


def _windows(windows: list[Window], shown: int, unit: str, best: bool) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column(unit)
    for name in ("orders", "amount"):
        table.add_column(name, justify="right")
    if best:
        table.add_column("most ordered", no_wrap=True)
    for window in windows[-shown:]:
        cells = [f"{window.start:%H:%M}", f"{window.orders.total():,}", f"{window.cents.total() / 100:,.0f}"]
        table.add_row(*cells, *([window.orders.most_common(1)[0][0]] if best else []))
    for _ in range(shown - len(windows)):
        table.add_row("·", style="dim")
    return table


def _unpaid(sight: Sight, shown: int, wide: bool) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("order")
    if wide:
        table.add_column("ordered at")
    table.add_column("amount", justify="right")
    rows = list(sight.last_unpaid)[-shown:]
    for row in rows:
        table.add_row(row["order_id"], *([f"{row['at']:%H:%M:%S}"] if wide else []), money(row["cents"]))
    for _ in range(shown - len(rows)):
        table.add_row("·", style="dim")
    return table


def _engine(sight: Sight, doing: str, sold: int) -> Panel:
    style = "bold red" if doing.startswith("killed") else "bold green" if doing in ("running", "done") else "bold yellow"
    line = Text.assemble((doing, style), no_wrap=True, overflow="ellipsis")
    if sight.epoch >= 0:
        rate = f" · {sight.rate:,.0f} rows/s" if sight.rate and doing == "running" else ""
        line.append(f" · epoch {sight.epoch}{rate} · watermark {_time(sight.watermark)}")
    if sight.epoch >= 0 and sight.watermark < FOREVER:
        line.append(f", held back by {sight.held_back_by}", style="dim")
    more = Text(f"{sold:,} orders sent · {sight.rows:,} rows read · {sight.late:,} late · {sight.dead:,} unreadable")
    more.no_wrap = True
    return Panel(Group(line, more), title="engine", title_align="left", box=box.ROUNDED, border_style="dim")


def _time(us: int) -> str:
    return "none yet" if us <= NEVER else "+∞: all is closed" if us >= FOREVER else f"{moment(us):%H:%M:%S}"


def money(cents: int) -> str:
    return f"{cents / 100:,.2f}"
