"""A table of an SQLite database, kept in step: rows and marker in one transaction, synced."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.core.arrow import one_array
from penstock.core.columns import TIME
from penstock.core.schema import TIMESTAMP, Schema
from penstock.errors import BadInput, DamagedStore, SinkError, SinkUnavailable
from penstock.sinks.port import Marker, SinkSpec
from penstock.sinks.stores.arguments import OnConflict, OnError, names, one_of
from penstock.sinks.stores.changes import Keep
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.port import AFRESH, Changes, Note, Refusal
from penstock.sinks.stores.reading import readable_rows
from penstock.sinks.stores.refusing import RowRefused, accepted
from penstock.sinks.stores.sql.tables import MARKERS, TableName, check_key, emptying
from penstock.sinks.stores.texts import texts_of

if TYPE_CHECKING:
    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store

_FETCHED = 20_000  # rows that are read at one time
WAIT = 10.0  # seconds for another process that writes to the same file
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(frozen=True)
class SqliteDefinition(StoreDefinition):
    """`stream.sink(sqlite(…))`"""

    path: str
    table: str
    key: tuple[str, ...] | None = None
    on_conflict: OnConflict = "update"
    soft_delete: str | None = None
    on_error: OnError = "dead"

    kind: ClassVar[str] = "sqlite"

    @property
    def target(self) -> str:
        return self.table

    @property
    def holds(self) -> Keep:
        return "first" if self.on_conflict == "ignore" else "last"

    def emptied(self, flow: str, name: str) -> str:
        return f"in {self.path}: {emptying(TableName.of(self.table), flow, name)}"

    def store(self, context: "SinkContext") -> "Store":
        return SqliteStore(self, context.spec)


def sqlite(
    path: str | os.PathLike[str],
    table: str,
    *,
    key: str | Iterable[str] | None = None,
    on_conflict: OnConflict = "update",
    soft_delete: str | None = None,
    on_error: OnError = "dead",
) -> SqliteDefinition:
    """A table of an SQLite database that others query: `sales.sink(sqlite("shop.db", "sales"))`.

    Times are text in ISO 8601, decimals text with all their digits, nested values JSON, NaN the text NaN. The rest is as in
    `postgres`."""
    if TableName.of(table).schema:
        raise BadInput(f"{table!r} is no name of a table in SQLite", hint="write it without a schema")
    one_of("on_conflict", on_conflict, OnConflict)
    one_of("on_error", on_error, OnError)
    return SqliteDefinition(os.path.abspath(path), table, names(key), on_conflict, soft_delete, on_error)


class SqliteStore:
    """One table. The markers of all sinks that write to the file are in a table beside it."""

    def __init__(self, definition: SqliteDefinition, spec: SinkSpec) -> None:
        self._definition, self._spec = definition, spec
        self._connection: sqlite3.Connection | None = None

    @property
    def called(self) -> str:
        return f"table {self._definition.table} of {self._definition.path}"

    @property
    def fields(self) -> list[pa.Field]:
        soft = self._definition.soft_delete
        return [*self._spec.schema.arrow, *([pa.field(soft, TIMESTAMP)] if soft else [])]

    def open(self) -> None:
        self.close()
        with self._translated("be opened"):
            self._connection = sqlite3.connect(self._definition.path, timeout=WAIT, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._prepare(self._connection)

    @contextmanager
    def transaction(self) -> Iterator["SqliteTransaction"]:
        connection = self._connection
        if connection is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        with self._translated("take an epoch"):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteTransaction(connection, self._definition, self._spec)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _prepare(self, connection: sqlite3.Connection) -> None:
        check_key(self.called, self._spec)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {MARKERS} (flow TEXT, sink TEXT, incarnation TEXT NOT NULL, generation INTEGER NOT NULL, "
            "epoch INTEGER NOT NULL, refused BLOB, PRIMARY KEY (flow, sink))"
        )
        table, key = _quoted(self._definition.table), self._spec.key
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        there = {name: kind for _, name, kind, *_ in columns}
        if not there:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(map(_column, self.fields))})")
            if key:
                connection.execute(f"CREATE UNIQUE INDEX {_quoted(self._definition.table + '_key')} ON {table} ({_keys(key)})")
            return
        for f in self.fields:
            if f.name not in there:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {_column(f.with_nullable(True))}")
            elif not _takes(f.type, there[f.name]):
                raise SinkError(
                    f"column {f.name!r} of {self.called} is {there[f.name]}, which does not take {Schema(pa.schema([f])).ddl()}",
                    hint="cast the column in the flow, or name another table",
                )
        primary = [(name, kind.upper()) for _, name, kind, *_, place in columns if place]
        rowid = {primary[0][0]} if [kind for _, kind in primary] == ["INTEGER"] else set()  # there is no index of it
        unique = (self._is_unique(connection, index, key) for index in connection.execute(f"PRAGMA index_list({table})"))
        if key and rowid != set(key) and not any(unique):
            raise SinkError(
                f"{self.called} has no unique index over the columns that tell rows apart: {', '.join(key)}",
                hint=f"CREATE UNIQUE INDEX … ON {table} ({_keys(key)}); or name other columns: key=",
            )

    def _is_unique(self, connection: sqlite3.Connection, index: Sequence[Any], key: Sequence[str]) -> bool:
        columns = {name for _, _, name in connection.execute(f"PRAGMA index_info({_quoted(index[1])})")}
        return bool(index[2]) and not index[4] and columns == set(key)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _DAMAGED:
                hint = f"it may hold tables of others. {AFRESH}"
                raise DamagedStore(f"{self.called} is damaged: {error}", hint=hint) from error
            kind = SinkUnavailable if code in _PASSING else SinkError
            raise kind(f"{self.called} cannot {doing}", str(error)) from error


class SqliteTransaction:
    one_moment = True

    def __init__(self, connection: sqlite3.Connection, definition: SqliteDefinition, spec: SinkSpec) -> None:
        self._connection, self._definition, self._spec = connection, definition, spec
        self._table = _quoted(definition.table)

    def note(self) -> Note | None:
        statement = f"SELECT incarnation, generation, epoch, refused FROM {MARKERS} WHERE flow = ? AND sink = ?"
        found = self._connection.execute(statement, (self._spec.flow, self._spec.name)).fetchone()
        return Note(Marker(*found[:3]), found[3] or b"") if found else None

    def keep(self, note: Note) -> None:
        marker = note.marker
        values = (self._spec.flow, self._spec.name, marker.incarnation, marker.generation, marker.epoch, note.refused or None)
        self._connection.execute(f"INSERT OR REPLACE INTO {MARKERS} VALUES (?, ?, ?, ?, ?, ?)", values)

    def write(self, changes: Changes) -> Sequence[Refusal]:
        if changes.gone.num_rows:
            self._delete(changes.gone)
        return accepted(self._upsert, changes.put) if changes.put.num_rows else ()

    def rows(self) -> Iterator[pa.Table]:
        """All rows but those that are deleted softly."""
        schema, soft = self._spec.schema, self._definition.soft_delete
        where = f" WHERE {_quoted(soft)} IS NULL" if soft else ""
        cursor = self._connection.execute(f"SELECT {_keys(schema.names)} FROM {self._table}{where}")
        while lines := cursor.fetchmany(_FETCHED):
            yield readable_rows(dict(zip(schema.names, zip(*lines, strict=True), strict=True)), schema)

    def _delete(self, gone: pa.Table, soft: bool = True) -> None:
        same = " AND ".join(f"{_quoted(name)} IS ?" for name in self._spec.key)
        statement, columns = f"DELETE FROM {self._table} WHERE {same}", []
        if soft and self._definition.soft_delete:
            statement = f"UPDATE {self._table} SET {_quoted(self._definition.soft_delete)} = ? WHERE {same}"
            columns = [texts_of(gone[TIME].cast(TIMESTAMP)).to_pylist()]
        columns += [_values(gone[name]) for name in self._spec.key]
        self._connection.executemany(statement, zip(*columns, strict=True))

    def _upsert(self, rows: pa.Table) -> None:
        """All of the rows or none; RowRefused if one of them does not fit."""
        self._refuse_null_keys(rows)
        lines = zip(*(_values(rows[name]) for name in self._spec.schema.names), strict=True)
        self._connection.execute("SAVEPOINT rows")
        try:
            if any(rows[name].null_count for name in self._spec.key):  # SQLite takes no null for equal to another
                self._delete(rows, soft=False)
            self._connection.executemany(self._statement(), lines)
        except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, UnicodeEncodeError) as error:
            self._connection.execute("ROLLBACK TO rows")
            raise RowRefused(str(error)) from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE rows")

    def _refuse_null_keys(self, rows: pa.Table) -> None:
        if self._definition.on_conflict != "update" and any(rows[name].null_count for name in self._spec.key):
            raise RowRefused(
                f'a key is null, of which SQLite keeps several: on_conflict="{self._definition.on_conflict}" cannot hold'
            )

    def _statement(self) -> str:
        columns, key, definition = self._spec.schema.names, self._spec.key, self._definition
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {self._table} ({', '.join(map(_quoted, columns))}) VALUES ({marks})"
        if not key:
            return statement
        sets = [f"{_quoted(name)} = excluded.{_quoted(name)}" for name in columns if name not in key]
        sets += [f"{_quoted(definition.soft_delete)} = NULL"] if definition.soft_delete else []
        if definition.on_conflict == "ignore" or not sets:
            return f"{statement} ON CONFLICT ({_keys(key)}) DO NOTHING"
        return f"{statement} ON CONFLICT ({_keys(key)}) DO UPDATE SET {', '.join(sets)}"


def _values(column: pa.ChunkedArray) -> list[Any]:
    """As they are bound to a statement."""
    t = column.type
    if pa.types.is_floating(t):
        return ["NaN" if value != value else value for value in one_array(column).to_pylist()]  # SQLite would make it NULL
    if pa.types.is_integer(t) or pa.types.is_binary(t) or pa.types.is_boolean(t):
        return one_array(column).to_pylist()
    return texts_of(column).to_pylist()


def _column(f: pa.Field) -> str:
    return f"{_quoted(f.name)} {_declared(f.type)}{'' if f.nullable else ' NOT NULL'}"


def _declared(t: pa.DataType) -> str:
    if pa.types.is_integer(t) or pa.types.is_boolean(t):
        return "INTEGER"
    return "REAL" if pa.types.is_floating(t) else "BLOB" if pa.types.is_binary(t) else "TEXT"


def _takes(t: pa.DataType, there: str) -> bool:
    """Whether a column that is there keeps the values as they are, by SQLite's rules of affinity."""
    kind = there.upper()
    if "INT" in kind:
        return _declared(t) == "INTEGER"
    if any(word in kind for word in ("CHAR", "CLOB", "TEXT")):
        return _declared(t) in ("TEXT", "BLOB")
    if not kind or "BLOB" in kind:
        return True
    return _declared(t) in ("REAL", "INTEGER") if any(word in kind for word in ("REAL", "FLOA", "DOUB")) else True


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _keys(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))
