"""The rows of a join of tables, made from rows of both sides or of one that is alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import array_of
from penstock.core.columns import POSITION, TIME
from penstock.core.position import pair_positions
from penstock.core.time import NEVER
from penstock.kernels.columns import as_type, column, numbers, travelling

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Numbers of rows of both sides that belong together; None: that side is missing."""

    left: Longs | None
    right: Longs | None

    def __len__(self) -> int:
        some = self.right if self.left is None else self.left
        return 0 if some is None else len(some)


class JoinedRows:
    """Makes the rows of a join's schema. paired: a row is a pair even where one side is missing; else it is the left row."""

    def __init__(self, schema: pa.Schema, right: Mapping[str, str], on: Sequence[str], *, paired: bool) -> None:
        """right: output name -> name on the right side."""
        self._schema, self._paired = schema, paired
        self._right = dict(right)
        self._instead = {name: name for name in on} | self._right  # where a value comes from if there is no left row

    def made(self, left: pa.Table, right: pa.Table, blocks: Sequence[Block], *, placed: bool) -> pa.Table:
        """placed: with their positions."""
        schema = travelling(self._schema, placed=placed)
        parts = [self._block(left, right, block, schema) for block in blocks if len(block)]
        return pa.concat_tables([schema.empty_table(), *parts]).combine_chunks()

    def _block(self, left: pa.Table, right: pa.Table, block: Block, schema: pa.Schema) -> pa.Table:
        columns = [as_type(self._values(left, right, block, f), f.type) for f in self._schema]
        system = [self._times(left, right, block), pa.array(np.full(len(block), NEVER))]
        if POSITION in schema.names:
            system.append(self._positions(left, right, block))
        return pa.Table.from_arrays([*columns, *system], schema=schema)

    def _values(self, left: pa.Table, right: pa.Table, block: Block, field: pa.Field) -> pa.Array:
        theirs = (self._right if block.left is not None else self._instead).get(field.name)
        table, rows, source = (left, block.left, field.name) if theirs is None else (right, block.right, theirs)
        return pa.nulls(len(block), field.type) if rows is None else column(table, source).take(rows)

    def _times(self, left: pa.Table, right: pa.Table, block: Block) -> pa.Array:
        """The greater of both, or its own."""
        both = [numbers(t, TIME)[rows] for t, rows in ((left, block.left), (right, block.right)) if rows is not None]
        return array_of(both[0] if len(both) == 1 else np.maximum(*both))

    def _positions(self, left: pa.Table, right: pa.Table, block: Block) -> pa.Array:
        if not self._paired:
            assert block.left is not None  # such a row is a left row
            return column(left, POSITION).take(block.left)
        mine = None if block.left is None else column(left, POSITION)
        theirs = None if block.right is None else column(right, POSITION)
        return pair_positions(mine, block.left, theirs, block.right)
