"""The changes of an epoch, brought together: at most one for each key."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.core.change import Op
from penstock.core.columns import INDEX, OP, POSITION, TIME


def net_changes(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """For each key the row that is put in, the greatest (time, position) where there are several; else a row that is taken out.
    OP is INSERT or DELETE; deletes first, each half by time."""
    frame = pl.DataFrame(pl.from_arrow(rows.select([*key, TIME, OP]))).with_row_index(INDEX)
    puts = pl.col(OP).is_in([int(Op.INSERT), int(Op.UPDATE_AFTER)])
    put = _once(frame.filter(puts), rows, key)
    gone = frame.filter(~puts).join(put, on=key, how="anti", nulls_equal=True).unique(key, keep="any", maintain_order=True)
    chosen = [half.sort(TIME, maintain_order=True)[INDEX].to_numpy() for half in (gone, put)]
    ops = np.repeat(np.array([Op.DELETE, Op.INSERT], np.int8), [len(half) for half in chosen])
    taken = rows.take(np.concatenate(chosen))
    return taken.set_column(taken.column_names.index(OP), OP, pa.array(ops, pa.int8()))


def _once(put: pl.DataFrame, rows: pa.Table, key: Sequence[str]) -> pl.DataFrame:
    """Of the rows that are put in one for each key; there are several only where the key is not that of the step."""
    if not put.select(key).is_duplicated().any():
        return put
    positions = rows.column(POSITION).take(put[INDEX].to_arrow())
    placed = put.with_columns(pl.Series(POSITION, pl.from_arrow(positions)))
    return placed.sort(TIME, POSITION).unique(key, keep="last", maintain_order=True).drop(POSITION)
