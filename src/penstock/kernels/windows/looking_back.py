"""For each row the rows of its key that lie less than so long before it, among the rows that came and those remembered.

What is remembered lies before all that came. It lies in runs, each sorted by hash and time; so do the rows that came, once sorted.
In each of them the rows that one looks back upon are one range, found by binary search: nothing remembered is sorted again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import HASH, TIME
from penstock.kernels.columns import column, numbers
from penstock.kernels.joins.probe import spread
from penstock.kernels.keyed import codes, key_numbers, ranks

Longs = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


class Ranges(NamedTuple):
    """Row of[i] looks back upon begin[i] … end[i] - 1 of these rows; never upon none. of and begin rise."""

    rows: pa.Table
    of: Longs
    begin: Longs
    end: Longs


class Run(NamedTuple):
    """Rows sorted by hash and time, of keys that came alone; keys: their numbers; heads: where each key begins, and the end."""

    rows: pa.Table
    keys: Longs
    heads: Longs


class Seekers(NamedTuple):
    """The rows that came, by key and time; numbers that order by both, their own and those of the instants they look back to."""

    keys: Longs
    times: Longs
    code: Longs
    back: Longs


class Looked(NamedTuple):
    """Ranges of the rows that came, these being numbered in the order of hash and time; that order; and they in it."""

    sources: list[Ranges]
    order: Longs
    came: pa.Table


def look_back(came: pa.Table, remembered: Sequence[pa.Table], by: Sequence[str], size: int) -> Looked:
    """Where each of the rows that came finds those of its key in (t - size, t]."""
    known, keys = ranks(numbers(came, HASH))
    runs = [run for table in remembered if (run := _of_keys(table, known)).rows.num_rows]
    times = [numbers(came, TIME), *(numbers(run.rows, TIME) for run in runs)]
    least = min(int(t.min()) for t in times)
    span = max(int(t.max()) for t in times) - least + 2
    if span * len(known) >= 2**63 or not _one_key_each(came, keys, runs, len(known), by):
        return _among_all(came, [run.rows for run in runs], by, size)
    code = keys * span + (times[0] - (least - 1))
    order = np.argsort(code)
    keys, since = keys[order], times[0][order] - (least - 1)
    seekers = Seekers(keys, since, code[order], keys * span + np.maximum(since - size, 0))
    found = [_found(run, t - (least - 1), seekers, size, span) for run, t in zip(runs, times[1:], strict=True)]
    mine = came.take(order)
    own = Ranges(mine, np.arange(len(order)), np.searchsorted(seekers.code, seekers.back, "right"), _ends(seekers.code))
    return Looked([*(ranges for ranges in found if len(ranges.of)), own], order, mine)


def _of_keys(run: pa.Table, known: Hashes) -> Run:
    """The rows of a run with these hashes (sorted, each once)."""
    hashes = numbers(run, HASH)
    begin, end = np.searchsorted(hashes, known, "left"), np.searchsorted(hashes, known, "right")
    heads = np.concatenate([[0], np.cumsum(end - begin)])
    whole = heads[-1] == len(hashes)
    rows = run if whole else run.take(spread(begin, end - begin))
    return Run(rows, np.repeat(np.arange(len(known)), end - begin), heads)


def _found(run: Run, times: Longs, seekers: Seekers, size: int, span: int) -> Ranges:
    """Where all of a run lies within reach of all that came, there is nothing to search."""
    far = int(times.min()) <= int(seekers.times.max()) - size
    begin = np.searchsorted(run.keys * span + times, seekers.back, "right") if far else run.heads[seekers.keys]
    end = run.heads[seekers.keys + 1]
    some = np.flatnonzero(end > begin)
    return Ranges(run.rows, some, begin[some], end[some])


def _ends(code: Longs) -> Longs:
    """For each of sorted numbers where the next greater one is."""
    ends = np.arange(1, len(code) + 1)
    ends[:-1][code[1:] == code[:-1]] = len(code)
    return np.asarray(np.minimum.accumulate(ends[::-1])[::-1])


def _among_all(came: pa.Table, remembered: Sequence[pa.Table], by: Sequence[str], size: int) -> Looked:
    """The same where different keys share a hash, or times lie too far apart: everything is sorted together."""
    together = pa.concat_tables([*remembered, came])
    code, back = codes(key_numbers(together, by), numbers(together, TIME), size)
    all_, old = np.argsort(code), together.num_rows - came.num_rows
    mine, code, back = np.flatnonzero(all_ >= old), code[all_], back[all_]
    begin, end = np.searchsorted(code, back[mine], "right"), np.searchsorted(code, code[mine], "right")
    order = all_[mine] - old
    return Looked([Ranges(together.take(all_), np.arange(len(mine)), begin, end)], order, came.take(order))


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
    if not _series(values.take(first)).eq_missing(mine.gather(one[keys[first]])).all():
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
