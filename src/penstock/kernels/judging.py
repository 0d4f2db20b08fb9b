"""The watermark at a row, and which rows are late for a step.

W(r) is the greatest of the marks at or before r and of (event time − lateness) of the plausible rows before it in its partition.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import TIME, WATERMARK
from penstock.core.time import NEVER
from penstock.kernels.columns import numbers
from penstock.plan.layouts import Layout

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Watermarks(NamedTuple):
    at: Times  # W of each row
    plausible: Mask  # False: the row's time lies too far beyond its append time; it moves nothing
    end: int  # W of the row that comes next


def watermarks(
    times: Times, appended: Times | int, start: int, future: int, lateness: int | None, marks: Iterable[tuple[int, int]] = ()
) -> Watermarks:
    """W of consecutive rows of one partition.

    start is the watermark carried in; a mark (i, T) stands before row i (i = number of rows: behind the last).
    lateness=None: the watermark moves by marks alone."""
    plausible = np.asarray(times <= appended + np.int64(future))
    known = np.empty(len(times) + 1, np.int64)
    known[0] = start
    known[1:] = NEVER if lateness is None else np.where(plausible, times - np.int64(lateness), NEVER)
    for index, mark in marks:
        known[index] = max(known[index], mark)
    np.maximum.accumulate(known, out=known)
    return Watermarks(known[:-1], plausible, int(known[-1]))


def late_for_instant(times: Times, at: Times) -> Mask:
    """Every other judging step takes a row as on time when t >= W(r)."""
    return np.asarray(times < at)


def behind_their_watermark(rows: pa.Table) -> Mask:
    """Which rows of a table lie behind their watermark; rows that bring none are never late."""
    if WATERMARK not in rows.column_names:
        return np.zeros(rows.num_rows, np.bool_)
    return late_for_instant(numbers(rows, TIME), numbers(rows, WATERMARK))


_NONE = np.empty(0, np.int64)


@dataclass
class Verdicts:
    """What becomes of rows at fixed windows."""

    fates: "Counter[str]"
    whole: Mask | None = None  # the rows that count for every window of their pane; None: all of them
    late: Mask | None = None  # the rows that some window of theirs refuses
    rows: Times = field(default_factory=lambda: _NONE)  # the others, pair by pair: the number of the row,
    starts: Times = field(default_factory=lambda: _NONE)  # the window it counts for,
    corrected: Mask = field(default_factory=lambda: np.empty(0, np.bool_))  # and whether it corrects that window


def judge_windows(layout: Layout, times: Times, at: Times, late: str, allowed: int) -> Verdicts:
    """A fixed window takes a row as on time when its end > W(r), as a correction when end + allowed > W(r)."""
    out = layout.outside(times)
    behind = late_for_instant(times, at)  # all others are on time for all their windows
    if out is not None:
        behind &= ~out
    outside = int(np.count_nonzero(out)) if out is not None else 0
    if not behind.any():
        return _all_on_time(layout, times, out, outside)
    late_ones = np.flatnonzero(behind)
    of, starts = layout.windows(layout.panes(times[late_ones]))
    rows = late_ones[of]
    ends, marks = layout.ends(starts), at[rows]
    on_time = ends > marks
    corrected = ~on_time & (ends + allowed > marks) if late == "correct" else np.zeros(len(rows), np.bool_)
    refused = ~on_time & ~corrected
    whole = ~behind if out is None else ~behind & ~out
    return _verdicts(layout, times, whole, outside, late, (rows, starts, on_time, corrected, refused))


def _all_on_time(layout: Layout, times: Times, out: Mask | None, outside: int) -> Verdicts:
    taken = len(times) - outside
    fates = Counter({"on time": taken, "outside": outside})
    if not layout.single:
        pairs = len(layout.windows(layout.panes(times))[0])
        fates = Counter({"on time": pairs, "outside": outside, "judged": taken, "windows": pairs})
    return Verdicts(+fates, None if not outside or out is None else ~out)


def _verdicts(
    layout: Layout, times: Times, whole: Mask, outside: int, late: str, pairs: tuple[Times, Times, Mask, Mask, Mask]
) -> Verdicts:
    rows, starts, on_time, corrected, refused = pairs
    if layout.single:  # a row that is on time for its only window counts as any other
        whole = whole.copy()
        whole[rows[on_time]] = True
        apart, clear = corrected, int(np.count_nonzero(whole))
    else:
        apart = on_time | corrected
        clear = len(layout.windows(layout.panes(times[whole]))[0]) + int(np.count_nonzero(on_time))
    n_corrected, n_refused = int(np.count_nonzero(corrected)), int(np.count_nonzero(refused))
    fates = Counter({"on time": clear, "corrected": n_corrected, "ignored" if late == "ignore" else "diverted": n_refused})
    fates["outside"] = outside
    if not layout.single:
        fates |= {"judged": len(times) - outside, "windows": clear + n_corrected + n_refused}
    mask = None
    if n_refused:
        mask = np.zeros(len(times), np.bool_)
        mask[rows[refused]] = True
        if not layout.single:
            fates["late rows"] = int(np.count_nonzero(mask))
    return Verdicts(+fates, whole, mask, rows[apart], starts[apart], corrected[apart])
