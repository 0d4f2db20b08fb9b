"""Rows that wait until the frontier has gone far enough beyond their time.

State: slots of time, narrow ones near the frontier, ever wider ones further on. A wide slot is broken up into narrower ones when
the frontier comes near it, so that an epoch reads little more than what falls due, and the slots stay few however far the
rows reach.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import TIME
from penstock.kernels.columns import numbers
from penstock.kernels.port import Changes, State
from penstock.kernels.windows.final import by_start

_NARROWEST = 10_000_000  # ten seconds
_FACTOR = 64
_LEVELS = 4  # 10 seconds, 11 minutes, 11 hours, a month


class WaitingRows:
    """Rows with TIME and HASH, each until F > t + delay."""

    def __init__(self, name: str, delay: int = 0, width: int = _NARROWEST, factor: int = _FACTOR) -> None:
        self._tables = [f"{name}{level}" for level in range(_LEVELS)]
        self._widths = [width * factor**level for level in range(_LEVELS)]
        self._delay = delay

    def advance(self, state: State, new: pa.Table | None, now: int, changes: Changes) -> list[pa.Table]:
        """The rows that are due at this frontier and were not at the one before; new rows that are not are put to wait."""
        before = state.before()
        due, moved = [], []
        for level, slot in self._reached(state, now):
            for run in state.runs(self._tables[level], slot):
                times = numbers(run, TIME) + np.int64(self._delay)
                due.append(_those(run, (times >= before) & (times < now)))
                if level:
                    moved.append(_those(run, times >= now))
            if level or slot + self._widths[0] - 1 + self._delay < now:
                changes.drop.add((self._tables[level], slot))
        if new is not None:
            ripe = numbers(new, TIME) + np.int64(self._delay) < now
            due.append(_those(new, ripe))
            moved.append(_those(new, ~ripe))
        self._put(moved, now, changes)
        return [rows for rows in due if rows.num_rows]

    def _reached(self, state: State, now: int) -> Iterator[tuple[int, int]]:
        for level, table in enumerate(self._tables):
            yield from ((level, slot) for slot in state.slots(table) if self._is_reached(level, slot, now))

    def _is_reached(self, level: int, slot: int, now: int) -> bool:
        """Whether a slot has to be read: some of it may be due, or it is wide and the frontier is near."""
        return slot + self._delay < now + (self._widths[level] if level else 0)

    def _put(self, pieces: list[pa.Table], now: int, changes: Changes) -> None:
        some = [piece for piece in pieces if piece.num_rows]
        rest = pa.concat_tables(some).combine_chunks() if some else None
        for level in reversed(range(_LEVELS)):
            if rest is None or not rest.num_rows:
                return
            width = self._widths[level]
            slots = numbers(rest, TIME) // np.int64(width) * np.int64(width)
            far = slots + np.int64(self._delay) >= now + width if level else np.ones(len(slots), np.bool_)
            changes.add |= by_start(self._tables[level], _those(rest, far), slots[far])
            rest = _those(rest, ~far)


def _those(rows: pa.Table, wanted: npt.NDArray[np.bool_]) -> pa.Table:
    return rows if wanted.all() else rows.filter(pa.array(wanted))
