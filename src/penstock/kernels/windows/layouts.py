"""Where fixed windows lie: which pane a time falls into, which windows a pane belongs to, where they end.

A pane is a stretch of time within which all rows belong to the same windows. Rows are added up per pane; a window is the sum of
its panes, so that overlap costs nothing per row.
"""

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


class Layout(Protocol):
    """Windows by their start."""

    single: bool  # every time lies in one window at most: a pane is a window

    def panes(self, times: Longs) -> Longs:
        """The start of the pane of each time."""
        ...

    def outside(self, times: Longs) -> Mask | None:
        """Times that lie in no window; None if there are none such anywhere."""
        ...

    def windows(self, panes: Longs) -> tuple[Longs, Longs]:
        """Every window of every pane, as (number of the pane in `panes`, start of the window)."""
        ...

    def ends(self, starts: Longs) -> Longs:
        """Where the windows end that begin there."""
        ...

    def last_end(self, pane: int) -> int:
        """Where the last window of a pane ends."""
        ...


class Spaced:
    """Windows of `size` every `every`, aligned to 1970 + offset."""

    def __init__(self, size: int, every: int, offset: int = 0) -> None:
        self.size, self.every, self.offset = size, every, offset % every
        self.single = size <= every
        self._pane = every if self.single or size % every == 0 else math.gcd(size, every)
        self._most = -(-size // every)

    def panes(self, times: Longs) -> Longs:
        if not self.offset:
            return times // np.int64(self._pane) * np.int64(self._pane)
        return (times - self.offset) // np.int64(self._pane) * np.int64(self._pane) + self.offset

    def outside(self, times: Longs) -> Mask | None:
        if self.size >= self.every:
            return None
        return np.asarray((times - self.offset) % np.int64(self.every) >= self.size)

    def windows(self, panes: Longs) -> tuple[Longs, Longs]:
        if self.single:
            return np.arange(len(panes)), panes
        last = (panes - self.offset) // np.int64(self.every) * np.int64(self.every) + self.offset
        rows, starts = [], []
        for back in range(self._most):
            start = last - back * self.every
            inside = np.flatnonzero(panes < start + self.size)
            rows.append(inside)
            starts.append(start[inside])
        return np.concatenate(rows), np.concatenate(starts)

    def ends(self, starts: Longs) -> Longs:
        return starts + np.int64(self.size)

    def last_end(self, pane: int) -> int:
        return (pane - self.offset) // self.every * self.every + self.offset + self.size


class Calendar:
    """Days, weeks (from Monday) or months on the clocks of a zone. A day may have 23 or 25 hours."""

    single = True

    def __init__(self, unit: str, zone: str) -> None:
        self._unit, self._zone = unit, ZoneInfo(zone)
        self._starts: Longs = np.empty(0, np.int64)

    def panes(self, times: Longs) -> Longs:
        if not len(times):
            return times
        edges = self._edges(int(times.min()), int(times.max()))
        return np.asarray(edges[np.searchsorted(edges, times, "right") - 1])

    def outside(self, times: Longs) -> Mask | None:
        return None

    def windows(self, panes: Longs) -> tuple[Longs, Longs]:
        return np.arange(len(panes)), panes

    def ends(self, starts: Longs) -> Longs:
        if not len(starts):
            return starts
        edges = self._edges(int(starts.min()), int(starts.max()))
        return np.asarray(edges[np.searchsorted(edges, starts, "right")])

    def last_end(self, pane: int) -> int:
        return int(self.ends(np.array([pane]))[0])

    def _edges(self, least: int, greatest: int) -> Longs:
        """Starts of windows, from one at or before the least time to one behind the greatest; what was found is kept."""
        if not len(self._starts) or least < self._starts[0] or greatest >= self._starts[-1]:
            begin = min(least, int(self._starts[0])) if len(self._starts) else least
            end = max(greatest, int(self._starts[-1])) if len(self._starts) else greatest
            self._starts = np.array(list(self._walk(begin, end)), np.int64)
        return self._starts

    def _walk(self, least: int, greatest: int) -> Iterator[int]:
        day = self._first(_local(least, self._zone))
        if self._at(day) > least:  # a zone may repeat or skip the hour at midnight
            day = self._first(day - timedelta(days=1))
        while True:
            yield self._at(day)
            if self._at(day) > greatest:
                return
            day = self._next(day)

    def _first(self, day: date) -> date:
        if self._unit == "week":
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self._unit == "month" else day

    def _next(self, day: date) -> date:
        if self._unit == "month":
            return (day + timedelta(days=32)).replace(day=1)
        return day + timedelta(days=7 if self._unit == "week" else 1)

    def _at(self, day: date) -> int:
        """The first instant of a day there."""
        return (datetime(day.year, day.month, day.day, tzinfo=self._zone).astimezone(UTC) - _EPOCH) // _MICRO


def _local(us: int, zone: ZoneInfo) -> date:
    return (_EPOCH + us * _MICRO).astimezone(zone).date()
