"""Tables copied in chunks by their key, each chunk under a snapshot of its own. Only reads."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc_csv

from penstock.capture.port import Table
from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.lsn import lsn_of
from penstock.capture.postgres.snapshots import Chunk, Snapshot, key_text
from penstock.core.arrow import one_array

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

CHUNK = 50_000  # rows
_COLUMNS = """
select a.attname, a.atttypid::bigint, a.atttypmod, format_type(a.atttypid, a.atttypmod)
from pg_publication_tables p
join pg_class c on c.relname = p.tablename and c.relnamespace = to_regnamespace(quote_ident(p.schemaname))
join pg_attribute a on a.attrelid = c.oid and a.attname = any(p.attnames)
where p.pubname = %s and p.schemaname = %s and p.tablename = %s order by a.attnum"""


@dataclass(frozen=True)
class CopiedColumn:
    """A column that is published."""

    name: str
    type: int
    modifier: int
    cast: str  # its type as SQL writes it


@dataclass(frozen=True)
class CopiedTable:
    """A table as it is copied: the columns that the stream has, too."""

    table: Table
    columns: tuple[CopiedColumn, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]  # the same columns, as an index has them


def published_columns(connection: "Connection", publication: str, table: Table) -> tuple[CopiedColumn, ...]:
    with translated(f"look at the columns of {'.'.join(table)}"):
        return tuple(CopiedColumn(*row) for row in connection.execute(_COLUMNS, (publication, *table)))


def read_chunk(connection: "Connection", of: CopiedTable, after: Sequence[str] | None, limit: int = CHUNK) -> Chunk:
    """The rows behind a key, in the order of keys, all columns as text."""
    with translated(f"read table {'.'.join(of.table)}"), connection.transaction():
        connection.execute("set transaction isolation level repeatable read read only")
        ((snapshot,),) = connection.execute("select pg_current_snapshot()::text")
        data = bytearray()
        with connection.cursor().copy(*_statement(of, after, limit)) as copy:
            for piece in copy:
                data += piece
    with translated("look at the server's log"):
        ((high,),) = connection.execute("select pg_current_wal_insert_lsn()::text")
    rows = _table(bytes(data), [column.name for column in of.columns])
    keys = key_text([one_array(rows[name]) for name in of.key])
    return Chunk(rows, keys, Snapshot.parse(snapshot), lsn_of(high))


def _statement(of: CopiedTable, after: Sequence[str] | None, limit: int) -> tuple[Any, Sequence[str]]:
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
    return sql.SQL("copy ({}) to stdout (format csv, force_quote *)").format(query), ()


def _table(data: bytes, names: Sequence[str]) -> pa.Table:
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
