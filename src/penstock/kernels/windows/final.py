"""Fixed windows that are sent once, when the frontier reaches their end: partial results where the rows are, folded per bucket."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.hashing import hash64
from penstock.core.position import window_positions
from penstock.core.time import NEVER
from penstock.kernels.aggregates.partials import Aggregation
from penstock.kernels.aggregates.unanswered import parted, stepped, with_failed
from penstock.kernels.column_names import START
from penstock.kernels.columns import as_type, column, numbers, travelling
from penstock.kernels.judging import Verdicts, judge_windows
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.plan import Aggregate, Late
from penstock.plan.layouts import Layout

OPEN = "open"


class WindowKernel:
    """Rows of one key and one window become one row, once F has reached the window's end. Every time lies in one window at most.

    State: table "open", one slot a window, runs of partial results that are added up."""

    gives_position = True

    def __init__(
        self,
        by: Sequence[str],
        layout: Layout,
        aggregates: Sequence[Aggregate],
        late: Late,
        input_schema: pa.Schema,
        output_schema: pa.Schema,
        allowed_us: int = 0,
    ) -> None:
        self._by, self._layout, self._late = tuple(by), layout, late
        self._input, self._output = input_schema, output_schema
        self._allowed = allowed_us if late == "correct" else 0
        self._aggregation = Aggregation(aggregates, input_schema)
        self.needs_position: bool | Literal["late"] = self._aggregation.needs_position
        keys = [input_schema.field(name).with_nullable(True) for name in by] + [pa.field(START, pa.int64())]
        self._partials = pa.schema([*keys, *self._aggregation.fields, pa.field(HASH, pa.uint64())])
        self._results_schema = travelling(output_schema)

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Judges rows and adds up those that count, by key and window."""
        verdicts = self.judged(rows)
        late = rows.filter(pa.array(verdicts.late)) if verdicts.late is not None and self._late != "ignore" else None
        return Prepared(self._counted(rows, verdicts), late, verdicts.fates)

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        complete = [slot for slot in state.slots(OPEN) if self._layout.last_end(slot) <= frontiers[0]]
        pieces = [run for slot in complete for run in state.runs(OPEN, slot)]
        if rows[0] is not None and rows[0].num_rows:
            pieces.append(rows[0])
        folded = self._fold(pieces)
        done = self._layout.ends(numbers(folded, START)) <= frontiers[0]
        waiting = folded.filter(pa.array(~done))
        changes = Changes(by_start(OPEN, waiting, numbers(waiting, START)), {(OPEN, slot) for slot in complete})
        return stepped(self._results(folded if done.all() else folded.filter(pa.array(done))), changes)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        merged = self._fold(runs)
        return merged.take(np.argsort(numbers(merged, HASH), kind="stable"))

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        return parted(self._results(self._fold([run for slot in state.slots(OPEN) for run in state.runs(OPEN, slot)])))[0]

    def judged(self, rows: pa.Table) -> Verdicts:
        """Which rows count, and for which windows."""
        times = numbers(rows, TIME)
        at = numbers(rows, WATERMARK) if WATERMARK in rows.column_names else np.full(len(times), NEVER)
        return judge_windows(self._layout, times, at, self._late, self._allowed)

    def _counted(self, rows: pa.Table, verdicts: Verdicts) -> pa.Table:
        """The partial results of the rows that count for all windows of their pane."""
        if verdicts.whole is not None:
            wanted = [*self._by, *self._aggregation.columns, TIME, *([POSITION] if self._aggregation.needs_position else [])]
            rows = rows.select(list(dict.fromkeys(wanted))).filter(pa.array(verdicts.whole))
        if not rows.num_rows:
            return self._partials.empty_table()
        return self._partial(rows, self._layout.panes(numbers(rows, TIME)))

    def _partial(self, rows: pa.Table, starts: npt.NDArray[np.int64]) -> pa.Table:
        partial = self._aggregation.partial(rows, self._by, {START: starts})
        return partial.append_column(HASH, pa.array(hash64([partial[name] for name in self._by], partial.num_rows)))

    def _fold(self, pieces: Sequence[pa.Table]) -> pa.Table:
        if not pieces:
            return self._partials.empty_table()
        together = pa.concat_tables([piece.select(self._partials.names) for piece in pieces])
        return self._aggregation.fold(together, [*self._by, START], [HASH])

    def _results(self, partials: pa.Table) -> pa.Table:
        if not partials.num_rows:
            return self._results_schema.empty_table()
        starts = numbers(partials, START)
        ends = self._layout.ends(starts)
        made: dict[str, Any] = {"window_start": pa.array(starts), "window_end": pa.array(ends), **self._revisions(partials)}
        made |= {name: column(partials, name) for name in self._by}
        made |= self._aggregation.results(partials, (ends - starts) / 1e6)
        columns = {f.name: as_type(made[f.name], f.type) for f in self._output}
        columns[TIME] = pa.array(ends - 1)
        columns[WATERMARK] = pa.array(np.full(len(starts), NEVER))
        columns[POSITION] = window_positions([column(partials, name) for name in self._by], starts)
        return with_failed(pa.table(columns, schema=self._results_schema), made)

    def _revisions(self, partials: pa.Table) -> dict[str, pa.Array]:
        """What a result says of late rows."""
        return {"revision": pa.array(np.zeros(partials.num_rows, np.int64))}


def by_start(table: str, rows: pa.Table, starts: npt.NDArray[np.int64]) -> dict[tuple[str, int], pa.Table]:
    """One run for each start, sorted by hash."""
    if not rows.num_rows:
        return {}
    order = _order(starts, numbers(rows, HASH))
    ordered, starts = rows.take(order), starts[order]
    at = np.flatnonzero(np.diff(starts, prepend=starts[0] - 1)).tolist()
    return {(table, int(starts[a])): ordered.slice(a, b - a) for a, b in zip(at, [*at[1:], len(starts)], strict=True)}


def _order(starts: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """By start, then hash."""
    by_hash = np.argsort(hashes)
    known, windows = np.unique(starts[by_hash], return_inverse=True)
    if len(known) < 2**16:  # sixteen bits are sorted by radix
        windows = windows.astype(np.uint16)
    return np.asarray(by_hash[np.argsort(windows, kind="stable")])
