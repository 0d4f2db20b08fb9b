"""The output rows of a join: which column comes from which side, made in blocks of pairs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.change import POSITION, TIME
from penstock.core.position import pair_positions
from penstock.core.time import NEVER
from penstock.kernels.probe import Found, spread
from penstock.kernels.tables import as_type, column, numbers, travelling

Longs = npt.NDArray[np.int64]

_BLOCK = 1 << 17  # pairs made at once: they stay in the cache, and a column of text within what one Arrow array can hold


@dataclass(frozen=True)
class Meeting:
    """Row rows[i] of those that looked met count[i] rows of `partners` from start[i] on."""

    rows: Longs
    start: Longs
    count: Longs
    partners: pa.Table

    @classmethod
    def of(cls, found: Sequence[Found]) -> "Meeting":
        sizes = [f.touched.num_rows for f in found]
        shifts = np.cumsum([0, *sizes[:-1]])
        return cls(
            np.concatenate([f.rows for f in found]),
            np.concatenate([f.start + shift for f, shift in zip(found, shifts, strict=True)]),
            np.concatenate([f.count for f in found]),
            found[0].touched if len(found) == 1 else pa.concat_tables([f.touched for f in found]).combine_chunks(),
        )

    def missed(self, rows: int) -> npt.NDArray[np.bool_]:
        """Who of so many rows that looked met nobody."""
        alone = np.ones(rows, np.bool_)
        alone[self.rows] = False
        return alone

    def met(self) -> pa.Table:
        """The partners that somebody met."""
        met = np.zeros(self.partners.num_rows, np.bool_)
        met[spread(self.start, self.count)] = True
        return self.partners.filter(pa.array(met))

    def blocks(self) -> Iterator[tuple[Longs, Longs]]:
        """Pairs as (row, partner), so many at a time."""
        behind = np.cumsum(self.count)
        at = 0
        while at < len(self.rows):
            done = int(behind[at - 1]) if at else 0
            end = max(int(np.searchsorted(behind, done + _BLOCK, "right")), at + 1)
            yield np.repeat(self.rows[at:end], self.count[at:end]), spread(self.start[at:end], self.count[at:end])
            at = end


class Output:
    """Makes the rows of a join's schema out of rows of both sides; `placed`: with their positions."""

    def __init__(self, schema: pa.Schema, right: Sequence[tuple[str, str]]) -> None:
        self._schema, self._right = schema, dict(right)

    def empty(self, placed: bool) -> pa.Table:
        return travelling(self._schema, placed=placed).empty_table()

    def pairs(self, left: pa.Table, li: Longs, right: pa.Table, ri: Longs, placed: bool) -> pa.Table:
        by_left, by_right = pa.array(li), pa.array(ri)
        columns = []
        for field in self._schema:
            source = self._right.get(field.name)
            values = column(right, source).take(by_right) if source else column(left, field.name).take(by_left)
            columns.append(as_type(values, field.type))
        times = np.maximum(numbers(left, TIME)[li], numbers(right, TIME)[ri])
        positions = pair_positions(column(left, POSITION), li, column(right, POSITION), ri) if placed else None
        return self._table(columns, times, positions)

    def alone(self, left: pa.Table, placed: bool) -> pa.Table:
        """Left rows without a partner: null on the right."""
        n = left.num_rows
        columns = [
            pa.nulls(n, field.type) if field.name in self._right else as_type(column(left, field.name), field.type)
            for field in self._schema
        ]
        positions = pair_positions(column(left, POSITION), np.arange(n), None, None) if placed else None
        return self._table(columns, numbers(left, TIME), positions)

    def _table(self, columns: list[pa.Array], times: Longs, positions: pa.Array | None) -> pa.Table:
        system = [pa.array(times), pa.array(np.full(len(times), NEVER)), *([positions] if positions is not None else [])]
        return pa.Table.from_arrays([*columns, *system], schema=self.empty(positions is not None).schema)
