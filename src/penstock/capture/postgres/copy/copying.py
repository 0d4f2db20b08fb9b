"""Tables copied in chunks by their key, each chunk under a snapshot of its own. Only reads."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc_csv

from penstock.capture.port import Table
from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.copy.published import PublishedColumn
from penstock.capture.postgres.copy.snapshots import Chunk, Snapshot, key_text
from penstock.capture.postgres.wal import SNAPSHOT, end_of_log
from penstock.core.arrow import one_array

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

CopiedColumn = PublishedColumn
CHUNK = 100_000  # rows
_CLOCK = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"


class ColumnsChanged(Exception):
    """The table has not the columns any more, or not the name, that it was described with."""


class _Enough(Exception):
    """No more rows are wanted."""


@dataclass(frozen=True)
class CopiedTable:
    """A table as it is copied: the columns that the stream has, too."""

    table: Table
    columns: tuple[PublishedColumn, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]  # the same columns, as an index has them


@dataclass(frozen=True)
class Piece:
    """A chunk that was read."""

    chunk: Chunk
    last: bool  # no row lies behind it
    time: int  # when it was read, by the server's clock; microseconds since 1970


def read_chunk(connection: "Connection", of: CopiedTable, after: Sequence[str] | None, limit: int, most: int) -> Piece:
    """The rows behind a key, in the order of keys, all columns as text: as many as the limit says, or fewer where they have more
    bytes than `most`. ColumnsChanged if the table is not as it was described."""
    data, whole = bytearray(), True
    with translated(f"read table {'.'.join(of.table)}"):
        try:
            with connection.transaction():
                connection.execute("set transaction isolation level repeatable read read only")
                ((snapshot,),) = connection.execute(SNAPSHOT)
                ((time,),) = connection.execute(_CLOCK)
                _copy(connection, _statement(of, after, limit), data, most)
        except _Enough:
            whole = False
        except _gone() as error:
            raise ColumnsChanged from error
    rows = csv_columns(bytes(data), [column.name for column in of.columns])
    keys = key_text([one_array(rows[name]) for name in of.key])
    chunk = Chunk(rows, keys, Snapshot.parse(snapshot), end_of_log(connection))
    return Piece(chunk, whole and rows.num_rows < limit, time)


def _copy(connection: "Connection", statement: Any, data: bytearray, most: int) -> None:
    """What the server sends, a row with each piece."""
    with connection.cursor().copy(statement) as copy:
        for piece in copy:
            data += piece
            if len(data) > most:
                raise _Enough


def _gone() -> tuple[type[Exception], ...]:
    from psycopg import errors

    return errors.UndefinedColumn, errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedObject


def _statement(of: CopiedTable, after: Sequence[str] | None, limit: int) -> Any:
    from psycopg import sql

    casts = {column.name: column.cast for column in of.columns}
    key = sql.SQL(", ").join(sql.Identifier(name) for name in of.order)
    names = sql.SQL(", ").join(sql.Identifier(column.name) for column in of.columns)
    behind: sql.Composable = sql.SQL("")
    if after is not None:
        bounds = sql.SQL(", ").join(
            sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(casts[name])) for name, value in zip(of.order, after, strict=True)
        )
        behind = sql.SQL("where ({}) > ({})").format(key, bounds)
    query = sql.SQL("select {} from {} {} order by {} limit {}").format(
        names, sql.Identifier(*of.table), behind, key, sql.Literal(limit)
    )
    return sql.SQL("copy ({}) to stdout (format csv, force_quote *)").format(query)


def csv_columns(data: bytes, names: Sequence[str]) -> pa.Table:
    """The columns of CSV in which all values but null stand in quotes."""
    numbered = [str(i) for i in range(len(names))]  # names may be equal to PyArrow where they are not to PostgreSQL
    if not data:
        return pa.table([pa.array([], pa.utf8())] * len(names), names=list(names))
    found = pc_csv.read_csv(
        io.BytesIO(data),
        pc_csv.ReadOptions(column_names=numbered, block_size=max(1 << 20, len(data) + 1), use_threads=False),
        pc_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pc_csv.ConvertOptions(
            column_types=dict.fromkeys(numbered, pa.utf8()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return found.rename_columns(list(names))
