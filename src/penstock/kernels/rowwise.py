"""Steps without state: where, select, union. Time, watermark and position travel with the row."""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import filled, table_of
from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.position import union_positions
from penstock.kernels.columns import column
from penstock.kernels.port import Fates

_TRAVELLING = (TIME, WATERMARK, POSITION, OP)


def keep_where(rows: pa.Table, condition: pa.Array | pa.ChunkedArray) -> tuple[pa.Table, Fates]:
    """The rows for which the condition is true; false and null are filtered."""
    kept = rows.filter(condition)
    return kept, Counter({"passed": kept.num_rows, "filtered": rows.num_rows - kept.num_rows})


def hide_where_not(rows: pa.Table, condition: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Versions of a table; where the condition is not true they become deletes."""
    shown = filled(condition, False)
    before = rows[OP] if OP in rows.column_names else pa.scalar(int(Op.INSERT), pa.int8())
    op = pc.if_else(shown, before, pa.scalar(int(Op.DELETE), pa.int8()))
    rest = rows.drop_columns([OP]) if OP in rows.column_names else rows
    return rest.append_column(OP, op)


def with_columns(rows: pa.Table, columns: Sequence[tuple[str, pa.Array | pa.ChunkedArray]]) -> pa.Table:
    """Rows of these columns and no others, but for the system columns that the rows came with."""
    made = dict(columns) | {name: rows[name] for name in _TRAVELLING if name in rows.column_names}
    return table_of(made)


def as_input(rows: pa.Table, number: int) -> pa.Table:
    """The rows of one input of a union: its number becomes part of the position, so that one row may come in by two ways."""
    if POSITION not in rows.column_names:
        return rows
    at = rows.column_names.index(POSITION)
    return rows.set_column(at, POSITION, union_positions(column(rows, POSITION), number))
