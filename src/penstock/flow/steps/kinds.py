"""The kinds of windows: how rows of one key are brought together in time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock import plan
from penstock.core import time
from penstock.errors import BadInput, BadTime
from penstock.plan.origin import origin

Span = str | timedelta


@dataclass(frozen=True)
class Sending:
    """What becomes of late rows, and when results are sent."""

    late: plan.Late
    allowed: timedelta = timedelta()
    emit: plan.Emit = "final"
    early: timedelta | None = None


class Kind(ABC):
    """How rows of one key are brought together in time: a frozen value that says which node runs it."""

    keyed: ClassVar[bool] = True  # key and window_start name a result: it can be sent again, changed
    lasting: ClassVar[bool] = True  # a result stands for a stretch of time, by which a rate is divided
    gives_rows: ClassVar[bool] = False  # a result is a row that came in, and what is told of it

    @abstractmethod
    def planned(self, by: tuple[str, ...], aggregates: tuple[plan.Aggregate, ...], sending: Sending) -> plan.Aggregating:
        """The node. One of another family needs a kernel of that family."""


class Fixed(Kind):
    """Windows that lie fixed in time: where they lie is all that it has to say."""

    @property
    @abstractmethod
    def layout(self) -> plan.Layout: ...

    def planned(self, by: tuple[str, ...], aggregates: tuple[plan.Aggregate, ...], sending: Sending) -> plan.Window:
        return plan.Window(by, self.layout, aggregates, sending.late, sending.allowed, sending.emit, sending.early)


@dataclass(frozen=True, init=False)
class Tumbling(Fixed):
    """Windows of one size, side by side: `Tumbling("1 minute")`. Aligned to 1970 in UTC, moved by `offset`."""

    size: timedelta
    offset: timedelta

    def __init__(self, size: Span, offset: Span | None = None) -> None:
        _set(self, size=_span(size, "window size", 'Tumbling("1 minute")'), offset=_offset(offset))

    @property
    def layout(self) -> plan.Spaced:
        return plan.Spaced(self.size, self.size, self.offset)


@dataclass(frozen=True, init=False)
class Hopping(Fixed):
    """A window every so often: `Hopping("1 minute", every="30 seconds")` overlaps; `Hopping("6 minutes", every="10 minutes")` has
    gaps, and rows in a gap have the fate "outside"."""

    size: timedelta
    every: timedelta
    offset: timedelta

    def __init__(self, size: Span, every: Span, offset: Span | None = None) -> None:
        example = 'Hopping("1 minute", every="30 seconds")'
        _set(self, size=_span(size, "window size", example), every=_span(every, "every", example), offset=_offset(offset))
        if self.size // self.every > _MOST_OVERLAP:
            raise BadTime(
                f"each row would lie in {self.size // self.every:,} windows, and {_MOST_OVERLAP:,} is the most",
                str(origin()),
                hint="take a longer `every`; or Sliding for a result per row",
            )

    @property
    def layout(self) -> plan.Spaced:
        return plan.Spaced(self.size, self.every, self.offset)


@dataclass(frozen=True, init=False)
class Sliding(Kind):
    """For every row the rows of its key within the last so long: `Sliding("1 hour")`.

    Books differ on the word: with `every` it is what we call hopping, and taken as that."""

    keyed: ClassVar[bool] = False
    gives_rows: ClassVar[bool] = True

    size: timedelta

    def __new__(cls, size: Span = "", every: Span | None = None, offset: Span | None = None) -> "Sliding | Hopping":  # type: ignore[misc]
        return object.__new__(cls) if every is None else Hopping(size, every, offset)

    def __init__(self, size: Span, every: None = None, offset: None = None) -> None:
        _set(self, size=_span(size, "window size", 'Sliding("1 hour")'))

    def planned(self, by: tuple[str, ...], aggregates: tuple[plan.Aggregate, ...], sending: Sending) -> plan.Sliding:
        return plan.Sliding(by, self.size, aggregates, sending.late)


@dataclass(frozen=True, init=False)
class Session(Kind):
    """Rows less than `gap` apart: `Session("10 minutes")`. `longest` cuts a session that would be longer."""

    gap: timedelta
    longest: timedelta | None

    def __init__(self, gap: Span, longest: Span | None = None) -> None:
        example = 'Session("10 minutes", longest="8 hours")'
        _set(self, gap=_span(gap, "gap", example), longest=None if longest is None else _span(longest, "longest", example))

    def planned(self, by: tuple[str, ...], aggregates: tuple[plan.Aggregate, ...], sending: Sending) -> plan.Session:
        how = (sending.late, sending.allowed, sending.emit, sending.early)
        return plan.Session(by, self.gap, self.longest, aggregates, *how)


@dataclass(frozen=True)
class Count(Kind):
    """Every so many rows of a key, in the order of their times: `Count(100)`."""

    keyed: ClassVar[bool] = False
    lasting: ClassVar[bool] = False

    rows: int

    def __post_init__(self) -> None:
        if not isinstance(self.rows, int) or isinstance(self.rows, bool) or self.rows < 1:
            raise BadInput(
                f"a count window needs a number of rows, not {self.rows!r}", str(origin()), hint="write it like Count(100)"
            )

    def planned(self, by: tuple[str, ...], aggregates: tuple[plan.Aggregate, ...], sending: Sending) -> plan.Count:
        return plan.Count(by, self.rows, aggregates, sending.late)


@dataclass(frozen=True)
class Calendar(Fixed):
    """Days, weeks (from Monday) or months on the clocks of a time zone: `Calendar("day", "Europe/Berlin")`. A day in which clocks
    change has 23 or 25 hours."""

    unit: Literal["day", "week", "month"]
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if self.unit not in ("day", "week", "month"):
            raise BadInput(f"a calendar has no {self.unit!r}", str(origin()), hint='use "day", "week" or "month"')
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise BadInput(f"there is no time zone {self.zone!r}", str(origin()), hint='name one like "Europe/Berlin"') from None

    @property
    def layout(self) -> plan.Calendar:
        return plan.Calendar(self.unit, self.zone)


_MOST_OVERLAP = 1_000


def _span(value: Span, what: str, example: str) -> timedelta:
    with _where_it_is_written():
        span = time.duration(value, what)
    if not span:
        raise BadTime(f"{what} must be greater than zero", str(origin()), hint=f"write it like {example}")
    return span


def _offset(value: Span | None) -> timedelta:
    with _where_it_is_written():
        return timedelta() if value is None else time.signed_duration(value, "offset")


@contextmanager
def _where_it_is_written() -> Iterator[None]:
    try:
        yield
    except BadTime as error:
        raise BadTime(error.what, str(origin()), hint=error.hint) from None


def _set(window: object, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(window, name, value)
