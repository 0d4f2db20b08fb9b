"""What a join of tables keeps of one side: its rows by the hash of what they are joined on, and how many there are of each.

State, in one slot each: table "left" or "right", the rows (see current); table "left-count" or "right-count", signed numbers
that are added up. A changed row of one side looks up its partners on the other and never its own kind: whether the partners
were alone before is known from the number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.columns import HASH, PARTNERS, POSITION, TIME
from penstock.core.hashing import Hashes, hash64
from penstock.kernels.aggregates.partials import frame_of
from penstock.kernels.changes import touched
from penstock.kernels.columns import as_type, column, numbers, sorted_by_hash, stored
from penstock.kernels.port import State
from penstock.kernels.tables.current import NAME, Current, is_gone, name_hashes, signed, taken_back
from penstock.kernels.windows.session_state import distinct

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Side:
    """table: "left" or "right"; kept: the columns that are kept; key: what names a row, () = its position."""

    def __init__(self, table: str, kept: Sequence[str], on: pa.Schema, key: Sequence[str]) -> None:
        self.table, self.count = table, f"{table}-count"
        self._kept, self._on = [name for name in kept if name not in on.names], on
        self._names = tuple(key) or (POSITION,)
        self.current = Current(NAME, self._names)
        self._counted = pa.schema([*on, (PARTNERS, pa.int64()), (HASH, pa.uint64())])

    def signed(self, rows: pa.Table, *, alone: bool) -> pa.Table:
        """Changes as rows with HASH, NAME and MARK. alone: whether rows that match nothing are wanted too."""
        columns = {f.name: as_type(column(rows, f.name), f.type) for f in self._on}
        taken = signed(pa.table(columns | {name: column(rows, name) for name in [*self._kept, TIME, POSITION]}), taken_back(rows))
        keyed = self._keyed(taken)
        if not keyed.all() and not alone:
            taken, keyed = taken.filter(pa.array(keyed)), keyed[keyed]
        hashes = hash64([taken[name] for name in self._on.names], taken.num_rows)
        if not keyed.all():  # spread by their names; inverted, so that they do not share the hashes of what is joined on
            hashes = np.where(keyed, hashes, ~hash64([taken[name] for name in self._names], taken.num_rows))
        names = name_hashes(taken, self._names, hashes)
        return taken.append_column(HASH, pa.array(hashes)).append_column(NAME, pa.array(names))

    def changed(self, signed: pa.Table) -> "Changed":
        keyed = self._keyed(signed)
        matching = signed if keyed.all() else signed.filter(pa.array(keyed))
        return Changed(signed, keyed, self.current.run(matching), distinct([numbers(matching, HASH)]))

    def same(self, state: State, hashes: Hashes, changed: "Changed") -> pa.Table:
        """The rows with these hashes (sorted, each once) that stay as they are."""
        runs = state.runs(self.table, 0) if len(hashes) else []
        rows = self.current.live(runs, hashes, changed.run.column_names, changed.run)
        return changed.run.slice(0, 0) if rows is None else rows

    def counts(self, state: State, hashes: Hashes) -> pa.Table:
        """Signed numbers of rows for these hashes."""
        runs = state.runs(self.count, 0) if len(hashes) else []
        return pa.concat_tables([self._counted.empty_table(), *touched(runs, hashes)])

    def counted(self, changed: "Changed") -> pa.Table:
        """How the numbers change."""
        rows = changed.signed.filter(pa.array(changed.keyed))
        return self.added([rows.append_column(PARTNERS, pa.array(changed.signs[changed.keyed]))])

    def added(self, counts: Sequence[pa.Table]) -> pa.Table:
        """Numbers added up, sorted by HASH."""
        rows = frame_of(pa.concat_tables([c.select(self._counted.names) for c in counts]))
        sums = rows.group_by(*self._on.names, HASH).agg(pl.col(PARTNERS).sum()).filter(pl.col(PARTNERS) != 0)
        return sorted_by_hash(stored(sums, self._counted))

    def _keyed(self, rows: pa.Table) -> Mask:
        """Which rows may match: null equals nothing."""
        keyed = np.ones(rows.num_rows, np.bool_)
        for name in self._on.names:
            if rows[name].null_count:
                keyed &= column(rows, name).is_valid().to_numpy(zero_copy_only=False)
        return keyed


@dataclass(frozen=True)
class Changed:
    """What came for one side."""

    signed: pa.Table
    keyed: Mask  # which of these rows may match
    run: pa.Table  # as they are kept
    hashes: Hashes  # of those that may match: sorted, each once

    @property
    def gone(self) -> Mask:
        return is_gone(self.signed)

    @property
    def signs(self) -> Longs:
        return np.where(self.gone, np.int64(-1), np.int64(1))


@dataclass(frozen=True)
class Pool:
    """Rows of one side that matter: what changed, then what stays. All lists are of numbers of rows."""

    rows: pa.Table
    codes: Longs  # equal where the columns are that are joined on
    back: Longs
    new: Longs
    same: Longs
    keyed: Mask

    @classmethod
    def of(cls, changed: Changed, same: pa.Table, codes: tuple[Longs, Longs]) -> "Pool":
        rows = pa.concat_tables([changed.signed, same.select(changed.signed.column_names)]).combine_chunks()
        kept = np.arange(changed.signed.num_rows, rows.num_rows)
        keyed = np.concatenate([changed.keyed, np.ones(len(kept), np.bool_)])
        return cls(rows, np.concatenate(codes), np.flatnonzero(changed.gone), np.flatnonzero(~changed.gone), kept, keyed)

    def before(self) -> Longs:
        return np.concatenate([self.back, self.same])

    def after(self) -> Longs:
        return np.concatenate([self.new, self.same])
