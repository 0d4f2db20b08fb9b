"""The current row of each key: of all its versions the greatest in order; a delete is a version too, and is remembered."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.change import Op
from penstock.core.columns import HASH, INDEX, OP, POSITION, TIME, WATERMARK
from penstock.core.hashing import hash64
from penstock.core.time import NEVER
from penstock.kernels.aggregates.partials import frame_of, joinable
from penstock.kernels.changes import net_changes, newest_of_all, once, touched
from penstock.kernels.column_names import GONE
from penstock.kernels.columns import numbers, sorted_by_hash, travelling
from penstock.kernels.keyed import in_order, key_numbers
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.tables.latest_pairs import Pairs, one_key_a_hash
from penstock.plan import Latest

CURRENT = "current"


class LatestKernel:
    """Versions come in any order; what holds is the greatest (time, position) of a key, and older never overwrites newer.

    State, in one slot: table "current", the newest version of each key, also where it is a delete."""

    needs_position, gives_position = True, True

    def __init__(self, latest: Latest, output_schema: pa.Schema) -> None:
        self._by = list(latest.by)
        first = self._first = [latest.order] if latest.order else []
        self._order = [POSITION] if latest.by_position else [*first, TIME, POSITION]
        self._output = output_schema
        self._kept = [*dict.fromkeys([*output_schema.names, *self._by, *first]), TIME, POSITION]

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Of the versions of a key only the newest travels."""
        taken = rows.select(self._kept)
        taken = taken.append_column(HASH, pa.array(hash64([taken[name] for name in self._by], taken.num_rows)))
        taken = taken.append_column(GONE, pa.array(_gone(rows)))
        return Prepared(self._newest(taken), fates=+Counter(passed=rows.num_rows))

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        new = rows[0]
        if new is None or not new.num_rows:
            return Stepped(travelling(self._output, (OP, pa.int8())).empty_table(), Changes())
        known = touched(state.runs(CURRENT, 0), once(numbers(new, HASH)))
        pairs = None if self._first else one_key_a_hash(known, new, self._by)
        changed, fresh = self._changed(pairs) if pairs else self._compared(known, new)
        changes = Changes({(CURRENT, 0): sorted_by_hash(fresh)}) if fresh.num_rows else Changes()
        return Stepped(changed.select(travelling(self._output, (OP, pa.int8())).names), changes)

    def _changed(self, pairs: Pairs) -> tuple[pa.Table, pa.Table]:
        """The changes, and the versions that hold now."""
        newer = pairs.newer(self._order)
        was, is_ = pairs.known & ~_are_gone(pairs.old, pairs.at), ~_are_gone(pairs.new, None)
        rows = np.flatnonzero(newer)
        fresh = pairs.new if newer.all() else pairs.new.take(rows)
        parts = [
            (pairs.old, pairs.at[newer & was & ~is_], Op.DELETE),
            (pairs.old, pairs.at[newer & was & is_], Op.UPDATE_BEFORE),
            (pairs.new, np.flatnonzero(newer & was & is_), Op.UPDATE_AFTER),
            (pairs.new, np.flatnonzero(newer & ~was & is_), Op.INSERT),
        ]
        return pa.concat_tables([self._with_op(table.take(some), op) for table, some, op in parts]), fresh

    def _compared(self, known: Sequence[pa.Table], new: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The same where keys share a hash, or a column says which version is newer."""
        old = newest_of_all(known, self._by) if known else new.slice(0, 0)
        both = pa.concat_tables([old, new])
        winners = self._winners(both)
        fresh = both.take(winners[winners >= old.num_rows])
        beaten = self._of_these_keys(old, fresh)
        out, _ = net_changes(self._sent(_live(beaten)), self._sent(_live(fresh)), self._by, [*self._output.names, TIME, POSITION])
        return out, fresh

    def _with_op(self, rows: pa.Table, op: Op) -> pa.Table:
        columns = [*dict.fromkeys([*self._output.names, *self._by]), TIME, POSITION]
        rows = rows.select(columns).append_column(WATERMARK, pa.array(np.full(rows.num_rows, NEVER)))
        return rows.append_column(OP, pa.array(np.full(rows.num_rows, op, np.int8)))

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return newest_of_all(runs, self._by)

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        """Everything it has to say is said."""
        return None

    def _newest(self, rows: pa.Table) -> pa.Table:
        winners = self._winners(rows)
        return rows if len(winners) == rows.num_rows else rows.take(winners)

    def _winners(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """The numbers of the rows that are the greatest of their key."""
        if not rows.num_rows:
            return np.empty(0, np.int64)
        keys = key_numbers(rows, self._by)
        if len(np.unique(keys)) == len(keys):
            return np.arange(len(keys))
        order = in_order(rows, keys) if self._order == [TIME, POSITION] else self._sorted(rows, keys)
        ends = np.append(keys[order][1:] != keys[order][:-1], True)
        return np.sort(order[ends])

    def _sorted(self, rows: pa.Table, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        frame = frame_of(rows.select(self._order)).with_columns(pl.Series("__k", keys)).with_row_index(INDEX)
        return frame.sort("__k", *self._order, nulls_last=False)[INDEX].cast(pl.Int64).to_numpy()

    def _of_these_keys(self, old: pa.Table, fresh: pa.Table) -> pa.Table:
        """What held until now for the keys that have a new version."""
        if not old.num_rows:
            return old
        mine = joinable(old, self._by).with_row_index(INDEX)
        return old.take(mine.join(joinable(fresh, self._by), on=self._by, how="semi", nulls_equal=True)[INDEX].to_arrow())

    def _sent(self, rows: pa.Table) -> pa.Table:
        """Rows as they travel, with HASH and what `net_changes` wants to know of them."""
        rows = rows.append_column(WATERMARK, pa.array(np.full(rows.num_rows, NEVER)))
        return rows.select([*dict.fromkeys([*self._output.names, *self._by]), TIME, WATERMARK, POSITION, HASH])


def build(latest: Latest, inputs: Sequence[pa.Schema], output: pa.Schema) -> LatestKernel:
    return LatestKernel(latest, output)


def _gone(rows: pa.Table) -> npt.NDArray[np.bool_]:
    if OP not in rows.column_names:
        return np.zeros(rows.num_rows, np.bool_)
    return np.asarray(numbers(rows, OP) == Op.DELETE)


def _are_gone(rows: pa.Table, at: npt.NDArray[np.int64] | None) -> npt.NDArray[np.bool_]:
    """Which of the rows of these numbers are gone; a number below zero is any."""
    gone: npt.NDArray[np.bool_] = rows[GONE].to_numpy()
    if at is None:
        return gone
    return gone[at] if len(gone) else np.zeros(len(at), np.bool_)


def _live(rows: pa.Table) -> pa.Table:
    return rows.filter(pa.array(~rows[GONE].to_numpy()))
