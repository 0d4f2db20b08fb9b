"""The table that a sink writes in a MySQL, made or checked, with what stands beside it: markers, and temporary tables.

Each statement here commits by itself, as MySQL does it with changes of tables: none of them belongs to an epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.core.columns import TIME
from penstock.core.schema import TIMESTAMP, Schema
from penstock.errors import SinkError
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.sql.mysql_rows import identifier, identifiers, text
from penstock.sinks.stores.sql.mysql_types import There, declared, key_type, takes, tells_apart
from penstock.sinks.stores.sql.tables import MARKERS, TableName, check_key

if TYPE_CHECKING:
    from penstock.sinks.stores.sql.mysql_connection import MysqlConnection

STAGED, GONE = "penstock_staged", "penstock_gone"  # temporary: rows that need more care than one statement, and the keys that go
_LONGEST = 64  # characters of a name
# Texts that differ in case or in spaces at the end are different: MySQL's name for such a collation, and MariaDB's.
_COLLATIONS = ("utf8mb4_0900_bin", "utf8mb4_nopad_bin")
_MARKER = (
    "flow VARCHAR(380), sink VARCHAR(380), part INT, incarnation VARCHAR(100) NOT NULL, generation BIGINT NOT NULL, "
    "epoch BIGINT NOT NULL, refused LONGBLOB, PRIMARY KEY (flow, sink, part)"
)


@dataclass(frozen=True)
class Target:
    """The table, and what a sink brings there."""

    database: str
    table: TableName
    spec: SinkSpec
    soft_delete: str | None  # a column that says when the row was deleted

    @property
    def fields(self) -> list[pa.Field]:
        return [*self.spec.schema.arrow, *([pa.field(self.soft_delete, TIMESTAMP)] if self.soft_delete else [])]

    def name(self, beside: str | None = None) -> str:
        """The table's, or of the one beside it."""
        return f"{identifier(self.database)}.{identifier(beside or self.table.name)}"


@dataclass(frozen=True)
class Prepared:
    """What is known of a table that fits. alone: no unique index but the key's can hold a row up."""

    alone: bool
    packet: int  # bytes of a statement, at most
    chars: tuple[str, ...] = ()  # columns of the flow that are CHAR there, which loses spaces at the end


def prepare(connection: "MysqlConnection", target: Target, called: str) -> Prepared:
    """Makes the table, or adds columns that are new, and makes the rest; SinkError if the table that is there does not fit."""
    check_key(called, target.spec)
    _check_names(target)
    collation = _collation(connection, called)
    _make_markers(connection, target, collation)
    connection.select_db(target.database)  # some statements name tables by an alias alone
    there = _columns(connection, target)
    if there:
        _check(target, there, called)
        _add_columns(connection, target, there, collation)
    else:
        _make(connection, target, collation)
    _check_engine(connection, target, called)
    unique = _unique(connection, target)
    _check_key(target, unique, called)
    if target.spec.key:
        _make_temporary(connection, target)
    [(packet,)] = rows_of(connection, "SELECT @@max_allowed_packet")
    chars = tuple(name for name in target.spec.schema.names if name.lower() in there and there[name.lower()].kind == "char")
    return Prepared(all(set(_lower(target.spec.key)) <= columns for columns in unique), int(packet), chars)


def rows_of(connection: "MysqlConnection", statement: str) -> Sequence[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def _check_names(target: Target) -> None:
    for name in target.spec.schema.names:
        if len(name) > _LONGEST:
            raise SinkError(
                f"column {name[:40]!r}… has a longer name than MySQL takes", hint=f"select it under a name of {_LONGEST} characters"
            )
        if any(ord(c) > 0xFFFF for c in name):
            raise SinkError(f"column {name!r} has a name that MySQL does not take", hint="select it under another name")


def _collation(connection: "MysqlConnection", called: str) -> str:
    known = ", ".join(map(text, _COLLATIONS))
    query = f"SELECT collation_name FROM information_schema.collations WHERE collation_name IN ({known})"
    for (name,) in rows_of(connection, query):
        return str(name)
    [(version,)] = rows_of(connection, "SELECT version()")
    raise SinkError(
        f"{called} is on a server of version {version}", hint="MySQL 8.0.17 or MariaDB 10.2 are the oldest that will do"
    )


def _make_markers(connection: "MysqlConnection", target: Target, collation: str) -> None:
    if rows_of(connection, f"SELECT engine FROM information_schema.tables {_where(target, MARKERS)}"):
        return
    if not rows_of(connection, f"SELECT 1 FROM information_schema.schemata WHERE schema_name = {text(target.database)}"):
        _execute(connection, f"CREATE DATABASE IF NOT EXISTS {identifier(target.database)}")
    _execute(connection, f"CREATE TABLE IF NOT EXISTS {target.name(MARKERS)} ({_MARKER}) ENGINE = InnoDB COLLATE {collation}")


def _make(connection: "MysqlConnection", target: Target, collation: str) -> None:
    key, schema = target.spec.key, target.spec.schema.arrow
    columns = [_column(f, key_type(f, [schema.field(name).type for name in key]) if f.name in key else None) for f in target.fields]
    if key:
        nullable = any(schema.field(name).nullable for name in key)
        columns.append(f"{'UNIQUE KEY' if nullable else 'PRIMARY KEY'} ({identifiers(key)})")
    _execute(connection, f"CREATE TABLE {target.name()} ({', '.join(columns)}) ENGINE = InnoDB COLLATE {collation}")


def _check(target: Target, there: dict[str, There], called: str) -> None:
    for f in target.fields:
        found = there.get(f.name.lower())
        if found and not takes(f.type, found):
            raise SinkError(
                f"column {f.name!r} of {called} is {found.declared}, which does not take {Schema(pa.schema([f])).ddl()}",
                hint=f"MODIFY {identifier(found.name)} {declared(f.type)}, cast the column in the flow, or name another table",
            )
        if found and f.name in target.spec.key and not tells_apart(found.collation):
            raise SinkError(
                f"column {f.name!r} of {called} tells rows apart, but its collation {found.collation} takes texts for equal "
                "that differ in case, accents or spaces at the end",
                hint=f"ALTER TABLE … MODIFY {identifier(found.name)} {found.declared} COLLATE {' (MariaDB: '.join(_COLLATIONS)})",
            )


def _add_columns(connection: "MysqlConnection", target: Target, there: dict[str, There], collation: str) -> None:
    for f in target.fields:
        if f.name.lower() not in there:
            word = declared(f.type) + (f" COLLATE {collation}" if declared(f.type) == "LONGTEXT" else "")
            _execute(connection, f"ALTER TABLE {target.name()} ADD COLUMN {_column(f.with_nullable(True), word)}")


def _check_engine(connection: "MysqlConnection", target: Target, called: str) -> None:
    for name in (target.table.name, MARKERS):
        for (engine,) in rows_of(connection, f"SELECT engine FROM information_schema.tables {_where(target, name)}"):
            if str(engine).lower() != "innodb":
                raise SinkError(
                    f"{called}: {name} is of engine {engine}, which has no transactions",
                    hint=f"ALTER TABLE {target.name(name)} ENGINE = InnoDB; a view cannot be written",
                )


def _check_key(target: Target, unique: Sequence[frozenset[str]], called: str) -> None:
    """An upsert needs a unique index over exactly the key."""
    key = target.spec.key
    if key and frozenset(_lower(key)) not in unique:
        raise SinkError(
            f"{called} has no unique index over the columns that tell rows apart: {', '.join(key)}",
            hint=f"ALTER TABLE {target.name()} ADD UNIQUE KEY ({identifiers(key)}); or name other columns: key=",
        )


def _make_temporary(connection: "MysqlConnection", target: Target) -> None:
    """Of this session, with the types of the table."""
    when = f", CAST(NULL AS DATETIME(6)) AS {identifier(TIME)}" if target.soft_delete else ""
    kept = {STAGED: identifiers(target.spec.schema.names), GONE: identifiers(target.spec.key) + when}
    for name, columns in kept.items():
        made = f"CREATE TEMPORARY TABLE {target.name(name)} ENGINE = InnoDB"
        _execute(connection, f"{made} AS SELECT {columns} FROM {target.name()} WHERE FALSE")


def _columns(connection: "MysqlConnection", target: Target) -> dict[str, There]:
    """By their names in small letters, which is how MySQL tells them apart."""
    columns = "column_name, data_type, column_type, numeric_scale, datetime_precision, collation_name"
    found = rows_of(connection, f"SELECT {columns} FROM information_schema.columns {_where(target)}")
    return {str(line[0]).lower(): There(str(line[0]), str(line[1]).lower(), _plain(line[2]), *line[3:]) for line in found}


def _unique(connection: "MysqlConnection", target: Target) -> list[frozenset[str]]:
    """The columns of each unique index. One over parts of values, or over expressions, is over none."""
    columns = "index_name, column_name, sub_part"
    found = rows_of(connection, f"SELECT {columns} FROM information_schema.statistics {_where(target)} AND non_unique = 0")
    whole: dict[str, set[str]] = {}
    for index, column, part in found:
        whole.setdefault(index, set()).add("" if part or column is None else str(column).lower())
    return [frozenset(names) for names in whole.values()]


def _where(target: Target, name: str | None = None) -> str:
    return f"WHERE table_schema = {text(target.database)} AND table_name = {text(name or target.table.name)}"


def _column(f: pa.Field, word: str | None = None) -> str:
    return f"{identifier(f.name)} {word or declared(f.type)}{'' if f.nullable else ' NOT NULL'}"


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _plain(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _execute(connection: "MysqlConnection", statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
