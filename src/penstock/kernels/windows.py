"""Tumbling windows: partial aggregates where the rows are, folded per bucket, sent when the frontier reaches their end."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.change import HASH, POSITION, TIME, WATERMARK
from penstock.core.hashing import hash64
from penstock.core.position import window_positions
from penstock.core.time import NEVER, micros
from penstock.kernels.aggregates import Aggregate, Partial, fold, parts_of, result
from penstock.kernels.judging import late_for_window, window_starts
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.tables import as_type, column, numbers, stored

OPEN = "open"
START = "__start"


class WindowKernel:
    """Rows of one key and one stretch of `size_us` (aligned to 1970) become one row, once F has reached the end of the stretch.

    State: table "open", one slot a window, runs of partial results that are added up."""

    needs_position, gives_position = False, True

    def __init__(
        self,
        by: Sequence[str],
        size_us: int,
        aggregates: Sequence[Aggregate],
        late: Literal["divert", "ignore"],
        input_schema: pa.Schema,
        output_schema: pa.Schema,
    ) -> None:
        self._by, self._size, self._aggregates, self._late = tuple(by), size_us, tuple(aggregates), late
        self._input, self._output = input_schema, output_schema
        self._parts = parts_of(aggregates, input_schema)
        self._needed = list(dict.fromkeys([*by, *(part.column for part in self._parts if part.column)]))
        fields = [input_schema.field(name) for name in by] + [pa.field(START, pa.int64())]
        fields += [f for part in self._parts for f in part.fields] + [pa.field(HASH, pa.uint64())]
        self._results_schema = pa.schema([*output_schema, (TIME, pa.int64()), (WATERMARK, pa.int64()), (POSITION, pa.binary())])
        self._partials = pa.schema([f.with_nullable(True) for f in fields])

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Judges rows and adds up those on time, by key and window."""
        on_time, late, fates = self._judge(rows)
        if not on_time.num_rows:
            return Prepared(self._partials.empty_table(), late, fates)
        return Prepared(self._aggregate(on_time), late, fates)

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        complete = [slot for slot in state.slots(OPEN) if slot + self._size <= frontiers[0]]
        pieces = [run for slot in complete for run in state.runs(OPEN, slot)]
        if rows[0] is not None and rows[0].num_rows:
            pieces.append(rows[0])
        folded = self._fold(pieces)
        starts = numbers(folded, START)
        done = starts + self._size <= frontiers[0]
        changes = Changes(self._runs(folded.filter(pa.array(~done))), {(OPEN, slot) for slot in complete})
        return Stepped(self._results(folded if done.all() else folded.filter(pa.array(done))), changes)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        merged = self._fold(runs)
        return merged.take(pa.array(np.argsort(numbers(merged, HASH), kind="stable")))

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        return self._results(self._fold([run for slot in state.slots(OPEN) for run in state.runs(OPEN, slot)]))

    def _judge(self, rows: pa.Table) -> tuple[pa.Table, pa.Table | None, "Counter[str]"]:
        if WATERMARK not in rows.column_names:
            return rows, None, Counter({"on time": rows.num_rows})
        late = late_for_window(numbers(rows, TIME), numbers(rows, WATERMARK), self._size)
        count = int(np.count_nonzero(late))
        if not count:
            return rows, None, Counter({"on time": rows.num_rows})
        fates = Counter({"on time": rows.num_rows - count, "diverted" if self._late == "divert" else "ignored": count})
        on_time = rows.select([*self._needed, TIME]).filter(pa.array(~late))
        return on_time, rows.filter(pa.array(late)) if self._late == "divert" else None, fates

    def _aggregate(self, rows: pa.Table) -> pa.Table:
        partial = Partial(self._parts, rows)
        made = [pl.Series(START, window_starts(numbers(rows, TIME), self._size)), *partial.columns.values()]
        plain = [pl.col(name) + 0.0 for name in self._by if pa.types.is_floating(self._input.field(name).type)]  # -0.0 is 0.0
        frame = _polars(rows.select(self._needed)).lazy().with_columns(*made, *plain) if self._needed else pl.LazyFrame(made)
        grouping = frame.group_by(*self._by, START)
        grouped = partial.finish(grouping.agg(partial.expressions).collect())
        table = stored(grouped, pa.schema([f for f in self._partials if f.name != HASH]))
        return table.append_column(HASH, pa.array(hash64([table[name] for name in self._by], table.num_rows)))

    def _fold(self, pieces: Sequence[pa.Table]) -> pa.Table:
        if not pieces:
            return self._partials.empty_table()
        together = pa.concat_tables([piece.select(self._partials.names) for piece in pieces])
        return stored(fold(self._parts, _polars(together).lazy(), [*self._by, START], [HASH]), self._partials)

    def _runs(self, partials: pa.Table) -> dict[tuple[str, int], pa.Table]:
        """One run a window, sorted by hash."""
        if not partials.num_rows:
            return {}
        ordered = partials.take(pa.array(self._order(numbers(partials, START), numbers(partials, HASH))))
        starts = numbers(ordered, START)
        at: npt.NDArray[np.int64] = np.flatnonzero(np.diff(starts, prepend=starts[0] - 1))
        ends = [*at[1:].tolist(), len(starts)]
        return {(OPEN, int(starts[a])): ordered.slice(a, b - a) for a, b in zip(at.tolist(), ends, strict=True)}

    def _order(self, starts: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """By window, then hash."""
        by_hash = np.argsort(hashes)
        windows = (starts[by_hash] - starts.min()) // self._size
        if windows.max() < 2**16:  # sixteen bits are sorted by radix
            windows = windows.astype(np.uint16)
        return np.asarray(by_hash[np.argsort(windows, kind="stable")])

    def _results(self, partials: pa.Table) -> pa.Table:
        if not partials.num_rows:
            return self._results_schema.empty_table()
        starts = numbers(partials, START)
        made: dict[str, pa.Array] = {
            "window_start": pa.array(starts),
            "window_end": pa.array(starts + self._size),
            "revision": pa.array(np.zeros(len(starts), np.int64)),
        }
        made |= {name: column(partials, name) for name in self._by}
        made |= {a.name: result(a, partials, self._input) for a in self._aggregates}
        columns = {f.name: as_type(made[f.name], f.type) for f in self._output}
        columns[TIME] = pa.array(starts + (self._size - 1))
        columns[WATERMARK] = pa.array(np.full(len(starts), NEVER))
        columns[POSITION] = window_positions([column(partials, name) for name in self._by], starts)
        return pa.table(columns, schema=self._results_schema)


class Definition(Protocol):
    """What a flow says of a window."""

    @property
    def by(self) -> Sequence[str]: ...
    @property
    def size(self) -> timedelta: ...
    @property
    def aggregates(self) -> Sequence[Aggregate]: ...
    @property
    def late(self) -> Literal["divert", "ignore"]: ...


def build(window: Definition, inputs: Sequence[pa.Schema], output: pa.Schema) -> WindowKernel:
    return WindowKernel(window.by, micros(window.size), window.aggregates, window.late, inputs[0], output)


def _polars(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame
