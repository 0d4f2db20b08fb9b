"""For each row the rows of its key that lie less than so long before it, among the rows that came and those remembered.

What is remembered lies in runs, each sorted by hash and time; so do the rows that came, once sorted. In each of them the rows that
one looks back upon are one range, found by binary search: what is remembered is never sorted again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.change import HASH, TIME
from penstock.kernels.keyed import codes, key_numbers, ranks
from penstock.kernels.probe import spread
from penstock.kernels.tables import column, numbers

Longs = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


class Ranges(NamedTuple):
    """Row of[i] looks back upon begin[i] … end[i] - 1 of these rows; never upon none. begin rises."""

    rows: pa.Table
    of: Longs
    begin: Longs
    end: Longs


class Run(NamedTuple):
    """Rows sorted by hash and time, of keys that came alone; keys: their numbers."""

    rows: pa.Table
    keys: Longs


def look_back(came: pa.Table, remembered: Sequence[pa.Table], by: Sequence[str], size: int) -> tuple[list[Ranges], Longs]:
    """Where each of the rows that came finds those of its key in (t - size, t]; and these rows in the order of hash and time."""
    known, keys = ranks(numbers(came, HASH))
    runs = [run for table in remembered if (run := _of_keys(table, known)).rows.num_rows]
    times = [numbers(came, TIME), *(numbers(run.rows, TIME) for run in runs)]
    least = min(int(t.min()) for t in times)
    span = max(int(t.max()) for t in times) - least + 2
    if span * len(known) >= 2**63 or not _one_key_each(came, keys, runs, len(known), by):
        return _among_all(came, [run.rows for run in runs], by, size)
    since = times[0] - (least - 1)
    code = keys * span + since
    order = np.argsort(code)
    code, back = code[order], (keys * span + np.maximum(since - size, 0))[order]
    found = [
        _found(run.rows, run.keys * span + (t - (least - 1)), order, back, code) for run, t in zip(runs, times[1:], strict=True)
    ]
    own = Ranges(came.take(pa.array(order)), order, np.searchsorted(code, back, "right"), _ends(code))
    return [*(ranges for ranges in found if len(ranges.of)), own], order


def _of_keys(run: pa.Table, known: Hashes) -> Run:
    """The rows of a run with these hashes (sorted, each once)."""
    hashes = numbers(run, HASH)
    begin, end = np.searchsorted(hashes, known, "left"), np.searchsorted(hashes, known, "right")
    keys = np.repeat(np.arange(len(known)), end - begin)
    return Run(run if len(keys) == len(hashes) else run.take(pa.array(spread(begin, end - begin))), keys)


def _found(rows: pa.Table, codes: Longs, order: Longs, low: Longs, high: Longs) -> Ranges:
    begin, end = np.searchsorted(codes, low, "right"), np.searchsorted(codes, high, "right")
    some = end > begin
    if some.all():
        return Ranges(rows, order, begin, end)
    return Ranges(rows, order[some], begin[some], end[some])


def _ends(code: Longs) -> Longs:
    """For each of sorted numbers where the next greater one is."""
    last = np.append(np.flatnonzero(np.diff(code)), len(code) - 1)
    return np.repeat(last + 1, np.diff(last, prepend=-1))


def _among_all(came: pa.Table, remembered: Sequence[pa.Table], by: Sequence[str], size: int) -> tuple[list[Ranges], Longs]:
    """The same where different keys share a hash, or times lie too far apart: everything is sorted together."""
    together = pa.concat_tables([*remembered, came])
    code, back = codes(key_numbers(together, by), numbers(together, TIME), size)
    order = np.argsort(code)
    old = together.num_rows - came.num_rows
    mine = np.flatnonzero(order >= old)
    code, back = code[order], back[order]
    begin, end = np.searchsorted(code, back[mine], "right"), np.searchsorted(code, code[mine], "right")
    of = order[mine] - old
    return [Ranges(together.take(pa.array(order)), of, begin, end)], of


def _one_key_each(came: pa.Table, keys: Longs, runs: Sequence[Run], count: int, by: Sequence[str]) -> bool:
    """Whether rows of one number are of one key: those that came are compared with one of them, a run's with their neighbours."""
    one = np.empty(count, np.int64)
    one[keys] = np.arange(len(keys))
    for name in by:
        mine = _series(column(came, name))
        if not mine.eq_missing(mine.gather(one[keys])).all():
            return False
        if not all(_as_those(column(run.rows, name), run.keys, mine, one) for run in runs):
            return False
    return True


def _as_those(values: pa.Array, keys: Longs, mine: pl.Series, one: Longs) -> bool:
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    if not _series(values.take(pa.array(first))).eq_missing(mine.gather(one[keys[first]])).all():
        return False
    left, right = values.slice(0, len(values) - 1), values.slice(1)
    if values.null_count or pa.types.is_nested(values.type) or pa.types.is_floating(values.type):
        equal = _series(left).eq_missing(_series(right)).to_numpy()
    else:
        equal = pc.equal(left, right).to_numpy(zero_copy_only=False)
    return bool(np.all(equal | (keys[1:] != keys[:-1])))


def _series(values: pa.Array) -> pl.Series:
    series = pl.from_arrow(values)
    assert isinstance(series, pl.Series)
    return series
