"""New versions and what is known of their keys, brought together by hash: quick where no two keys share one, as almost always."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.columns import HASH, POSITION, TIME
from penstock.kernels.changes import once
from penstock.kernels.columns import column, numbers

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """Row i of `new` has the key of row at[i] of `old`, or of none where at[i] is -1."""

    new: pa.Table
    old: pa.Table
    at: Longs

    @property
    def known(self) -> Mask:
        return np.asarray(self.at >= 0)

    def newer(self, order: Sequence[str]) -> Mask:
        """Which of the new versions come after the old one, by (time, position) or by position alone."""
        newer = np.ones(len(self.at), np.bool_)
        rows = np.flatnonzero(self.known)
        old = self.at[rows]
        if TIME in order:
            mine, theirs = numbers(self.new, TIME)[rows], numbers(self.old, TIME)[old]
            newer[rows[mine < theirs]] = False
            tied = mine == theirs
            rows, old = rows[tied], old[tied]
        if len(rows):
            newer[rows] = (_taken(self.new, POSITION, rows) > _taken(self.old, POSITION, old)).to_numpy()
        return newer


def one_key_a_hash(known: Sequence[pa.Table], new: pa.Table, by: Sequence[str]) -> Pairs | None:
    """known: runs, oldest first, of which the last one that has a key counts. None: a key came twice, or keys share a hash."""
    mine = numbers(new, HASH)
    if len(once(mine)) != len(mine):
        return None
    old = pa.concat_tables([new.slice(0, 0), *known]).combine_chunks()
    hashes = numbers(old, HASH)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    last = np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]
    newest, theirs = order[last], ordered[last]
    hiding = newest[np.searchsorted(theirs, ordered[~last])]
    if not _same(old, order[~last], old, hiding, by):
        return None
    at = np.full(len(mine), -1)
    if len(theirs):
        place = np.minimum(np.searchsorted(theirs, mine), len(theirs) - 1)
        found = theirs[place] == mine
        at[found] = newest[place[found]]
        if not _same(new, np.flatnonzero(found), old, at[found], by):
            return None
    return Pairs(new, old, at)


def _same(left: pa.Table, rows: Longs, right: pa.Table, others: Longs, by: Sequence[str]) -> bool:
    """Whether these rows have the keys of the others."""
    if not len(rows):
        return True
    return all(_taken(left, name, rows).eq_missing(_taken(right, name, others)).all() for name in by)


def _taken(table: pa.Table, name: str, rows: Longs) -> pl.Series:
    return pl.Series(pl.from_arrow(column(table, name))).gather(rows)
