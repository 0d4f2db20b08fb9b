"""Count windows: every so many rows of a key, in the order (time, position), become one row.

State: rows that wait until F > t (kernels/waiting_rows.py), and "open": for each key its window that is not yet full, as a partial
result, and how many were full before; the newest run wins.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.position import window_positions
from penstock.core.time import FOREVER, NEVER
from penstock.kernels.aggregates.partials import Aggregation
from penstock.kernels.aggregates.unanswered import parted, stepped, with_failed
from penstock.kernels.changes import newest_of_all, touched
from penstock.kernels.column_names import FIRST, GROUP, LAST, NUMBER
from penstock.kernels.columns import as_type, column, numbers, plain, sorted_by_hash, travelling
from penstock.kernels.keyed import in_order, judge_instants, key_numbers, placed
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.waiting_rows import WaitingRows
from penstock.plan import Aggregate, Count, Late

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

OPEN = "open"
ROWS = "__rows"  # in the window

_TOLD = [pa.field(name, pa.int64()) for name in (NUMBER, ROWS, FIRST, LAST)]


class Opened(NamedTuple):
    """What is known of open windows, and for each key that came: where in that, full windows before it, rows, time of the first."""

    table: pa.Table
    at: Longs
    number: Longs
    rows: Longs
    first: Longs

    @classmethod
    def of(cls, table: pa.Table, keys: Longs, count: int) -> "Opened":
        """keys: the key's number for each row of the table; count: how many keys there are."""
        at, number, rows, first = (np.zeros(count, np.int64) for _ in range(4))
        at[keys] = np.arange(len(keys))
        number[keys], rows[keys], first[keys] = (numbers(table, name) for name in (NUMBER, ROWS, FIRST))
        return cls(table, at, number, rows, first)


class CountKernel:
    """Rows are taken once F > t. TIME of a window is that of its last row."""

    needs_position, gives_position = True, True

    def __init__(
        self,
        by: Sequence[str],
        rows: int,
        aggregates: Sequence[Aggregate],
        late: Late,
        input_schema: pa.Schema,
        output_schema: pa.Schema,
        *,
        waiting: WaitingRows | None = None,
    ) -> None:
        self._by, self._rows, self._late = tuple(by), rows, late
        self._waiting = waiting or WaitingRows("waiting")
        self._aggregation = Aggregation(aggregates, input_schema)
        self._placed = placed(input_schema.field(name) for name in [*by, *self._aggregation.columns])
        keys = [input_schema.field(name).with_nullable(True) for name in by]
        self._windows = pa.schema([*keys, *self._aggregation.fields, *_TOLD, pa.field(HASH, pa.uint64())])
        self._output = output_schema
        self._schema = travelling(output_schema)

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Judges rows; those on time go on and are never judged again."""
        prepared = judge_instants(rows, self._placed, self._by, self._late)
        for name in self._by:
            at = prepared.rows.column_names.index(name)
            prepared.rows = prepared.rows.set_column(at, prepared.rows.schema.field(at), plain(prepared.rows[name]))
        return prepared

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        changes = Changes()
        windows = self._filled(state, rows[0], frontiers[0], changes)
        if not windows.num_rows:
            return Stepped(self._schema.empty_table(), changes)
        full = numbers(windows, ROWS) == self._rows
        changes.add[OPEN, 0] = self._left_open(windows, full)
        return stepped(self._results(windows.filter(pa.array(full))), changes)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return newest_of_all(runs, [*self._by, HASH]) if table == OPEN else sorted_by_hash(pa.concat_tables(runs))

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        """Windows that are not yet full, and those that will be once time has gone on."""
        fresh = self._filled(state, None, FOREVER, Changes())
        runs = state.runs(OPEN, 0)
        known = newest_of_all(runs, [*self._by, HASH]) if runs else self._windows.empty_table()
        keys = key_numbers(pa.concat_tables([_keys(rows, self._by) for rows in (known, fresh)]), self._by)
        untouched = ~np.isin(keys[: known.num_rows], keys[known.num_rows :]) & (numbers(known, ROWS) > 0)
        return parted(self._results(pa.concat_tables([known.filter(pa.array(untouched)), fresh])))[0]

    def _filled(self, state: State, new: pa.Table | None, now: int, changes: Changes) -> pa.Table:
        """The windows that rows fall into which are due now, each with what it held before; sorted by key, then number."""
        due = self._waiting.advance(state, new, now, changes)
        if not due:
            return self._windows.empty_table()
        taken = pa.concat_tables(due)
        runs = touched(state.runs(OPEN, 0), np.unique(numbers(taken, HASH)))
        known = newest_of_all(runs, [*self._by, HASH]) if runs else self._windows.empty_table()
        keys = key_numbers(pa.concat_tables([_keys(rows, self._by) for rows in (known, taken)]), self._by)
        opened = Opened.of(known, keys[: known.num_rows], int(keys.max()) + 1)
        keys = keys[known.num_rows :]
        order = in_order(taken, keys)
        return self._cut(taken.take(order), keys[order], opened)

    def _cut(self, rows: pa.Table, keys: Longs, opened: Opened) -> pa.Table:
        """Rows in their order, cut into windows."""
        heads = np.flatnonzero(np.diff(keys, prepend=-1))
        place = opened.rows[keys] + np.arange(len(keys)) - np.repeat(heads, np.diff(heads, append=len(keys)))
        begins = np.flatnonzero((np.diff(keys, prepend=-1) != 0) | (place % self._rows == 0))
        ends, of, times = np.append(begins[1:], len(keys)), keys[begins], numbers(rows, TIME)
        goes_on = place[begins] % self._rows > 0
        folded = self._added_up(rows, ends - begins, np.flatnonzero(goes_on), opened.table.take(opened.at[of[goes_on]]))
        made: dict[str, Any] = {name: column(rows, name).take(begins) for name in [*self._by, HASH]}
        made |= {f.name: folded[f.name] for f in self._aggregation.fields}
        made[NUMBER] = pa.array(opened.number[of] + place[begins] // self._rows)
        made[ROWS] = pa.array(ends - begins + np.where(goes_on, opened.rows[of], 0))
        made[FIRST] = pa.array(np.where(goes_on, opened.first[of], times[begins]))
        made[LAST] = pa.array(times[ends - 1])
        return pa.table({name: made[name] for name in self._windows.names}, schema=self._windows)

    def _added_up(self, rows: pa.Table, lengths: Longs, goes_on: Longs, known: pa.Table) -> pa.Table:
        """The partial results of consecutive stretches of rows; to those that go on, what is known of them is added."""
        partial = self._aggregation.partial(rows, (), {GROUP: np.repeat(np.arange(len(lengths)), lengths)})
        before = known.select([f.name for f in self._aggregation.fields]).append_column(
            partial.schema.field(GROUP), pa.array(goes_on)
        )
        together = pa.concat_tables([partial, before.select(partial.column_names)])
        folded = self._aggregation.fold(together, [GROUP])
        return folded.take(np.argsort(numbers(folded, GROUP)))

    def _left_open(self, windows: pa.Table, full: Mask) -> pa.Table:
        """The last window of each key, or that the next one is empty."""
        pair = key_numbers(_keys(windows, self._by), self._by)
        last = np.append(np.flatnonzero(np.diff(pair)), len(pair) - 1)
        kept, closed = windows.take(last), full[last]
        empty = kept.filter(pa.array(closed))
        columns = {f.name: pa.nulls(empty.num_rows, f.type) for f in self._aggregation.fields}
        columns |= {name: empty[name] for name in [*self._by, HASH, FIRST, LAST]}
        columns[NUMBER] = pa.array(numbers(empty, NUMBER) + 1)
        columns[ROWS] = pa.array(np.zeros(empty.num_rows, np.int64))
        following = pa.table({name: columns[name] for name in self._windows.names}, schema=self._windows)
        return sorted_by_hash(pa.concat_tables([kept.filter(pa.array(~closed)), following]))

    def _results(self, windows: pa.Table) -> pa.Table:
        if not windows.num_rows:
            return self._schema.empty_table()
        first, last = numbers(windows, FIRST), numbers(windows, LAST)
        made: dict[str, Any] = {"window_start": pa.array(first), "window_end": pa.array(last)}
        made |= {name: column(windows, name) for name in self._by}
        made["revision"] = pa.array(np.zeros(len(first), np.int64))
        with np.errstate(divide="ignore"):  # all rows of a window may be of one time
            made |= self._aggregation.results(windows, (last - first) / 1e6)
        columns = {f.name: as_type(made[f.name], f.type) for f in self._output}
        columns[TIME] = pa.array(last)
        columns[WATERMARK] = pa.array(np.full(len(last), NEVER))
        columns[POSITION] = window_positions([made[name] for name in self._by], numbers(windows, NUMBER))
        return with_failed(pa.table(columns, schema=self._schema), made)


def _keys(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    return rows.select([*by, HASH])


def build(count: Count, inputs: Sequence[pa.Schema], output: pa.Schema) -> CountKernel:
    return CountKernel(count.by, count.rows, count.aggregates, count.late, inputs[0], output)
