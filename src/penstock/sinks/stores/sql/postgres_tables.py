"""The table that a sink writes in a PostgreSQL, made or checked, with what stands beside it: markers, and where rows are staged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.core.columns import TIME
from penstock.core.schema import TIMESTAMP, Schema
from penstock.errors import SinkError
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.sql.tables import MARKERS, TableName, check_key, too_long

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    Connection = psycopg.Connection[tuple[Any, ...]]

_STAGED, _GONE = "penstock_staged", "penstock_gone"  # the rows of an epoch, and the keys that go
_WHOLE = ("int2", "int4", "int8", "numeric")
# What is made for a type, and what else takes its values.
_KINDS: list[tuple[Callable[[pa.DataType], bool], str, tuple[str, ...]]] = [
    (pa.types.is_boolean, "boolean", ("bool",)),
    (pa.types.is_int8, "smallint", (*_WHOLE, "float4", "float8")),
    (pa.types.is_int16, "smallint", (*_WHOLE, "float4", "float8")),
    (pa.types.is_int32, "integer", (*_WHOLE[1:], "float8")),
    (pa.types.is_int64, "bigint", _WHOLE[2:]),
    (pa.types.is_float32, "real", ("float4", "float8")),
    (pa.types.is_float64, "double precision", ("float8",)),
    (pa.types.is_binary, "bytea", ("bytea",)),
    (pa.types.is_date, "date", ("date", "timestamp", "timestamptz")),
    (pa.types.is_timestamp, "timestamptz", ("timestamptz", "timestamp")),
    (pa.types.is_decimal, "numeric", ("numeric",)),
    (pa.types.is_nested, "jsonb", ("json", "jsonb")),
]
_TEXTS = ("text", "varchar", "bpchar")  # take everything, as it is written
_COLUMNS = (
    "SELECT a.attname, t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped"
)
_UNIQUE = (
    "SELECT array_agg(a.attname::text) FROM pg_index i "
    "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) "
    "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid"
)


@dataclass(frozen=True)
class Target:
    """The table, and what a sink brings there."""

    table: TableName
    spec: SinkSpec
    soft_delete: str | None  # a column that says when the row was deleted
    lasting: str | None = None  # what ends the names of tables beside it in which rows are staged; None: temporary tables are used

    @property
    def fields(self) -> list[pa.Field]:
        return [*self.spec.schema.arrow, *([pa.field(self.soft_delete, TIMESTAMP)] if self.soft_delete else [])]

    def name(self, beside: str | None = None) -> "sql.Identifier":
        """The table's, or of the one beside it."""
        from psycopg import sql

        return sql.Identifier(*(self.table.beside(beside) if beside else self.table).parts)

    @property
    def staged(self) -> "sql.Identifier":
        return self._staging(_STAGED)

    @property
    def gone(self) -> "sql.Identifier":
        return self._staging(_GONE)

    def _staging(self, name: str) -> "sql.Identifier":
        from psycopg import sql

        return self.name(f"{name}_{self.lasting}") if self.lasting else sql.Identifier(name)


def prepare(connection: "Connection", target: Target, called: str) -> None:
    """Makes the table, or adds columns that are new, and makes the rest; SinkError if the table that is there does not fit."""
    make_markers(connection, target)
    make_tables(connection, target, called)
    connection.commit()


def make_tables(connection: "Connection", target: Target, called: str) -> None:
    """The table and those in which rows are staged, in the transaction that is open."""
    check_key(called, target.spec)
    if name := too_long(target.spec.schema):
        raise SinkError(
            f"column {name[:40]!r}… has a longer name than PostgreSQL keeps", hint="select it under a name of 63 bytes at most"
        )
    there: dict[str, str] = dict(connection.execute(_COLUMNS, [target.name().as_string(connection)]).fetchall())
    if there:
        _check(target, there, called)
        _add_columns(connection, target, there)
        _check_key(connection, target, called)
    else:
        _make(connection, target)
    _make_staging(connection, target)


def make_markers(connection: "Connection", target: Target) -> None:
    """The table of markers, committed, where it is missing."""
    from psycopg import sql

    found = connection.execute("SELECT to_regclass(%s)", [target.name(MARKERS).as_string(connection)]).fetchone()
    if found and found[0]:
        return
    if target.table.schema:
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(target.table.schema)))
    columns = "flow text, sink text, incarnation text NOT NULL, generation bigint NOT NULL, epoch bigint NOT NULL, refused bytea"
    statement = sql.SQL("CREATE TABLE IF NOT EXISTS {} (" + columns + ", PRIMARY KEY (flow, sink))")
    connection.execute(statement.format(target.name(MARKERS)))
    connection.commit()


def _make(connection: "Connection", target: Target) -> None:
    from psycopg import sql

    columns: list[sql.Composable] = [_column(f) for f in target.fields]
    if key := target.spec.key:
        nullable = any(target.spec.schema.arrow.field(name).nullable for name in key)
        columns.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})" if nullable else "PRIMARY KEY ({})").format(listed(key)))
    connection.execute(sql.SQL("CREATE TABLE {} ({})").format(target.name(), sql.SQL(", ").join(columns)))


def _check(target: Target, there: dict[str, str], called: str) -> None:
    for f in target.fields:
        if f.name in there and not _takes(f.type, there[f.name]):
            raise SinkError(
                f"column {f.name!r} of {called} is {there[f.name]}, which does not take {Schema(pa.schema([f])).ddl()}",
                hint="change the column's type, cast the column in the flow, or name another table",
            )


def _add_columns(connection: "Connection", target: Target, there: dict[str, str]) -> None:
    from psycopg import sql

    for f in target.fields:
        if f.name not in there:
            connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(target.name(), _column(f.with_nullable(True))))


def _check_key(connection: "Connection", target: Target, called: str) -> None:
    """An upsert needs a unique index over exactly the key."""
    key = target.spec.key
    if not key:
        return
    found = connection.execute(_UNIQUE, [target.name().as_string(connection)]).fetchall()
    if not any(set(names) == set(key) for (names,) in found):
        raise SinkError(
            f"{called} has no unique index over the columns that tell rows apart: {', '.join(key)}",
            hint=f"CREATE UNIQUE INDEX ON {target.table} ({', '.join(key)}); or name other columns: key=",
        )


def _make_staging(connection: "Connection", target: Target) -> None:
    """With the types of the table: of this session and emptied by every commit, or unlogged and made anew."""
    from psycopg import sql

    kept = [(target.staged, listed(target.spec.schema.names))]
    if target.spec.key:
        when = sql.SQL(", NULL::timestamptz AS {}").format(sql.Identifier(TIME)) if target.soft_delete else sql.SQL("")
        kept.append((target.gone, listed(target.spec.key) + when))
    for name, columns in kept:
        made = "CREATE TEMP TABLE {} ON COMMIT DELETE ROWS"
        if target.lasting:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
            made = "CREATE UNLOGGED TABLE {}"
        connection.execute(sql.SQL(made + " AS SELECT {} FROM {} WITH NO DATA").format(name, columns, target.name()))


def _column(f: pa.Field) -> "sql.Composed":
    from psycopg import sql

    return sql.SQL("{} {}{}").format(sql.Identifier(f.name), sql.SQL(_declared(f.type)), sql.SQL("" if f.nullable else " NOT NULL"))


def _declared(t: pa.DataType) -> str:
    if pa.types.is_decimal(t):
        return f"numeric({t.precision}, {t.scale})"
    return next((word for fits, word, _ in _KINDS if fits(t)), "text")


def _takes(t: pa.DataType, there: str) -> bool:
    """Whether a column that is there takes the values. A text may be for whatever the server reads: a uuid, an enum."""
    return there in _TEXTS or next((there in others for fits, _, others in _KINDS if fits(t)), True)


def listed(names: Sequence[str]) -> "sql.Composed":
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, names))
