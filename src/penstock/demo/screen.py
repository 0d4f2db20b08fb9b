"""The demo on a terminal: live tables, and a log of what happens; or, without one, plain lines on standard error."""

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import NamedTuple, Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli.table import Column, lay_out
from penstock.core.time import FOREVER, NEVER, moment
from penstock.demo.watch import Sight, Window

_EVERY = 5.0  # seconds between two lines of progress without a terminal
_EVENTS = 8  # of what happens
_NARROW = 80  # columns below which a line may be broken in two
_FRAME = 4  # what a frame takes of the width
_NOTHING = "·"
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
        self._events: deque[Text] = deque(maxlen=_EVENTS)
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
        shown = max(3, min(8, self._console.height - 21))
        boxes = [
            Box("sales per minute", f"{len(sight.sales)} minutes closed", _windows(sight.sales, shown, "minute")),
            Box("unpaid orders", f"{sight.unpaid:,} orders", _unpaid(sight, shown)),
            Box("takings per 5 min", "by the second flow", _windows(sight.takings, shown, "from")),
        ]
        return Group(
            Text(self._title, style="bold"), _side_by_side(boxes, self._console.width), _engine(sight, doing, sold), self._log()
        )

    def _log(self) -> RenderableType:
        room = _EVENTS if self._console.width >= _NARROW else _EVENTS - 4
        lines = [*list(self._events)[-room:], *[Text("")] * (room - len(self._events))]
        return Panel(Group(*lines), title="what happens", title_align="left", box=box.ROUNDED, border_style="dim")


class Box(NamedTuple):
    """A table in a frame."""

    title: str
    note: str
    columns: list[Column]

    @property
    def least(self) -> int:
        """The width with the columns that are always shown."""
        return self._width([column for column in self.columns if column.key])

    @property
    def wanted(self) -> int:
        return self._width(self.columns)

    def _width(self, columns: list[Column]) -> int:
        found = lay_out(columns, None)
        assert found
        return max(len(found.header[-1]), len(self.title), len(self.note)) + _FRAME

    def framed(self, width: int) -> Panel:
        layout = lay_out(self.columns, width - _FRAME, beside=0) or lay_out(self.columns, None)
        assert layout
        *names, _ = layout.header
        lines = [Text(line, no_wrap=True, style=style) for line, style in _styled(names, layout.rows)]
        return Panel(
            *(Group(*lines), box.ROUNDED),
            title=self.title,
            title_align="left",
            subtitle=self.note,
            subtitle_align="right",
            border_style="cyan",
            width=width,
        )


def _styled(names: Iterable[str], rows: Iterable[str]) -> Iterator[tuple[str, str]]:
    yield from ((line, "dim") for line in names)
    yield from ((line, "dim" if line.strip() == _NOTHING else "") for line in rows)


def _side_by_side(boxes: list[Box], width: int) -> RenderableType:
    """The boxes in a row, or as many of them as fit with all their numbers."""
    room = width - sum(found.least for found in boxes)
    if room < 0 and len(boxes) > 1:
        return Group(_side_by_side(boxes[:-1], width), Text(f"no room for {boxes[-1].title}", style="dim"))
    widths = []
    for found in boxes:
        widths.append(found.wanted if found.wanted - found.least <= room else found.least)
        room -= widths[-1] - found.least
    widths[-1] += max(0, room)
    grid = Table.grid(padding=0)
    grid.add_row(*(found.framed(width) for found, width in zip(boxes, widths, strict=True)))
    return grid


def _windows(windows: list[Window], shown: int, unit: str) -> list[Column]:
    last, empty = windows[-shown:], max(0, shown - len(windows))
    return [
        Column(unit, [*(f"{w.start:%H:%M}" for w in last), *[_NOTHING] * empty], whole=True, key=True),
        _numbers("orders", [f"{w.orders.total():,}" for w in last], empty),
        _numbers("amount", [f"{w.cents.total() / 100:,.0f}" for w in last], empty),
        Column("favourite", [*(w.orders.most_common(1)[0][0] for w in last), *[""] * empty]),
    ]


def _unpaid(sight: Sight, shown: int) -> list[Column]:
    rows = list(sight.last_unpaid)[-shown:]
    empty = shown - len(rows)
    return [
        Column("order", [*(str(row["order_id"]) for row in rows), *[_NOTHING] * empty], whole=True, key=True),
        Column("at", [*(f"{row['at']:%H:%M:%S}" for row in rows), *[""] * empty], whole=True),
        _numbers("amount", [money(row["cents"]) for row in rows], empty),
    ]


def _numbers(name: str, cells: list[str], empty: int) -> Column:
    return Column(name, [*cells, *[""] * empty], right=True, whole=True, key=True)


def _engine(sight: Sight, doing: str, sold: int) -> Panel:
    style = "bold red" if doing.startswith("killed") else "bold green" if doing in ("running", "done") else "bold yellow"
    line = Text.assemble((doing, style))
    if sight.epoch >= 0:
        rate = f" · {sight.rate:,.0f} rows/s" if sight.rate and doing == "running" else ""
        line.append(f" · epoch {sight.epoch}{rate} · watermark {_time(sight.watermark)}")
    if sight.epoch >= 0 and sight.watermark < FOREVER:
        line.append(f", held back by {sight.held_back_by}", style="dim")
    more = Text(f"{sold:,} orders sent · {sight.rows:,} rows read · {sight.late:,} late · {sight.dead:,} unreadable")
    return Panel(Group(line, more), title="engine", title_align="left", box=box.ROUNDED, border_style="dim")


def _time(us: int) -> str:
    return "none yet" if us <= NEVER else "+∞: all is closed" if us >= FOREVER else f"{moment(us):%H:%M:%S}"


def money(cents: int) -> str:
    return f"{cents / 100:,.2f}"
