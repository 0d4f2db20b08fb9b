"""Rows that were answered and may be answered again, as long as something that comes late can change their answer.

State: slots of time, each dropped as a whole when no row in it can change any more.
"""

import numpy as np
import pyarrow as pa

from penstock.core.hashing import Hashes
from penstock.kernels.changes import once, touched
from penstock.kernels.columns import numbers
from penstock.kernels.port import Changes, State
from penstock.kernels.windows.final import by_start

ANSWERED = "answered"
_PER_SPAN = 8  # slots
_NARROWEST = 10_000_000


class AnsweredRows:
    """Rows with HASH, for a span of time. clock: the column that says the time of a row."""

    def __init__(self, clock: str, span: int, width: int | None = None) -> None:
        self._clock, self._width = clock, width or max(span // _PER_SPAN, _NARROWEST)

    def keep(self, rows: pa.Table, least: int, changes: Changes) -> None:
        """Keeps the rows that are not older than this."""
        lasting = numbers(rows, self._clock) >= least
        kept = rows if lasting.all() else rows.filter(pa.array(lasting))
        width = np.int64(self._width)
        changes.add |= by_start(ANSWERED, kept, numbers(kept, self._clock) // width * width)

    def forget(self, state: State, least: int, changes: Changes) -> None:
        changes.drop |= {(ANSWERED, slot) for slot in state.slots(ANSWERED) if slot + self._width <= least}

    def again(self, state: State, hashes: Hashes, least: int) -> list[pa.Table]:
        """The rows with these hashes that are not older than this."""
        hashes = once(hashes)
        slots = [slot for slot in state.slots(ANSWERED) if slot + self._width > least]
        found = [rows for slot in slots for rows in touched(state.runs(ANSWERED, slot), hashes)]
        return [rows.filter(pa.array(numbers(rows, self._clock) >= least)) for rows in found]
