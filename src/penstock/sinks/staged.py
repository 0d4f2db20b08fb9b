"""The rows of one epoch as the engine staged them: Arrow IPC files named in the decision."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import ascending, one_array
from penstock.core.columns import ADDRESS, OP, POSITION, TIME, WATERMARK
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import PenstockError, SinkError
from penstock.storage.port import Storage
from penstock.storage.sealed import read_sealed

_SYSTEM = [pa.field(TIME, pa.int64()), pa.field(POSITION, pa.binary()), pa.field(WATERMARK, pa.int64())]


def staged_rows(storage: Storage, files: Sequence[str], schema: Schema, updating: bool = False, ordered: bool = False) -> pa.Table:
    """All rows of the files, in the types of the schema, with TIME, POSITION, WATERMARK and, if updating, OP; if ordered, with
    ADDRESS, which is null for rows that are no records of the log."""
    more = [*([pa.field(OP, pa.int8())] if updating else []), *([pa.field(ADDRESS, pa.int64())] if ordered else [])]
    wanted = pa.schema([*schema.arrow, *_SYSTEM, *more])
    tables = [_read(storage, path, wanted) for path in files]
    return pa.concat_tables(tables) if tables else wanted.empty_table()


def _read(storage: Storage, path: str, wanted: pa.Schema) -> pa.Table:
    try:
        table = pa.ipc.open_file(pa.BufferReader(read_sealed(storage, path))).read_all()
        return pa.table([_column(table, f) for f in wanted], schema=wanted)
    except (pa.ArrowException, PenstockError, OSError, KeyError) as error:
        raise SinkError(
            f"staged file {path} cannot be read: {error}", hint="`penstock doctor` looks at all files of a flow"
        ) from error


def _column(table: pa.Table, f: pa.Field) -> pa.ChunkedArray:
    if f.name == WATERMARK and WATERMARK not in table.column_names:
        return pa.chunked_array([pa.repeat(pa.scalar(NEVER, pa.int64()), table.num_rows)])
    if f.name not in table.column_names and f.name not in (TIME, POSITION, OP) and f.nullable:
        return pa.chunked_array([pa.nulls(table.num_rows, f.type)])  # staged by a version that did not have it yet
    return table.column(f.name).cast(f.type)


def in_order(rows: pa.Table) -> pa.Table:
    """The rows as a topic has them, whatever the epoch: records of the log in its order, by partition and offset; rows that a step
    has made by time and position. Where both come together those of the log go first. (G25)"""
    order = rows.column(ADDRESS)
    if order.null_count == len(order):
        return rows.take(pc.sort_indices(rows.select([TIME, POSITION]), sort_keys=ascending([TIME, POSITION])))
    if not order.null_count:
        addresses = one_array(order).to_numpy()
        if (addresses[1:] > addresses[:-1]).all():
            return rows
    keys = rows.select([ADDRESS, TIME, POSITION])
    return rows.take(pc.sort_indices(keys, sort_keys=ascending([ADDRESS, TIME, POSITION])))
