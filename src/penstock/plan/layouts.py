"""Where fixed windows lie: which pane a time falls into, which windows a pane belongs to, where they end.

A pane is a stretch of time within which all rows belong to the same windows. Rows are added up per pane; a window is the sum of
its panes, so that overlap costs nothing per row.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from penstock.core.time import duration_text, micros
from penstock.plan.node import Facts, Meaning, span

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


class Layout(ABC):
    """Windows that lie fixed in time, by their start: a frozen value, which goes to tasks pickled. All times are microseconds."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """What people call a step with such windows."""

    @abstractmethod
    def facts(self) -> Facts:
        """Where the windows lie, for `penstock plan`."""

    @abstractmethod
    def meaning(self) -> Meaning:
        """What identifies it, as the meaning of a node does."""

    @property
    @abstractmethod
    def single(self) -> bool:
        """Every time lies in one window at most: a pane is a window."""

    @property
    def spacing(self) -> int | None:
        """How far the starts of two windows are apart, where that is always the same."""
        return None

    @abstractmethod
    def panes(self, times: Longs) -> Longs:
        """The start of the pane of each time."""

    def outside(self, times: Longs) -> Mask | None:
        """Times that lie in no window; None if there are none such anywhere."""
        return None

    def windows(self, panes: Longs) -> tuple[Longs, Longs]:
        """Every window of every pane, as (number of the pane in `panes`, start of the window)."""
        return np.arange(len(panes)), panes

    @abstractmethod
    def ends(self, starts: Longs) -> Longs:
        """Where the windows end that begin there."""

    def last_end(self, pane: int) -> int:
        """Where the last window of a pane ends."""
        return int(self.ends(self.windows(np.array([pane]))[1]).max())


@dataclass(frozen=True)
class Spaced(Layout):
    """Windows of one size, one every so often; side by side, overlapping, or with gaps. Aligned to 1970 + offset."""

    size: timedelta
    every: timedelta
    offset: timedelta = timedelta()

    @property
    def kind(self) -> str:
        return "tumbling window" if self.every == self.size else "hopping window"

    def facts(self) -> Facts:
        yield "size", duration_text(self.size)
        if self.every != self.size:
            yield "every", duration_text(self.every)
        if self.offset:
            yield "offset", duration_text(self.offset)

    def meaning(self) -> Meaning:
        return {"is": "spaced/1", "size": span(self.size), "every": span(self.every), "offset": span(self.offset)}

    @cached_property
    def single(self) -> bool:
        return self.size <= self.every

    @property
    def spacing(self) -> int:
        return self._every

    @cached_property
    def _size(self) -> int:
        return micros(self.size)

    @cached_property
    def _every(self) -> int:
        return micros(self.every)

    @cached_property
    def _offset(self) -> int:
        return micros(self.offset) % self._every

    @cached_property
    def _pane(self) -> int:
        return self._every if self.single or self._size % self._every == 0 else math.gcd(self._size, self._every)

    def panes(self, times: Longs) -> Longs:
        if not self._offset:
            return times // np.int64(self._pane) * np.int64(self._pane)
        return (times - self._offset) // np.int64(self._pane) * np.int64(self._pane) + self._offset

    def outside(self, times: Longs) -> Mask | None:
        if self._size >= self._every:
            return None
        return np.asarray((times - self._offset) % np.int64(self._every) >= self._size)

    def windows(self, panes: Longs) -> tuple[Longs, Longs]:
        if self.single:
            return np.arange(len(panes)), panes
        last = (panes - self._offset) // np.int64(self._every) * np.int64(self._every) + self._offset
        rows, starts = [], []
        for back in range(-(-self._size // self._every)):
            start = last - back * self._every
            inside = np.flatnonzero(panes < start + self._size)
            rows.append(inside)
            starts.append(start[inside])
        return np.concatenate(rows), np.concatenate(starts)

    def ends(self, starts: Longs) -> Longs:
        return starts + np.int64(self._size)

    def last_end(self, pane: int) -> int:
        return (pane - self._offset) // self._every * self._every + self._offset + self._size


@dataclass(frozen=True)
class Calendar(Layout):
    """Days, weeks (from Monday) or months on the clocks of a zone. A day may have 23 or 25 hours."""

    unit: Literal["day", "week", "month"]
    zone: str

    @property
    def kind(self) -> str:
        return "calendar window"

    def facts(self) -> Facts:
        yield "size", f"a {self.unit} in {self.zone}"

    def meaning(self) -> Meaning:
        return {"is": "calendar/1", "unit": self.unit, "zone": self.zone}

    @property
    def single(self) -> bool:
        return True

    @cached_property
    def _clock(self) -> ZoneInfo:
        return ZoneInfo(self.zone)

    @cached_property
    def _known(self) -> list[Longs]:
        """The edges that were found last."""
        return [np.empty(0, np.int64)]

    def panes(self, times: Longs) -> Longs:
        if not len(times):
            return times
        edges = self._edges(int(times.min()), int(times.max()))
        return np.asarray(edges[np.searchsorted(edges, times, "right") - 1])

    def ends(self, starts: Longs) -> Longs:
        if not len(starts):
            return starts
        edges = self._edges(int(starts.min()), int(starts.max()))
        return np.asarray(edges[np.searchsorted(edges, starts, "right")])

    def _edges(self, least: int, greatest: int) -> Longs:
        """Starts of windows, from one at or before the least time to one behind the greatest; what was found is kept."""
        known = self._known[0]
        if not len(known) or least < known[0] or greatest >= known[-1]:
            begin = min(least, int(known[0])) if len(known) else least
            end = max(greatest, int(known[-1])) if len(known) else greatest
            self._known[0] = known = np.array(list(self._walk(begin, end)), np.int64)
        return known

    def _walk(self, least: int, greatest: int) -> Iterator[int]:
        day = self._first(_local(least, self._clock))
        if self._at(day) > least:  # a zone may repeat or skip the hour at midnight
            day = self._first(day - timedelta(days=1))
        while True:
            yield self._at(day)
            if self._at(day) > greatest:
                return
            day = self._next(day)

    def _first(self, day: date) -> date:
        if self.unit == "week":
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self.unit == "month" else day

    def _next(self, day: date) -> date:
        if self.unit == "month":
            return (day + timedelta(days=32)).replace(day=1)
        return day + timedelta(days=7 if self.unit == "week" else 1)

    def _at(self, day: date) -> int:
        """The first instant of a day there."""
        return (datetime(day.year, day.month, day.day, tzinfo=self._clock).astimezone(UTC) - _EPOCH) // _MICRO


def _local(us: int, zone: ZoneInfo) -> date:
    return (_EPOCH + us * _MICRO).astimezone(zone).date()
