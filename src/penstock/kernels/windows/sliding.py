"""Sliding per event: for each row the aggregates over the rows of its key in (t - size, t], peers included.

State: rows that wait until F > t (kernels/waiting_rows.py), and "memory": what later rows may still look back upon, in slots of
time, sorted by hash and time.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.arrow import table_of
from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.time import FOREVER, NEVER, micros
from penstock.kernels.aggregates import members, ranges
from penstock.kernels.aggregates.partials import Aggregation
from penstock.kernels.aggregates.unanswered import stepped, with_failed
from penstock.kernels.columns import as_type, by_slot, numbers, sorted_by_hash, travelling
from penstock.kernels.keyed import judge_instants, placed
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.waiting_rows import WaitingRows
from penstock.kernels.windows.looking_back import Looked, look_back
from penstock.plan import Aggregate, Late, Sliding

MEMORY = "memory"
_PER_SIZE = 8  # slots of memory
_NARROWEST = 10_000_000


class SlidingKernel:
    """Every row that is on time comes out once, when F > t, with its own time and position."""

    needs_position, gives_position = True, True

    def __init__(
        self,
        by: Sequence[str],
        size_us: int,
        aggregates: Sequence[Aggregate],
        late: Late,
        input_schema: pa.Schema,
        output_schema: pa.Schema,
        *,
        waiting: WaitingRows | None = None,
        slot_us: int | None = None,
    ) -> None:
        self._by, self._size, self._late = tuple(by), size_us, late
        self._width = slot_us or max(size_us // _PER_SIZE, _NARROWEST)
        self._waiting = waiting or WaitingRows("waiting")
        self._over = Spans(aggregates, input_schema)
        self._placed = placed(input_schema)
        self._remembered = list(dict.fromkeys([*by, *self._over.columns, TIME, HASH]))
        self._output = output_schema
        self._schema = travelling(output_schema)

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Judges rows; those on time go on and are never judged again."""
        return judge_instants(rows, self._placed, self._by, self._late)

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        now, changes = frontiers[0], Changes()
        due = self._waiting.advance(state, rows[0], now, changes)
        changes.drop |= {(MEMORY, slot) for slot in state.slots(MEMORY) if slot + self._width - 1 <= now - self._size}
        if not due:
            return Stepped(self._schema.empty_table(), changes)
        taken = pa.concat_tables(due)
        mine = taken.select(self._remembered).combine_chunks()
        looked = look_back(mine, self._memory(state, mine), self._by, self._size)
        self._keep(looked.came, now, changes)
        return stepped(self._rows(taken, self._over.results(looked, self._size)), changes)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        together = pa.concat_tables(runs)
        if table == MEMORY:
            return together.take(np.lexsort((numbers(together, TIME), numbers(together, HASH))))
        return sorted_by_hash(together)

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        """The rows that wait, as they would come out now."""
        return self.step(state, [None], [FOREVER]).rows

    def _memory(self, state: State, taken: pa.Table) -> list[pa.Table]:
        """The runs of what these rows may look back upon."""
        times = numbers(taken, TIME)
        first, last = int(times.min()) - self._size, int(times.max())
        slots = [slot for slot in state.slots(MEMORY) if first < slot + self._width and slot <= last]
        return [run.select(self._remembered) for slot in slots for run in state.runs(MEMORY, slot)]

    def _keep(self, rows: pa.Table, now: int, changes: Changes) -> None:
        """Adds to memory those of the rows, sorted by hash and time, that later ones may look back upon."""
        lasting = numbers(rows, TIME) > now - self._size
        if lasting.any():
            runs = by_slot(rows if lasting.all() else rows.filter(pa.array(lasting)), self._width)
            changes.add |= {(MEMORY, slot): run for slot, run in runs.items()}

    def _rows(self, taken: pa.Table, results: dict[str, pa.Array]) -> pa.Table:
        times = numbers(taken, TIME)
        made: dict[str, Any] = {"window_start": pa.array(times - self._size), "window_end": pa.array(times), **results}
        made["revision"] = pa.array(np.zeros(len(times), np.int64))
        columns = {f.name: as_type(made[f.name], f.type) if f.name in made else taken[f.name] for f in self._output}
        columns |= {TIME: taken[TIME], WATERMARK: pa.array(np.full(len(times), NEVER)), POSITION: taken[POSITION]}
        return with_failed(table_of(columns, schema=self._schema), results)


class Spans:
    """The aggregates of a sliding step over ranges of rows: the plain ones quickly, all others the general way."""

    def __init__(self, aggregates: Sequence[Aggregate], schema: pa.Schema) -> None:
        quick = [ranges.quick_parts(a, schema) for a in aggregates]
        plain = [a for a, parts in zip(aggregates, quick, strict=True) if parts is not None]
        others = [a for a, parts in zip(aggregates, quick, strict=True) if parts is None]
        self._plain, self._parts = Aggregation(plain, schema), list(dict.fromkeys(part for parts in quick for part in parts or ()))
        self._others = Aggregation(others, schema) if others else None
        own = [*self._others.columns, *([POSITION] if self._others.needs_position else [])] if self._others else []
        self.columns = list(dict.fromkeys([*self._plain.columns, *own]))

    def results(self, looked: Looked, size: int) -> dict[str, pa.Array]:
        """One value for each of the rows that came, as they came."""
        count = len(looked.order)
        seconds = np.full(count, size / 1e6)
        out = self._plain.results(ranges.partials(self._parts, looked.sources, count), seconds) if self._parts else {}
        if self._others is not None:
            out |= self._others.results(members.partials(self._others, looked.sources), seconds)
        as_they_came = np.empty(count, np.int64)
        as_they_came[looked.order] = np.arange(count)
        return {name: values.take(as_they_came) for name, values in out.items()}


def build(sliding: Sliding, inputs: Sequence[pa.Schema], output: pa.Schema) -> SlidingKernel:
    return SlidingKernel(sliding.by, micros(sliding.size), sliding.aggregates, sliding.late, inputs[0], output)
