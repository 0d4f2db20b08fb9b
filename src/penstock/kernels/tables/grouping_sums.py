"""Aggregates that can be taken back exactly: a group is a few numbers, and a row that goes is subtracted from them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.arrow import schema_of
from penstock.core.columns import HASH, TIME
from penstock.core.hashing import hash64
from penstock.kernels.aggregates.functions import kept_for
from penstock.kernels.aggregates.parts import Greatest, Rows
from penstock.kernels.columns import numbers, sorted_by_hash
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.tables.current import MARK, Current, Mark, taken_back
from penstock.kernels.tables.grouping_results import GroupResults
from penstock.kernels.windows.session_state import distinct
from penstock.plan import Aggregate

GROUPS = "groups"

_SIGN = "__sign"
_NEWEST = Greatest(TIME, pa.int64()).at(0)
_ROWS = Rows().at(0)


def can_be_taken_back(aggregates: Sequence[Aggregate], rows: pa.Schema) -> bool:
    """Whether all are sums of whole numbers: what is subtracted leaves what would be there without it."""
    kept = kept_for(aggregates, rows)
    return not kept.bags and all(part.taken_back for part in kept.parts)


class SumsKernel:
    """State, in one slot: table "groups", the partial results of each group, of which the newest counts.

    The time of a group is the newest of the rows that it has had since it is there."""

    needs_position, gives_position = False, True

    def __init__(self, results: GroupResults, rows: pa.Schema) -> None:
        self._results, self._aggregation = results, results.aggregation
        self._columns = list(dict.fromkeys([*results.by, *(c for c in self._aggregation.columns if c != TIME), TIME]))
        self._added = [f.name for f in self._aggregation.fields if f.name != _NEWEST]
        keys = [rows.field(name).with_nullable(True) for name in results.by]
        self._schema = schema_of([*keys, *self._aggregation.fields, (HASH, pa.uint64())])
        self._groups = Current(HASH, tuple(results.name))

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        if not rows.num_rows:
            return Prepared(self._schema.empty_table())
        signs = np.where(taken_back(rows), np.int64(-1), np.int64(1))
        partial = self._aggregation.partial(self._results.plain(rows.select(self._columns)), self._results.by, {_SIGN: signs})
        sign = numbers(partial, _SIGN)
        if (sign < 0).any():
            for name in self._added:
                at = partial.column_names.index(name)
                partial = partial.set_column(at, partial.field(at), pa.array(numbers(partial, name) * sign))
        hashes = hash64([partial[name] for name in self._results.by], partial.num_rows)
        return Prepared(
            partial.append_column(HASH, pa.array(hashes)).select(self._schema.names), fates=Counter(passed=rows.num_rows)
        )

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        new = rows[0]
        if new is None or not new.num_rows:
            return Stepped(self._results.nothing(), Changes())
        known = self._groups.live(state.runs(GROUPS, 0), distinct([numbers(new, HASH)]), self._schema.names)
        old = self._schema.empty_table() if known is None else known
        groups = self._together(old, new)
        there = numbers(groups, _ROWS) > 0
        changes = self._results.changes(self._results.of(old), self._results.of(groups.filter(pa.array(there))))
        run = self._run(groups, there)
        return Stepped(self._results.changelog(changes), Changes({(GROUPS, 0): run} if run.num_rows else {}))

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return self._groups.merge(runs)

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        """Everything it has to say is said."""
        return None

    def _together(self, old: pa.Table, new: pa.Table) -> pa.Table:
        """Partial results of each group as one; MARK says of all of them that they changed, unless none is old."""
        pieces = [
            _marked(old, np.full(old.num_rows, Mark.CHANGED, np.int8)),
            _marked(new, np.full(new.num_rows, Mark.CAME, np.int8)),
        ]
        return self._aggregation.fold(pa.concat_tables(pieces), self._results.by, [HASH], [pl.col(MARK).max()])

    def _run(self, groups: pa.Table, there: npt.NDArray[np.bool_]) -> pa.Table:
        """Groups as they are kept; one that came and went leaves nothing."""
        marks = np.where(there, numbers(groups, MARK), np.int8(Mark.GONE))
        kept = there | (numbers(groups, MARK) == Mark.CHANGED)
        return sorted_by_hash(_marked(groups.select(self._schema.names), marks).filter(pa.array(kept)))


def _marked(rows: pa.Table, marks: npt.NDArray[np.int8]) -> pa.Table:
    return rows.append_column(MARK, pa.array(marks))
