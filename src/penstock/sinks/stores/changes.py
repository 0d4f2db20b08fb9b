"""The rows of an epoch as changes of a store: at most one for each key."""

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.change import Op
from penstock.core.columns import INDEX, OP, POSITION
from penstock.sinks.net import net_changes
from penstock.sinks.port import SinkSpec
from penstock.sinks.staged import in_order, staged_rows
from penstock.sinks.stores.port import Changes
from penstock.storage.port import Storage


def changes_of(spec: SinkSpec, storage: Storage, files: Sequence[str]) -> Changes:
    """What the staged files say. Of rows that stay and share a key the last holds, in the order in which a topic would have them
    (sinks/staged.py, in_order): that order does not depend on where epochs were cut."""
    rows = staged_rows(storage, files, spec.schema, spec.updating, ordered=not spec.updating)
    if spec.updating:
        net = net_changes(rows, spec.key or (POSITION,))
        put = pc.equal(net[OP], pa.scalar(int(Op.INSERT)))
        return Changes(net.filter(put).drop_columns([OP]), net.filter(pc.invert(put)).drop_columns([OP]))
    if spec.key and not spec.unique:
        rows = in_order(rows)
        frame = pl.DataFrame(pl.from_arrow(rows.select(list(spec.key)))).with_row_index(INDEX)
        if frame.select(spec.key).is_duplicated().any():
            rows = rows.take(frame.unique(spec.key, keep="last", maintain_order=True)[INDEX].to_arrow())
    elif not spec.key:
        rows = in_order(rows)
    return Changes(rows, rows.slice(0, 0))


def merged(changes: Sequence[Changes], key: Sequence[str]) -> Changes:
    """The changes of several epochs as those of one: of each key the last one holds."""
    if len(changes) == 1:
        return changes[0]
    put, gone = (pa.concat_tables([getattr(each, name) for each in changes]) for name in ("put", "gone"))
    if not key:
        return Changes(put, gone)
    frames = [
        pl.DataFrame(pl.from_arrow(table.select(list(key))))
        .with_row_index(INDEX)
        .with_columns(epoch=pl.Series(_numbers(changes, name)), put=put_in)
        for table, name, put_in in ((put, "put", True), (gone, "gone", False))
    ]
    last = pl.concat(frames).sort("epoch", maintain_order=True).unique(key, keep="last", maintain_order=True)
    kept = [last.filter(pl.col("put") == put_in)[INDEX].to_arrow() for put_in in (True, False)]
    return Changes(put.take(kept[0]), gone.take(kept[1]))


def _numbers(changes: Sequence[Changes], name: str) -> list[int]:
    """Of each row the number of the changes that it is from."""
    return [number for number, each in enumerate(changes) for _ in range(getattr(each, name).num_rows)]
