"""The table that a sink writes in a DuckDB file, made or checked, and the table of markers beside it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core.schema import TIMESTAMP, Schema
from penstock.errors import SinkError
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.sql.tables import MARKERS, TableName

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DEFAULT_SCHEMA = "main"
_SIMPLE = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMPTZ",
}
_MARKER = "flow VARCHAR, sink VARCHAR, incarnation VARCHAR, generation BIGINT, epoch BIGINT, refused BLOB, PRIMARY KEY (flow, sink)"


@dataclass(frozen=True)
class Target:
    """The table, and what a sink brings there. catalog: DuckDB's name for the file, which a schema may bear, too."""

    catalog: str
    table: TableName
    spec: SinkSpec

    @classmethod
    def of(cls, connection: "DuckDBPyConnection", table: TableName, spec: SinkSpec) -> "Target":
        (catalog,) = connection.execute("SELECT current_database()").fetchall()[0]
        return cls(catalog, table, spec)

    @property
    def schema(self) -> str:
        return self.table.schema or _DEFAULT_SCHEMA

    def name(self, beside: str | None = None) -> str:
        """The table's, or of the one beside it."""
        return ".".join(map(quoted, (self.catalog, self.schema, beside or self.table.name)))


def prepare(connection: "DuckDBPyConnection", target: Target, called: str) -> None:
    """Makes the table, or adds columns that are new, and makes the rest; SinkError if the table that is there does not fit."""
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(target.catalog)}.{quoted(target.schema)}")
    connection.execute(f"CREATE TABLE IF NOT EXISTS {target.name(MARKERS)} ({_MARKER})")
    columns = ", ".join(map(_column, target.spec.schema))
    connection.execute(f"CREATE TABLE IF NOT EXISTS {target.name()} ({columns})")
    found = connection.sql(f"SELECT * FROM {target.name()} LIMIT 0").to_arrow_table().schema
    there = {f.name.lower(): f.type for f in found}
    for f in target.spec.schema:
        if f.name.lower() not in there:
            connection.execute(f"ALTER TABLE {target.name()} ADD COLUMN {_column(f.with_nullable(True))}")
        elif not _takes(there[f.name.lower()], f.type):
            raise SinkError(
                f"column {f.name!r} of {called} is {there[f.name.lower()]}, which does not take {Schema(pa.schema([f])).ddl()}",
                hint="change the column's type, cast the column in the flow, or name another table",
            )


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _column(f: pa.Field) -> str:
    return f"{quoted(f.name)} {_declared(f.type)}{'' if f.nullable else ' NOT NULL'}"


def _declared(t: pa.DataType) -> str:
    if pa.types.is_decimal(t):
        return f"DECIMAL({t.precision}, {t.scale})"
    if pa.types.is_list(t):
        return f"{_declared(t.value_type)}[]"
    if pa.types.is_map(t):
        return f"MAP({_declared(t.key_type)}, {_declared(t.item_type)})"
    if pa.types.is_struct(t):
        return f"STRUCT({', '.join(f'{quoted(f.name)} {_declared(f.type)}' for f in t)})"
    return _SIMPLE[t]


def _takes(there: pa.DataType, ours: pa.DataType) -> bool:
    """Whether a column that is there takes all values. A text may be for whatever DuckDB reads: a UUID, an ENUM."""
    if pa.types.is_string(ours):
        return not pa.types.is_nested(there)
    if pa.types.is_string(there):
        return not pa.types.is_nested(ours) and not pa.types.is_binary(ours)
    if pa.types.is_signed_integer(ours) and pa.types.is_signed_integer(there):
        return there.bit_width >= ours.bit_width
    if pa.types.is_floating(ours) and pa.types.is_floating(there):
        return there.bit_width >= ours.bit_width
    if pa.types.is_decimal(ours) and pa.types.is_decimal(there):
        return bool(there.scale >= ours.scale and there.precision - there.scale >= ours.precision - ours.scale)
    if pa.types.is_timestamp(ours) and pa.types.is_timestamp(there):
        return there.tz is not None and there.unit == ours.unit
    return _same(there, ours)


def _same(there: pa.DataType, ours: pa.DataType) -> bool:
    """Nested types differ in names that Arrow gives to the fields inside of lists and maps, and in zones of times."""
    if pa.types.is_list(ours) and pa.types.is_list(there):
        return _takes(there.value_type, ours.value_type)
    if pa.types.is_map(ours) and pa.types.is_map(there):
        return _takes(there.key_type, ours.key_type) and _takes(there.item_type, ours.item_type)
    if pa.types.is_struct(ours) and pa.types.is_struct(there):
        mine, theirs = list(ours), list(there)
        return [f.name for f in mine] == [f.name for f in theirs] and all(
            _takes(t.type, m.type) for t, m in zip(theirs, mine, strict=True)
        )
    return bool(there == ours)
