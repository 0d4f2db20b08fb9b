"""What becomes of pairs in a join: which of them count, and the output rows, each column from its side."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import array_of
from penstock.core.columns import LEFT, LEFT_TIME, POSITION, RIGHT, RIGHT_TIME, TIME
from penstock.core.expression import Column, Tree, walk
from penstock.core.position import pair_positions
from penstock.core.time import NEVER
from penstock.kernels.aggregates.partials import frame_of
from penstock.kernels.column_names import ROW
from penstock.kernels.columns import as_type, column, numbers, travelling
from penstock.kernels.expressions import compile as polars_of

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PLACES = ({LEFT: POSITION, LEFT_TIME: TIME}, {RIGHT: POSITION, RIGHT_TIME: TIME})  # what a pair may tell of its rows, by side


class Condition:
    """What must hold of a pair besides key and time: an expression over the columns of the joined row. Null is no."""

    def __init__(self, tree: Tree, right: Mapping[str, str]) -> None:
        """right: name in the joined row -> name on the right side."""
        self._tree = tree
        names = dict.fromkeys(part.name for part in walk(tree) if isinstance(part, Column))
        self._right = {name: right[name] for name in names if name in right}
        self._left = [name for name in names if name not in right]

    def reads(self) -> tuple[list[str], list[str]]:
        """The columns of the left side and of the right."""
        return self._left, list(self._right.values())

    def over(self, left: pa.Table, right: pa.Table) -> Callable[[Longs, Longs], Mask]:
        """Whether it holds of rows li of the left side and ri of the right."""
        return lambda li, ri: self._holds(left, li, right, ri)

    def _holds(self, left: pa.Table, li: Longs, right: pa.Table, ri: Longs) -> Mask:
        by_left, by_right = array_of(li), array_of(ri)
        columns = {name: column(left, name).take(by_left) for name in self._left}
        columns |= {name: column(right, own).take(by_right) for name, own in self._right.items()}
        frame = frame_of(pa.table({ROW: by_left, **columns}))
        return frame.select(polars_of(self._tree).fill_null(False).alias(ROW))[ROW].to_numpy()


class Output:
    """Makes the rows of a join's schema out of rows of both sides; `placed`: with their positions."""

    def __init__(self, schema: pa.Schema, on: Sequence[str], right: Sequence[tuple[str, str]], *, own: bool) -> None:
        """own: rows come out alone as they are, under their own position, and not as the half of a pair."""
        self._left, places = ({n: own for n, own in side.items() if n in schema.names} for side in _PLACES)
        self._schema, self._right, self._own = schema, dict(right) | places, own
        self._alone = ({f.name: f.name for f in schema if f.name not in self._right}, self._right | {name: name for name in on})

    def reads(self, port: int) -> set[str]:
        """The columns of a side that come out."""
        return {self._right[f.name] if port else f.name for f in self._schema if (f.name in self._right) == bool(port)}

    def empty(self, placed: bool) -> pa.Table:
        return travelling(self._schema, placed=placed).empty_table()

    def pairs(self, left: pa.Table, li: Longs, right: pa.Table, ri: Longs, placed: bool) -> pa.Table:
        by_left, by_right = array_of(li), array_of(ri)
        columns = []
        for field in self._schema:
            source = self._right.get(field.name)
            values = (
                column(right, source).take(by_right)
                if source
                else column(left, self._left.get(field.name, field.name)).take(by_left)
            )
            columns.append(as_type(values, field.type))
        times = np.maximum(numbers(left, TIME)[li], numbers(right, TIME)[ri])
        positions = pair_positions(column(left, POSITION), li, column(right, POSITION), ri) if placed else None
        return self._table(columns, times, positions)

    def again(self, pairs: pa.Table, placed: bool) -> pa.Table:
        """Pairs that were made before, perhaps with more columns."""
        columns = [as_type(column(pairs, field.name), field.type) for field in self._schema]
        return self._table(columns, numbers(pairs, TIME), column(pairs, POSITION) if placed else None)

    def alone(self, port: int, rows: pa.Table, placed: bool) -> pa.Table:
        """Rows of one side without a partner: null on the other, but for the columns that both have."""
        sources = self._alone[port]
        columns = [
            as_type(column(rows, sources[field.name]), field.type) if field.name in sources else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        return self._table(columns, numbers(rows, TIME), self.place(port, rows) if placed else None)

    def place(self, port: int, rows: pa.Table) -> pa.Array:
        """The positions of rows that come out alone."""
        positions, every = column(rows, POSITION), np.arange(rows.num_rows)
        if self._own:
            return positions
        return pair_positions(None, None, positions, every) if port else pair_positions(positions, every, None, None)

    def _table(self, columns: list[pa.Array], times: Longs, positions: pa.Array | None) -> pa.Table:
        system = [pa.array(times), pa.array(np.full(len(times), NEVER)), *([positions] if positions is not None else [])]
        return pa.Table.from_arrays([*columns, *system], schema=self.empty(positions is not None).schema)
