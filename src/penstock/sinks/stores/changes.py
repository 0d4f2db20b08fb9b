"""The rows of an epoch as changes of a store: at most one for each key."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.change import Op
from penstock.core.columns import INDEX, LIVE, NUMBER, OP, POSITION
from penstock.sinks.net import net_changes
from penstock.sinks.port import SinkSpec
from penstock.sinks.staged import in_order, staged_rows
from penstock.sinks.stores.port import Changes
from penstock.storage.port import Storage

Keep = Literal["first", "last"]


def changes_of(spec: SinkSpec, storage: Storage, files: Sequence[str], keep: Keep = "last") -> Changes:
    """What the staged files say. Of rows that stay and share a key the last holds, or the first, in the order in which a topic
    would have them (sinks/staged.py, in_order): that order does not depend on where epochs were cut."""
    rows = staged_rows(storage, files, spec.schema, spec.updating, ordered=not spec.updating)
    if spec.updating:
        net = net_changes(rows, spec.key or (POSITION,))
        put = pc.equal(net[OP], pa.scalar(int(Op.INSERT)))
        return Changes(net.filter(put).drop_columns([OP]), net.filter(pc.invert(put)).drop_columns([OP]))
    if spec.key and not spec.unique:
        rows = in_order(rows)
        frame = pl.DataFrame(pl.from_arrow(rows.select(list(spec.key)))).with_row_index(INDEX)
        if frame.select(spec.key).is_duplicated().any():
            rows = rows.take(frame.unique(spec.key, keep=keep, maintain_order=True)[INDEX].to_arrow())
    elif not spec.key:
        rows = in_order(rows)
    return Changes(rows, rows.slice(0, 0))


def merged(changes: Sequence[Changes], spec: SinkSpec, keep: Keep = "last") -> Changes:
    """The changes of several epochs as those of one: of each key the last one holds; or its last delete, and the first row behind
    it."""
    if len(changes) == 1:
        return changes[0]
    put, gone = (pa.concat_tables([getattr(each, name) for each in changes]) for name in ("put", "gone"))
    key = spec.key or ((POSITION,) if spec.updating else ())
    if not key:
        return Changes(put, gone)
    everything = pl.concat(
        [
            _numbered(put, key, [each.put.num_rows for each in changes], True),
            _numbered(gone, key, [each.gone.num_rows for each in changes], False),
        ]
    )
    kept = everything.sort(NUMBER, maintain_order=True)
    kept = kept.unique(key, keep="last", maintain_order=True) if keep == "last" else _first_behind_deletes(kept, key)
    places = [kept.filter(pl.col(LIVE) == live)[INDEX].to_arrow() for live in (True, False)]
    return Changes(put.take(places[0]), gone.take(places[1]))


def _first_behind_deletes(changes: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    deleted = pl.col(NUMBER).filter(~pl.col(LIVE)).max().over(key)
    left = changes.filter(deleted.is_null() | (pl.col(NUMBER) > deleted) | (~pl.col(LIVE) & (pl.col(NUMBER) == deleted)))
    return left.unique([*key, LIVE], keep="first", maintain_order=True)


def _numbered(rows: pa.Table, key: Sequence[str], counts: Sequence[int], live: bool) -> pl.DataFrame:
    """The keys of rows, and of each where it stands and which of the epochs it is from."""
    numbers = np.repeat(np.arange(len(counts)), counts)
    frame = pl.DataFrame(pl.from_arrow(rows.select(list(key)))).with_row_index(INDEX)
    return frame.with_columns(pl.Series(NUMBER, numbers), pl.lit(live).alias(LIVE))
