"""The kinds of windows: how rows of one key are brought together in time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock import plan
from penstock.core import time
from penstock.errors import BadInput, BadTime
from penstock.flow.origin import origin

Span = str | timedelta


@dataclass(frozen=True, init=False)
class Tumbling:
    """Windows of one size, side by side: `Tumbling("1 minute")`. Aligned to 1970 in UTC, moved by `offset`."""

    size: timedelta
    offset: timedelta

    def __init__(self, size: Span, offset: Span | None = None) -> None:
        _set(self, size=_span(size, "window size", 'Tumbling("1 minute")'), offset=_offset(offset))

    @property
    def layout(self) -> plan.Spaced:
        return plan.Spaced(self.size, self.size, self.offset)


@dataclass(frozen=True, init=False)
class Hopping:
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
class Sliding:
    """For every row the rows of its key within the last so long: `Sliding("1 hour")`.

    Books differ on the word: with `every` it is what we call hopping, and taken as that."""

    size: timedelta

    def __new__(cls, size: Span = "", every: Span | None = None, offset: Span | None = None) -> "Sliding | Hopping":  # type: ignore[misc]
        return object.__new__(cls) if every is None else Hopping(size, every, offset)

    def __init__(self, size: Span, every: None = None, offset: None = None) -> None:
        _set(self, size=_span(size, "window size", 'Sliding("1 hour")'))


@dataclass(frozen=True, init=False)
class Session:
    """Rows less than `gap` apart: `Session("10 minutes")`. `longest` cuts a session that would be longer."""

    gap: timedelta
    longest: timedelta | None

    def __init__(self, gap: Span, longest: Span | None = None) -> None:
        example = 'Session("10 minutes", longest="8 hours")'
        _set(self, gap=_span(gap, "gap", example), longest=None if longest is None else _span(longest, "longest", example))


@dataclass(frozen=True)
class Count:
    """Every so many rows of a key, in the order of their times: `Count(100)`."""

    rows: int

    def __post_init__(self) -> None:
        if not isinstance(self.rows, int) or isinstance(self.rows, bool) or self.rows < 1:
            raise BadInput(
                f"a count window needs a number of rows, not {self.rows!r}", str(origin()), hint="write it like Count(100)"
            )


@dataclass(frozen=True)
class Calendar:
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


Kind = Tumbling | Hopping | Sliding | Session | Count | Calendar
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
