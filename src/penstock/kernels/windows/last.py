"""The rows of the last so-and-so long: each comes when it comes, and goes when the frontier has gone on far enough."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.core.arrow import Column, table_of
from penstock.core.change import Op
from penstock.core.columns import HASH, OP, POSITION, TIME, WATERMARK
from penstock.core.hashing import hash64
from penstock.core.time import NEVER, micros
from penstock.kernels.columns import numbers, sorted_by_hash, travelling
from penstock.kernels.keyed import placed
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.waiting_rows import WaitingRows
from penstock.plan import Last

_PART = 4096


class LastKernel:
    """The rows with t > F - size_us. A row is named by its position; it judges nothing.

    State: the rows that are shown, until they go."""

    needs_position, gives_position = True, True

    def __init__(self, size_us: int, output_schema: pa.Schema, *, shown: WaitingRows | None = None) -> None:
        self._size, self._output = size_us, output_schema
        self._shown = shown or shown_rows(size_us)
        self._schema = travelling(output_schema, (OP, pa.int8()))

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Rows spread by their positions."""
        taken = rows.select([*self._output.names, TIME, POSITION])
        hashes = [hash64([part[POSITION]], part.num_rows) for part in _parts(taken)]
        return Prepared(
            taken.append_column(HASH, pa.array(np.concatenate(hashes))).cast(placed(self._output)),
            None,
            +Counter({"passed": rows.num_rows}),
        )

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        now, changes = frontiers[0], Changes()
        new = rows[0]
        if new is not None:
            recent = numbers(new, TIME) + np.int64(self._size) > now
            new = new if recent.all() else new.filter(pa.array(recent))
        gone = self._shown.advance(state, new, now, changes)  # none of the new ones: they are all recent
        out = [self._changes(part, Op.DELETE) for part in gone] + ([self._changes(new, Op.INSERT)] if new is not None else [])
        return Stepped(pa.concat_tables([self._schema.empty_table(), *out]), changes)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return sorted_by_hash(pa.concat_tables(runs))

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        return None

    def _changes(self, rows: pa.Table, op: Op) -> pa.Table:
        columns: dict[str, Column] = {name: rows[name] for name in [*self._output.names, TIME, POSITION]}
        columns[WATERMARK] = pa.array(np.full(rows.num_rows, NEVER))
        columns[OP] = pa.array(np.full(rows.num_rows, op, np.int8))
        return table_of({name: columns[name] for name in self._schema.names}, schema=self._schema)


def _parts(rows: pa.Table) -> list[pa.Table]:
    """Few rows at a time, so that the bytes of their positions stay in the cache; one part at least."""
    return [rows.slice(at, _PART) for at in range(0, max(rows.num_rows, 1), _PART)]


def shown_rows(size_us: int, **widths: int) -> WaitingRows:
    """Where the shown rows wait for their end: a row goes when F >= t + size."""
    return WaitingRows("shown", size_us - 1, **widths)


def build(last: Last, inputs: Sequence[pa.Schema], output: pa.Schema) -> LastKernel:
    return LastKernel(micros(last.size), output)
