"""Rows of one key within a stretch of time, found by binary search.

A run is sorted by one 64-bit number: the high bits of the key's hash, below them the time since the beginning of the run's
stretch. So the partners of a row are one range of the run; the keys themselves are compared before anything is called a pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import HASH, TIME
from penstock.kernels.columns import column, numbers

Longs = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_MOST_TIME_BITS = 40  # the hash keeps at least 24; times further apart are told apart more coarsely, and compared afterwards


@dataclass(frozen=True)
class Stretch:
    """A stretch of time and how a hash and a time within it become one number."""

    begin: int
    length: int

    @property
    def bits(self) -> int:
        return max(self.length - 1, 1).bit_length()

    @property
    def coarse(self) -> int:
        return max(0, self.bits - _MOST_TIME_BITS)

    def code(self, hashes: Hashes, times: Longs) -> Hashes:
        """Times outside the stretch count as its first or last instant."""
        inside = np.clip(times - np.int64(self.begin), 0, self.length - 1).view(np.uint64) >> np.uint64(self.coarse)
        width = np.uint64(self.bits - self.coarse)
        return np.asarray((hashes >> width << width) | inside)


@dataclass(frozen=True)
class Side:
    """Rows that look for partners: hash, time and key columns, in an order that keeps neighbours together."""

    hashes: Hashes
    times: Longs
    keys: list[pa.Array]


@dataclass(frozen=True)
class Found:
    """Which rows met: row rows[i] of those that looked, with count[i] rows of `touched` from start[i] on."""

    rows: Longs
    start: Longs
    count: Longs
    touched: pa.Table
    places: Longs  # where in the run each touched row stands

    def pairs(self) -> tuple[Longs, Longs]:
        return np.repeat(self.rows, self.count), spread(self.start, self.count)


def spread(start: Longs, count: Longs) -> Longs:
    """start[i], start[i] + 1, … count[i] numbers each, one behind the other."""
    at = np.repeat(start - (np.cumsum(count) - count), count)
    at += np.arange(len(at))
    return at


def probe(side: Side, run: pa.Table, stretch: Stretch, reach: tuple[int, int], on: Sequence[str]) -> Found | None:
    """The rows of a run (sorted by the stretch's code, which is its HASH) with the key of a row and times in t + reach."""
    near = np.flatnonzero((side.times + reach[1] >= stretch.begin) & (side.times + reach[0] < stretch.begin + stretch.length))
    if not len(near) or not run.num_rows:
        return None
    low, high = (stretch.code(side.hashes[near], side.times[near] + far) for far in reach)
    if np.any(low[1:] < low[:-1]) or np.any(high[1:] < high[:-1]):
        order = np.lexsort((high, low))
        near, low, high = near[order], low[order], high[order]
    codes = numbers(run, HASH)
    start, end = np.searchsorted(codes, low, "left"), np.searchsorted(codes, high, "right")
    some = end > start
    if not some.any():
        return None
    found = _touched(near[some], start[some], end[some], run)
    return _checked(side, found, reach, on, exact=not stretch.coarse)


def _touched(rows: Longs, start: Longs, end: Longs, run: pa.Table) -> Found:
    """Ranges come in rising order and overlap: every row of the run is fetched once, however many pairs it is in."""
    seen = np.concatenate([[0], end[:-1]])
    fresh = np.maximum(end - np.maximum(start, seen), 0)
    total = int(fresh.sum())
    if total == end[-1] - start[0]:
        places, touched = np.arange(start[0], end[-1]), run.slice(int(start[0]), total)
    else:
        places = spread(np.maximum(start, seen), fresh)
        touched = run.take(places)
    return Found(rows, np.cumsum(fresh) - (end - start), end - start, touched, places)


def _checked(side: Side, found: Found, reach: tuple[int, int], on: Sequence[str], *, exact: bool) -> Found | None:
    """Only those whose key is really equal, and whose time is really near where the codes are coarse.

    Where a range holds one key alone, its first row is compared for all of them."""
    keys = [column(found.touched, name) for name in on]
    other = ~same_keys([k.slice(1) for k in keys], [k.slice(0, len(k) - 1) for k in keys])
    changes = np.concatenate([[0], np.cumsum(other)])
    if exact and np.array_equal(changes[found.start + found.count - 1], changes[found.start]):
        equal = same_keys(_taken(side.keys, found.rows), _taken(keys, found.start))
        kept = replace(found, rows=found.rows[equal], start=found.start[equal], count=found.count[equal])
    else:
        kept = _one_by_one(side, found, keys, reach)
    return kept if len(kept.rows) else None


def _one_by_one(side: Side, found: Found, keys: list[pa.Array], reach: tuple[int, int]) -> Found:
    rows, at = found.pairs()
    apart = numbers(found.touched, TIME)[at] - side.times[rows]
    equal = same_keys(_taken(side.keys, rows), _taken(keys, at)) & (apart >= reach[0]) & (apart <= reach[1])
    return replace(found, rows=rows[equal], start=at[equal], count=np.ones(int(equal.sum()), np.int64))


def _taken(columns: Sequence[pa.Array], rows: Longs) -> list[pa.Array]:
    return [c.take(rows) for c in columns]


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Whether keys are equal, row by row."""
    equal = np.ones(len(left[0]), np.bool_)
    for a, b in zip(left, right, strict=True):
        if pa.types.is_floating(a.type):  # as in Spark's joins, NaN equals NaN
            equal &= pc.or_(pc.equal(a, b), pc.and_(pc.is_nan(a), pc.is_nan(b))).to_numpy(zero_copy_only=False)
        elif pa.types.is_nested(a.type):
            equal &= np.array([x == y for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], np.bool_)
        else:
            equal &= pc.equal(a, b).to_numpy(zero_copy_only=False)
    return equal
