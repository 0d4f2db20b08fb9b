"""Tables as the catalog describes them now, read by their key as text, their rows as JSON: for engines without a publication."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.capture.port import Table, TableFacts
from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.copy.copying import csv_columns
from penstock.capture.postgres.keys import Keys
from penstock.capture.postgres.stream.converting import Shape
from penstock.capture.postgres.values.json_values import json_objects, json_values
from penstock.capture.postgres.values.types import Types
from penstock.core.arrow import one_array, values_in
from penstock.errors import NotFollowable

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed

    from penstock.capture.postgres.connecting import Connection

VIRTUAL = "v"  # a generated column that is not stored: no stream of changes has it
_COLUMNS = f"""
select a.attname, a.atttypid::bigint, a.atttypmod, format_type(a.atttypid, a.atttypmod)
from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relname = %s and c.relnamespace = to_regnamespace(quote_ident(%s))
  and a.attnum > 0 and not a.attisdropped and a.attgenerated <> '{VIRTUAL}' order by a.attnum"""
_ESTIMATE = "select greatest(reltuples, 0)::bigint from pg_class where oid = to_regclass(format('%%I.%%I', %s::text, %s::text))"


@dataclass(frozen=True)
class StoredColumn:
    name: str
    type: int
    modifier: int
    cast: str  # its type as SQL writes it


@dataclass(frozen=True)
class StoredTable:
    """A table with its columns that are stored."""

    table: Table
    columns: tuple[StoredColumn, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]  # the same columns, as an index has them

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def described(connection: "Connection", table: Table) -> StoredTable:
    """NotFollowable if the table is not there, or has no key."""
    with translated(f"look at the columns of {'.'.join(table)}"):
        columns = tuple(StoredColumn(*row) for row in connection.execute(_COLUMNS, (table[1], table[0])))
    if not columns:
        raise NotFollowable(f"there is no table {'.'.join(table)} any more", hint="was it renamed or dropped?")
    key = Keys(connection).of_table(table)
    return StoredTable(table, columns, key.columns, key.by_index)


def read_rows(connection: "Connection", of: StoredTable, after: Sequence[str] | None, limit: int) -> pa.Table:
    """At most so many rows behind a key, in the order of keys, all columns as text; in the transaction of the connection."""
    data = bytearray()
    with translated(f"read table {'.'.join(of.table)}"), connection.cursor().copy(_statement(of, after, limit)) as copy:
        for piece in copy:
            data += piece
    return csv_columns(bytes(data), of.names)


def last_key(of: StoredTable, rows: pa.Table) -> tuple[str, ...]:
    """Behind which the next rows are."""
    last = rows.slice(rows.num_rows - 1)
    return tuple(values_in(last[name], str)[0] for name in of.order)


def json_rows(of: StoredTable, types: Types, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The key and the whole of each row."""
    known = types.all(column.type for column in of.columns)
    values = {column.name: json_values(one_array(rows[column.name]), known[column.type]) for column in of.columns}
    return json_objects(of.key, [values[key] for key in of.key]), json_objects(of.names, list(values.values()))


def facts_of(of: StoredTable, types: Types) -> TableFacts:
    known = types.all(column.type for column in of.columns)
    found, modifiers = tuple(known[column.type] for column in of.columns), tuple(column.modifier for column in of.columns)
    return Shape(tuple(of.names), found, modifiers, tuple(of.names.index(name) for name in of.key)).facts


def estimated_rows(connection: "Connection", table: Table) -> int:
    """As the server has counted them last."""
    with translated("look at the size of a table"):
        found = connection.execute(_ESTIMATE, table).fetchone()
    return int(found[0]) if found else 0


def _statement(of: StoredTable, after: Sequence[str] | None, limit: int) -> "Composed":
    from psycopg import sql

    casts = {column.name: column.cast for column in of.columns}
    key, names = (sql.SQL(", ").join(map(sql.Identifier, each)) for each in (of.order, of.names))
    behind: Composable = sql.SQL("")
    if after is not None:
        bounds = [sql.SQL("{}::{}").format(value, sql.SQL(casts[name])) for name, value in zip(of.order, after, strict=True)]
        behind = sql.SQL("where ({}) > ({})").format(key, sql.SQL(", ").join(bounds))
    query = "copy (select {} from {} {} order by {} limit {}) to stdout (format csv, force_quote *)"
    return sql.SQL(query).format(names, sql.Identifier(*of.table), behind, key, sql.Literal(limit))
