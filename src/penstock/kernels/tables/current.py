"""Rows of state of which the newest counts: a run says which rows came, which changed, and which are gone.

A row is named by some of its columns, and a hash of them tells rows apart quickly. Names are compared before two rows are taken for
one, so that equal hashes do no harm.

A row that is gone is remembered, since an older run may still hold it. Of a row that CAME no older run holds anything: when it is
gone within the same merge, nothing has to be remembered of it. So only what changed or is gone can hide other rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.change import Op
from penstock.core.columns import HASH, INDEX, OP
from penstock.core.hashing import Hashes, hash64
from penstock.kernels.aggregates.partials import frame_of
from penstock.kernels.column_names import NUMBER
from penstock.kernels.columns import numbers, sorted_by_hash
from penstock.kernels.joins.probe import spread

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.int8]

MARK = "__mark"  # int8
NAME = "__name"  # uint64: a hash of HASH and what names a row, where that is not what HASH is made of

_MULTIPLIER = np.uint64(0xD1342543DE82EF95)
_MOST_FLAGS = 22


class Mark(IntEnum):
    """What a run says of a row."""

    CAME = 0
    CHANGED = 1
    GONE = 2


def taken_back(rows: pa.Table) -> Mask:
    """Which rows of a changelog take a row back; none of those without OP."""
    if OP not in rows.column_names:
        return np.zeros(rows.num_rows, np.bool_)
    ops = numbers(rows, OP)
    return np.asarray((ops == Op.UPDATE_BEFORE) | (ops == Op.DELETE))


def signed(rows: pa.Table, gone: Mask) -> pa.Table:
    """Rows that are taken back or put in."""
    return rows.append_column(MARK, pa.array(np.where(gone, np.int8(Mark.GONE), np.int8(Mark.CAME))))


def is_gone(rows: pa.Table) -> Mask:
    return np.asarray(numbers(rows, MARK) == Mark.GONE)


def name_hashes(rows: pa.Table, names: Sequence[str], hashes: Hashes) -> Hashes:
    """NAME of rows with these columns as names and these hashes."""
    with np.errstate(over="ignore"):
        return np.asarray(hashes * _MULTIPLIER + hash64([rows[name] for name in names], rows.num_rows))


@dataclass(frozen=True)
class Current:
    """Rows named by these columns; code: the column of their hash, HASH or NAME. With NAME a row of another HASH is another row."""

    code: str
    names: tuple[str, ...]

    def run(self, signed: pa.Table) -> pa.Table:
        """What is kept of signed rows: one row per name, sorted by HASH; what is put in comes after what is taken back."""
        gone = is_gone(signed)
        if not gone.any():
            return sorted_by_hash(signed)
        order = np.concatenate([np.flatnonzero(gone), np.flatnonzero(~gone)])
        seen = _Seen([signed], [order], np.array([0, len(order)]))
        hidden, last, _ = self._hidden(seen)
        marks = seen.column(MARK)
        marks[last[marks[last] == Mark.CAME]] = Mark.CHANGED
        shown = np.flatnonzero(~hidden)
        shown = shown[np.argsort(numbers(signed, HASH)[order[shown]])]
        return _with_marks(signed.take(order[shown]), marks[shown])

    def live(
        self, runs: Sequence[pa.Table], hashes: Hashes, columns: Sequence[str], changed: pa.Table | None = None
    ) -> pa.Table | None:
        """These columns of the rows with one of the hashes (sorted, each once) that are there according to runs, oldest first.

        changed: a newer run; what it names is left out. None: no run has such a row."""
        if not runs:
            return None
        seen = _Seen.of(runs if changed is None else [*runs, changed], hashes)
        there = seen.column(MARK) != Mark.GONE
        there &= ~self._hidden(seen)[0]
        if changed is not None:
            there[seen.ends[-2] :] = False
        return seen.rows(columns, there)

    def merge(self, runs: Sequence[pa.Table]) -> pa.Table:
        """Runs as one that means the same, sorted by HASH."""
        seen = _Seen.all(runs)
        hidden, last, first = self._hidden(seen)
        marks = seen.column(MARK)
        came = marks[first] == Mark.CAME
        marks[last[came & (marks[last] == Mark.CHANGED)]] = Mark.CAME
        hidden[last[came & (marks[last] == Mark.GONE)]] = True
        marks[last[~came & (marks[last] == Mark.CAME)]] = Mark.CHANGED
        order = _merged([numbers(run, HASH) for run in runs])
        order = order[~hidden[order]]
        return _with_marks(pa.concat_tables(runs).combine_chunks().take(order), marks[order])

    def _hidden(self, seen: "_Seen") -> tuple[Mask, Longs, Longs]:
        """Which rows a later one hides; and of each name that is there several times the last and the first row."""
        codes, marks = seen.column(self.code), seen.column(MARK)
        some = _alike(codes, codes[marks != Mark.CAME])
        groups = _Groups.of(some, codes[some])
        if not self._one_name_each(seen, groups):
            groups = _Groups.of(some, self._distinguishing_hashes(seen, some))
        hidden = np.zeros(len(codes), np.bool_)
        hidden[groups.hidden] = True
        return hidden, groups.last, groups.first

    def _one_name_each(self, seen: "_Seen", groups: "_Groups") -> bool:
        """Whether every row has the name of the last one with its code."""
        return not len(groups.hidden) or all(seen.equal(name, groups.hidden, groups.hiding) for name in self.names)

    def _distinguishing_hashes(self, seen: "_Seen", rows: Longs) -> Hashes:
        """A number for the name of each row: different names share a hash."""
        named = list(dict.fromkeys([self.code, *self.names]))
        names = frame_of(seen.taken(named, rows)).with_row_index(INDEX).group_by(named).agg(pl.col(INDEX))
        numbered = names.select(pl.int_range(pl.len(), dtype=pl.UInt64).alias(NUMBER), INDEX).explode(INDEX)
        codes = np.empty(len(rows), np.uint64)
        codes[numbered[INDEX].to_numpy()] = numbered[NUMBER].to_numpy()
        return codes


@dataclass(frozen=True)
class _Seen:
    """Some rows of several runs, numbered through; columns are fetched when they are asked for."""

    runs: Sequence[pa.Table]
    at: Sequence[Longs | None]  # per run the numbers of the rows; None: all
    ends: Longs

    @classmethod
    def of(cls, runs: Sequence[pa.Table], hashes: Hashes) -> "_Seen":
        at = [rows_of(numbers(run, HASH), hashes) for run in runs]
        return cls(runs, at, np.cumsum([0, *map(len, at)]))

    @classmethod
    def all(cls, runs: Sequence[pa.Table]) -> "_Seen":
        return cls(runs, [None] * len(runs), np.cumsum([0, *(run.num_rows for run in runs)]))

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of numbers, as a copy."""
        parts = [numbers(run, name) if at is None else numbers(run, name)[at] for run, at in zip(self.runs, self.at, strict=True)]
        return np.concatenate(parts)

    def equal(self, name: str, some: Longs, others: Longs) -> bool:
        """Whether the rows of these numbers have the same values as the others."""
        if all(pa.types.is_integer(run.field(name).type) and not run[name].null_count for run in self.runs):
            values = self.column(name)
            return bool((values[some] == values[others]).all())
        mine, theirs = (frame_of(self.taken([name], rows))[name] for rows in (some, others))
        return bool(mine.eq_missing(theirs).all())

    def taken(self, names: Sequence[str], rows: Longs) -> pa.Table:
        """The rows of these numbers, in any order."""
        chosen = np.zeros(int(self.ends[-1]), np.bool_)
        chosen[rows] = True
        some = self.rows(names, chosen)
        assert some is not None  # nobody asks for no rows
        return some.take((np.cumsum(chosen) - 1)[rows])

    def rows(self, names: Sequence[str], chosen: Mask) -> pa.Table | None:
        parts = []
        for run, at, begin, end in zip(self.runs, self.at, self.ends[:-1], self.ends[1:], strict=True):
            mine = chosen[begin:end]
            if mine.any():
                parts.append(run.select(names).take(np.flatnonzero(mine) if at is None else at[mine]))
        return pa.concat_tables(parts).combine_chunks() if parts else None


@dataclass(frozen=True)
class _Groups:
    """Rows whose codes are there several times: of each code the last and the first, and those that the last one hides."""

    last: Longs
    first: Longs
    hidden: Longs
    hiding: Longs  # the last one of each that is hidden

    @classmethod
    def of(cls, rows: Longs, codes: Hashes) -> "_Groups":
        """rows: rising numbers."""
        order, same = _by_code(codes)
        if not same.any():
            return cls(*(rows[:0],) * 4)
        before, after = np.append(False, same), np.append(same, False)  # whether the code is that of the row before, or after
        begin, end = np.flatnonzero(after & ~before), np.flatnonzero(before & ~after)
        rows = rows[order]
        return cls(rows[end], rows[begin], rows[after], np.repeat(rows[end], end - begin))


def _by_code(codes: Hashes) -> tuple[Longs, Mask]:
    """The order of the codes, equal ones as they stand; and which of them in this order are followed by an equal one.

    Sorting numbers is several times faster than sorting by them: so the place of each is packed into the low bits of its code."""
    bits = np.uint64(len(codes).bit_length())
    packed = np.sort((codes >> bits << bits) | np.arange(len(codes), dtype=np.uint64))
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    high = packed >> bits
    same, codes_ = high[1:] == high[:-1], codes[order]
    if not np.array_equal(codes_[1:][same], codes_[:-1][same]):  # codes that differ in their low bits alone
        order = np.argsort(codes, kind="stable")
        same = codes[order[1:]] == codes[order[:-1]]
    return order, same


def _with_marks(rows: pa.Table, marks: npt.NDArray[np.int8]) -> pa.Table:
    return rows.set_column(rows.column_names.index(MARK), MARK, pa.array(marks))


def rows_of(mine: Hashes, hashes: Hashes) -> Longs:
    """The numbers of those that are among the hashes (both sorted, the latter each once)."""
    if not len(mine) or not len(hashes):
        return np.empty(0, np.int64)
    if len(hashes) * 8 < len(mine):
        begin, end = np.searchsorted(mine, hashes, "left"), np.searchsorted(mine, hashes, "right")
        return spread(begin, end - begin)
    near = _alike(mine, hashes)
    at = np.minimum(np.searchsorted(hashes, mine[near]), len(hashes) - 1)
    return np.asarray(near[hashes[at] == mine[near]])


def _alike(codes: Hashes, others: Hashes) -> Longs:
    """The numbers of all codes that are among the others, and of a few more."""
    if not len(others):
        return np.empty(0, np.int64)
    bits = min(len(others).bit_length() + 5, _MOST_FLAGS)
    above = np.uint64(64 - bits)
    flags = np.zeros(1 << bits, np.bool_)
    flags[others >> above] = True
    return np.flatnonzero(flags[codes >> above])


def _merged(hashes: Sequence[Hashes]) -> Longs:
    """The rows of all runs, numbered through, in the order of their hashes: the rest is put in between those of the longest run."""
    begins = np.cumsum([0, *map(len, hashes)])
    longest = int(np.argmax([len(h) for h in hashes]))
    together = np.concatenate(hashes)
    numbered = np.arange(len(together))
    base, rest = numbered[begins[longest] : begins[longest + 1]], np.delete(numbered, np.s_[begins[longest] : begins[longest + 1]])
    rest = rest[np.argsort(together[rest], kind="stable")]
    return np.insert(base, np.searchsorted(hashes[longest], together[rest]), rest)
