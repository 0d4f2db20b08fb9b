"""The watermark at a row, and which rows are late for a step.

W(r) is the greatest of the marks at or before r and of (event time − lateness) of the plausible rows before it in its partition.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.time import NEVER

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


def window_starts(times: Times, size: int) -> Times:
    """Starts of the fixed windows (aligned to 1970) that hold these times; right for times before 1970 too."""
    return times // np.int64(size) * np.int64(size)


def late_for_window(times: Times, at: Times, size: int) -> Mask:
    """A fixed window takes a row as on time when its end > W(r)."""
    late = late_for_instant(times, at)
    if late.any():  # a row at or above its watermark is never late for its window, so only the others are looked at
        behind = np.flatnonzero(late)
        late[behind] = window_starts(times[behind], size) + size <= at[behind]
    return late


def late_for_instant(times: Times, at: Times) -> Mask:
    """Every other judging step takes a row as on time when t >= W(r)."""
    return np.asarray(times < at)
