"""Aggregates that cannot be taken back: the rows of a group are kept, and it is aggregated anew whenever one of them changes."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.core.columns import HASH, POSITION, TIME
from penstock.core.hashing import hash64
from penstock.kernels.aggregates.unanswered import parted
from penstock.kernels.changes import SENT, Differences
from penstock.kernels.columns import column, numbers, sorted_by_hash
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.tables.current import MARK, NAME, Current, Mark, name_hashes, signed, taken_back
from penstock.kernels.tables.grouping_results import GroupResults
from penstock.kernels.windows.session_state import distinct

ROWS = "rows"


class RowsKernel:
    """State, in one slot each: table "rows", the rows by the hash of their group, and table "sent"; of both the newest counts."""

    gives_position = True

    def __init__(self, results: GroupResults, key: Sequence[str]) -> None:
        """key: what names a row of the table; () = its position."""
        self._results, self._aggregation = results, results.aggregation
        self._names = tuple(key) or (POSITION,)
        self.needs_position = self._aggregation.needs_position or not key
        placed = [POSITION] if self._aggregation.needs_position else []
        self._read = list(dict.fromkeys([*results.by, *self._aggregation.columns, TIME, *placed]))
        self._columns = list(dict.fromkeys([*self._read, *self._names]))
        self._rows = Current(NAME, self._names)
        self._groups = Current(HASH, tuple(results.name))

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        taken = self._results.plain(pa.table({name: column(rows, name) for name in self._columns}))
        hashes = hash64([taken[name] for name in self._results.by], taken.num_rows)
        taken = signed(taken, taken_back(rows)).append_column(HASH, pa.array(hashes))
        taken = taken.append_column(NAME, pa.array(name_hashes(taken, self._names, hashes)))
        return Prepared(taken, fates=+Counter(passed=rows.num_rows))

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        if rows[0] is None or not rows[0].num_rows:
            return Stepped(self._results.nothing(), Changes())
        run = self._rows.run(rows[0])
        hashes = distinct([numbers(run, HASH)])
        there = self._rows.live([*state.runs(ROWS, 0), run], hashes, self._read)
        wanted, failed = parted(self._results_of(run.slice(0, 0).select(self._read) if there is None else there))
        sent = self._groups.live(state.runs(SENT, 0), hashes, wanted.column_names)
        changes = self._results.changes(wanted.slice(0, 0) if sent is None else sent, wanted)
        added = {(ROWS, 0): run, (SENT, 0): _sent(changes)}
        made = Changes({place: part for place, part in added.items() if part.num_rows})
        return Stepped(self._results.changelog(changes), made, failed=failed)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return (self._rows if table == ROWS else self._groups).merge(runs)

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        """Everything it has to say is said."""
        return None

    def _results_of(self, rows: pa.Table) -> pa.Table:
        partials = self._aggregation.partial(rows, self._results.by, {})
        hashes = hash64([partials[name] for name in self._results.by], partials.num_rows)
        return self._results.of(partials.append_column(HASH, pa.array(hashes)))


def _sent(changes: Differences) -> pa.Table:
    """What is then known as sent, sorted by HASH."""
    marked = ((changes.deleted, Mark.GONE), (changes.after, Mark.CHANGED), (changes.inserted, Mark.CAME))
    parts = [rows.append_column(MARK, pa.array(np.full(rows.num_rows, mark, np.int8))) for rows, mark in marked]
    return sorted_by_hash(pa.concat_tables(parts))
