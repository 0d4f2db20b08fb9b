"""Rows of a flow's own topics: what could not be read, and what came too late."""

import numpy as np
import pyarrow as pa

from penstock.core.arrow import values_in
from penstock.core.columns import ADDRESS, POSITION, TIME, WATERMARK
from penstock.core.position import Position
from penstock.core.schema import TIMESTAMP
from penstock.core.time import NEVER
from penstock.engine.execute.failing import shortened
from penstock.engine.execute.program import dead_schema, late_schema
from penstock.engine.execute.rowwise import SYSTEM
from penstock.engine.source.read import Dead, Range, addresses
from penstock.log.intake.codec import encode_json


def unreadable(span: Range, topic: str, dead: list[Dead]) -> pa.Table:
    """Rows of the flow's dead topic: what could not be read, why, and where it is."""
    n = len(dead)
    where = [Position(topic, span.partition, d.offset) for d in dead]
    columns = [
        [span.step] * n,
        [shortened(d.reason) for d in dead],
        *([getattr(w, a) for w in where] for a in ("topic", "partition", "offset")),
    ]
    columns += [[None] * n, [None] * n, [shortened(d.value.decode("utf-8", "backslashreplace")) for d in dead], [None] * n]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, dead_schema(), strict=True)], schema=dead_schema().arrow)
    order = addresses(span.partition, np.array([d.offset for d in dead], np.int64))
    return _system(table, [d.appended for d in dead], [w.encode() for w in where], order)


def late(step: str, rows: pa.Table) -> pa.Table:
    """Rows of the flow's own late topic."""
    n = rows.num_rows
    raw, times = values_in(rows.column(POSITION), bytes), values_in(rows.column(TIME), int)
    where = [Position.decode(p) for p in raw]
    watermark = [None if w <= NEVER else w for w in values_in(rows.column(WATERMARK), int)]
    user = rows.select([c for c in rows.column_names if c not in SYSTEM])
    places = [[getattr(w, a, None) for w in where] for a in ("topic", "partition", "offset")]
    columns: list[list[str | int | None]] = [[step] * n, ["late"] * n, *places]
    arrays: list[pa.Array] = [pa.array(c, f.type) for c, f in zip(columns, late_schema(), strict=False)]
    arrays += [rows.column(TIME).cast(TIMESTAMP).combine_chunks(), pa.array(watermark, pa.int64()).cast(TIMESTAMP)]
    arrays.append(pa.array([j.decode() for j in encode_json(user)], pa.string()))
    order = rows.column(ADDRESS) if ADDRESS in rows.column_names else pa.nulls(n, pa.int64())
    return _system(pa.table(arrays, schema=late_schema().arrow), times, raw, order)


def _system(table: pa.Table, times: list[int], positions: list[bytes], order: pa.Array | pa.ChunkedArray) -> pa.Table:
    n = table.num_rows
    table = table.append_column(TIME, pa.array(times, pa.int64()))
    table = table.append_column(WATERMARK, pa.array([NEVER] * n, pa.int64()))
    return table.append_column(POSITION, pa.array(positions, pa.binary())).append_column(ADDRESS, order)
