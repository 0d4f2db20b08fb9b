"""Time as users write it, and as microseconds inside kernels and codecs.

Event times inside Penstock are integers: microseconds since 1970 in UTC. NEVER and FOREVER stand for -∞ and +∞; they lie
so far inside the 64-bit range that adding or subtracting a duration cannot overflow.
"""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from penstock.errors import BadTime

NEVER = -(2**62)
FOREVER = 2**62

# What a timestamp column may hold: the years 1 to 9999, as Python's datetime and Spark's SQL have them.
FIRST = -62_135_596_800_000_000
LAST = 253_402_300_799_999_999

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WORDS = ((86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"), (1_000_000, "second"), (1_000, "ms"), (1, "us"))
_UNITS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
    "w": 604_800_000_000,
}
_PART = re.compile(r"\s*(?:and\s+|,\s*)?(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII)


class Clock(Protocol):
    """Where the present comes from: the machine, or a test."""

    def now(self) -> int:
        """The present, in microseconds since 1970."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000


class FixedClock:
    """A clock that moves only when it is set."""

    def __init__(self, now: int = 0) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def set(self, now: int) -> None:
        self._now = now


def duration(value: str | timedelta, what: str = "duration") -> timedelta:
    """`"10 minutes"`, `"1 hour 30 minutes"`, `"250 ms"` or a timedelta; never negative."""
    if isinstance(value, timedelta):
        return _not_negative(value, what)
    text, at, total = _words(value, what).lower(), 0, 0.0
    if text.startswith("-"):
        raise BadTime(f"{what} must not be negative: {value!r}", hint=f'leave the sign out: "{text.lstrip("- ")}"')
    while at < len(text):
        part = _PART.match(text, at)
        unit = part and (_UNITS.get(part[2]) or _UNITS.get(part[2].removesuffix("s")))
        if not part or not unit:
            raise BadTime(f"cannot read {what} {value!r}", hint='write it like "10 seconds", "5 minutes" or "1 hour 30 minutes"')
        total, at = total + float(part[1]) * unit, part.end()
    if not text:
        raise BadTime(f"cannot read {what} {value!r}: it is empty", hint='write it like "10 seconds"')
    try:
        return timedelta(microseconds=round(total))
    except OverflowError:
        raise BadTime(f"{what} {value!r} is too long") from None


def signed_duration(value: str | timedelta, what: str = "duration") -> timedelta:
    """The same, also backwards: "-5 minutes"."""
    if isinstance(value, timedelta):
        return value
    text = _words(value, what)
    return -duration(text[1:], what) if text.startswith("-") else duration(text.removeprefix("+"), what)


def _not_negative(value: timedelta, what: str) -> timedelta:
    if value < timedelta(0):
        raise BadTime(
            f"{what} must not be negative: {duration_text(value)!r}", hint=f'leave the sign out: "{duration_text(-value)}"'
        )
    return value


def _words(value: object, what: str) -> str:
    if isinstance(value, str):
        return value.strip()
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9
    hint = f'"{value} seconds"' if number else '"10 seconds", "5 minutes", or a timedelta'
    raise BadTime(f"cannot read {what} {value!r}: a duration is a text with its unit", hint=f"write it like {hint}")


def duration_text(value: timedelta) -> str:
    """A duration as users write it: `90 seconds`, `1 hour 30 minutes`, `-5 minutes`."""
    rest = abs(value) // timedelta(microseconds=1)
    parts = []
    for size, unit in _WORDS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 and len(unit) > 2 else ''}")
    return ("-" if value < timedelta(0) else "") + (" ".join(parts) or "0 seconds")


def micros(value: datetime | timedelta) -> int:
    """A datetime (naive: UTC) or timedelta as microseconds."""
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    return (_aware(value) - _EPOCH) // _MICROSECOND


def _aware(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def moment(us: int) -> datetime:
    """Microseconds as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=us)


def instant(value: str | datetime) -> datetime:
    """An ISO 8601 text or datetime as an aware datetime in UTC; one without a zone is UTC."""
    if isinstance(value, datetime):
        return _aware(value).astimezone(UTC)
    try:
        return _aware(datetime.fromisoformat(value.strip())).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadTime(f"cannot read time {value!r}", hint='write it like "2024-01-15T10:30:00Z"') from None


def text(us: int) -> str:
    """Microseconds as ISO 8601 text that ends in Z; fractions only where there are any."""
    if us <= NEVER:
        return "-∞"
    if us >= FOREVER:
        return "+∞"
    if not FIRST <= us <= LAST:
        return f"{us} µs"
    return moment(us).isoformat().replace("+00:00", "Z")
