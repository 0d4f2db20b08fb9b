"""Rows of state of which the newest counts: a run says which rows came, which changed, and which are gone.

A row is named by some of its columns, and a hash of them tells rows apart quickly. Names are compared before two rows are taken for
one, so that equal hashes do no harm.

A row that is gone is remembered, since an older run may still hold it. FRESH says that no older run does: when a row that came as a
fresh one is gone within the same merge, nothing has to be remembered of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.change import OP, Op
from penstock.core.hashing import Hashes, hash64
from penstock.kernels.aggregation import frame_of
from penstock.kernels.changes import GONE
from penstock.kernels.tables import column, numbers, sorted_by_hash

Mask = npt.NDArray[np.bool_]

FRESH = "__fresh"
NAME = "__name"  # uint64: a hash of HASH and what names a row, where that is not what HASH is made of

_MULTIPLIER = np.uint64(0xD1342543DE82EF95)


def taken_back(rows: pa.Table) -> Mask:
    """Which rows of a changelog take a row back; none of those without OP."""
    if OP not in rows.column_names:
        return np.zeros(rows.num_rows, np.bool_)
    ops = numbers(rows, OP)
    return np.asarray((ops == Op.UPDATE_BEFORE) | (ops == Op.DELETE))


def name_hashes(rows: pa.Table, names: Sequence[str], hashes: Hashes) -> Hashes:
    """NAME of rows with these columns as names and these hashes."""
    with np.errstate(over="ignore"):
        return np.asarray(hashes * _MULTIPLIER + hash64([rows[name] for name in names], rows.num_rows))


def with_mark(rows: pa.Table, name: str, marks: Mask) -> pa.Table:
    return rows.append_column(name, pa.array(marks))


def marks(rows: pa.Table, name: str) -> Mask:
    return np.asarray(column(rows, name).to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class Current:
    """Rows named by these columns; code: the column of their hash."""

    code: str
    names: tuple[str, ...]

    def run(self, signed: pa.Table) -> pa.Table:
        """What is kept of signed rows (GONE: taken back, else put in): one row per name, sorted by HASH."""
        gone = marks(signed, GONE)
        if gone.any():
            signed = pa.concat_tables([signed.filter(pa.array(gone)), signed.filter(pa.array(~gone))])
            gone = np.sort(gone)[::-1]
        return self.merge([with_mark(signed, FRESH, ~gone)])

    def live(self, runs: Sequence[pa.Table], changed: pa.Table | None = None) -> pa.Table | None:
        """The rows that are there according to runs, oldest first; changed: a newer run, whose rows are left out."""
        if not runs:
            return None
        rows = pa.concat_tables(runs if changed is None else [*runs, changed.select(runs[0].column_names)])
        _, there = self._last(rows)
        there &= ~marks(rows, GONE)
        if changed is not None:
            there[rows.num_rows - changed.num_rows :] = False
        return rows if there.all() else rows.filter(pa.array(there))

    def merge(self, runs: Sequence[pa.Table]) -> pa.Table:
        """Runs as one that means the same, sorted by HASH: the last row of each name, as fresh as the first one is."""
        rows = pa.concat_tables(runs)
        codes, last = self._last(rows)
        if last.all():
            return sorted_by_hash(rows)
        first = pl.Series(codes).is_first_distinct().to_numpy()
        fresh = marks(rows, FRESH).copy()
        fresh[_by_code(codes, last & ~first)] = fresh[_by_code(codes, first & ~last)]
        kept = last & ~(fresh & marks(rows, GONE))
        at = rows.column_names.index(FRESH)
        return sorted_by_hash(rows.set_column(at, FRESH, pa.array(fresh)).filter(pa.array(kept)))

    def _last(self, rows: pa.Table) -> tuple[npt.NDArray[np.uint64], Mask]:
        """Numbers that are equal where names are; and which rows are the last of their name."""
        codes = numbers(rows, self.code)
        last = np.array(pl.Series(codes).is_last_distinct().to_numpy())
        if last.all() or self._one_name_each(rows, codes, last):
            return codes, last
        codes = self._told_apart(rows)
        return codes, np.array(pl.Series(codes).is_last_distinct().to_numpy())

    def _one_name_each(self, rows: pa.Table, codes: Hashes, last: Mask) -> bool:
        """Whether every row has the name of the last one with its code."""
        hidden, shown = np.flatnonzero(~last), np.flatnonzero(last)
        shown = shown[np.isin(codes[shown], codes[hidden])]
        shown = shown[np.argsort(codes[shown])]
        winners = shown[np.searchsorted(codes[shown], codes[hidden])]
        names = rows.select(self.names)
        mine, theirs = frame_of(names.take(pa.array(hidden))), frame_of(names.take(pa.array(winners)))
        return all(mine[name].eq_missing(theirs[name]).all() for name in self.names)

    def _told_apart(self, rows: pa.Table) -> Hashes:
        """Different names share a hash."""
        groups = frame_of(rows.select(self.names)).with_row_index("__i").group_by(self.names).agg(pl.col("__i"))
        numbered = groups.select(pl.int_range(pl.len(), dtype=pl.UInt64).alias("__n"), "__i").explode("__i")
        codes = np.empty(rows.num_rows, np.uint64)
        codes[numbered["__i"].to_numpy()] = numbered["__n"].to_numpy()
        return codes


def _by_code(codes: Hashes, chosen: Mask) -> npt.NDArray[np.int64]:
    """The chosen rows in the order of their codes."""
    rows = np.flatnonzero(chosen)
    return rows[np.argsort(codes[rows])]
