"""The rows of one epoch as the engine staged them: Arrow IPC files named in the decision."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.core.change import OP, POSITION, TIME, WATERMARK
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import PenstockError, SinkError
from penstock.storage.port import Storage
from penstock.storage.sealed import read_sealed

_SYSTEM = [pa.field(TIME, pa.int64()), pa.field(POSITION, pa.binary()), pa.field(WATERMARK, pa.int64())]


def nothing(point: str) -> None:
    """What happens at a crash point outside of tests."""


def staged_rows(storage: Storage, files: Sequence[str], schema: Schema, updating: bool = False) -> pa.Table:
    """All rows of the files, in the types of the schema, with TIME, POSITION, WATERMARK and, if updating, OP."""
    wanted = pa.schema([*schema.arrow, *_SYSTEM, *([pa.field(OP, pa.int8())] if updating else [])])
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
    return table.column(f.name).cast(f.type)


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
