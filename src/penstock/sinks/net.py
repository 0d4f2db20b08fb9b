"""The changes of an epoch, brought together: at most one for each key."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.core.change import OP, POSITION, TIME, Op


def net_changes(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """For each key the row that is put in, the greatest (time, position) where there are several; else the row that is taken
    out. OP is INSERT or DELETE; deletes first, then by (time, position)."""
    frame = pl.DataFrame(pl.from_arrow(rows.select([*key, TIME, POSITION, OP]))).with_row_index("__i")
    frame = frame.with_columns(__put=pl.col(OP).is_in([int(Op.INSERT), int(Op.UPDATE_AFTER)]))
    last = frame.sort("__put", TIME, POSITION).group_by(key, maintain_order=True).agg(pl.all().last()) if key else frame
    order = last.sort("__put", TIME, POSITION)
    taken = rows.take(order["__i"].to_arrow())
    ops = np.where(order["__put"].to_numpy(), np.int8(Op.INSERT), np.int8(Op.DELETE))
    return taken.set_column(taken.column_names.index(OP), OP, pa.array(ops, pa.int8()))
