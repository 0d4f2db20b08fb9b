"""A table of a PostgreSQL, kept in step: COPY to a temporary table, one upsert, and the marker, in one transaction."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString

import pyarrow as pa

from penstock.core.columns import TIME
from penstock.core.schema import TIMESTAMP
from penstock.errors import SinkError, SinkUnavailable
from penstock.sinks.port import Marker, SinkSpec
from penstock.sinks.stores.arguments import OnConflict, OnError, names, one_of
from penstock.sinks.stores.changes import Keep
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.port import Changes, Note, Refusal
from penstock.sinks.stores.reading import readable_rows
from penstock.sinks.stores.refusing import RowRefused, accepted
from penstock.sinks.stores.sql.postgres_connection import PostgresDatabase, client
from penstock.sinks.stores.sql.postgres_tables import Target, listed, prepare
from penstock.sinks.stores.sql.tables import MARKERS, TableName, emptying
from penstock.sinks.stores.texts import copy_lines

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store

_FETCHED = 20_000  # rows that are read at one time
# Whoever holds a lock for longer is another driver, or a transaction that was left prepared: the sink is away until it is gone.
PATIENCE = "-c lock_timeout=10s"


@dataclass(frozen=True)
class PostgresDefinition(StoreDefinition):
    """`stream.sink(postgres(…))`"""

    url: str = field(repr=False)
    table: str
    key: tuple[str, ...] | None = None
    password: str | None = None
    on_conflict: OnConflict = "update"
    soft_delete: str | None = None
    on_error: OnError = "dead"

    kind: ClassVar[str] = "postgres"

    @property
    def target(self) -> str:
        return self.table

    @property
    def holds(self) -> Keep:
        return "first" if self.on_conflict == "ignore" else "last"

    def emptied(self, flow: str, name: str) -> str:
        return f"in {PostgresDatabase(self.url, self.password).place}: {emptying(TableName.of(self.table), flow, name)}"

    def store(self, context: "SinkContext") -> "Store":
        return PostgresStore(self, context.spec)


def postgres(
    url: str,
    table: str,
    *,
    key: str | Iterable[str] | None = None,
    password: str | None = None,
    on_conflict: OnConflict = "update",
    soft_delete: str | None = None,
    on_error: OnError = "dead",
) -> PostgresDefinition:
    """A table of a PostgreSQL: `sales.sink(postgres("postgresql://shop@db/shop", "sales", password="env:SHOP_PASSWORD"))`.

    `table` is made where it is missing, with a key; it gains columns that the flow gains. `key` names the columns that tell rows
    apart; left out, they are those of the step, and rows that have none are appended. `on_conflict`: what happens to a row whose
    key is there: it is updated, or the new one is ignored. `soft_delete`: a column that gets the
    time of a delete, instead of the row being deleted. `on_error`: a row that the table refuses (a constraint, a type) becomes a
    dead letter, or stops the flow. Needs the extra `postgres`."""
    PostgresDatabase(url, password)
    TableName.of(table)
    one_of("on_conflict", on_conflict, OnConflict)
    one_of("on_error", on_error, OnError)
    return PostgresDefinition(url, table, names(key), password, on_conflict, soft_delete, on_error)


class PostgresStore:
    """One table. The markers of all sinks that write to its schema are in a table beside it. lasting: where rows are staged that
    are not to be in temporary tables."""

    def __init__(self, definition: PostgresDefinition, spec: SinkSpec, lasting: str | None = None) -> None:
        self._definition, self._spec = definition, spec
        self._target = Target(TableName.of(definition.table), spec, definition.soft_delete, lasting)
        self._database = PostgresDatabase(definition.url, definition.password)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    @property
    def called(self) -> str:
        return f"table {self._target.table} of {self._database.place}"

    def open(self) -> None:
        with self._translated("be opened"):
            prepare(self._connected(PATIENCE), self._target, self.called)

    def _connected(self, defaults: str = "") -> "psycopg.Connection[tuple[Any, ...]]":
        """A new connection. defaults: settings of the session where the URL has none."""
        self.close()
        with self._translated("be opened"):
            self._connection = self._database.connect(f"penstock {self._spec.flow}/{self._spec.name}", defaults)
        return self._open()

    @contextmanager
    def transaction(self) -> Iterator["PostgresTransaction"]:
        with self._committed() as connection:
            yield PostgresTransaction(connection, self)

    @contextmanager
    def _committed(self) -> Iterator["psycopg.Connection[tuple[Any, ...]]"]:
        connection = self._open()
        with self._translated("take an epoch"):
            try:
                yield connection
                connection.commit()
            except BaseException:
                with suppress(client().Error):
                    connection.rollback()
                raise

    def _open(self) -> "psycopg.Connection[tuple[Any, ...]]":
        if self._connection is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            with suppress(client().Error):
                self._connection.close()
            self._connection = None

    @property
    def definition(self) -> PostgresDefinition:
        return self._definition

    @property
    def target(self) -> Target:
        return self._target

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        psycopg = client()
        try:
            yield
        except psycopg.Error as error:
            state = error.sqlstate or ""
            passing = not state or state[:2] in ("08", "57", "53", "58", "40") or state in ("55P03",)
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            detail = [self._database.secret.hidden(line) for line in lines]
            if isinstance(error, psycopg.ProgrammingError) and not state:
                raise SinkError(f"the URL of {self.called} cannot be read", hint="postgresql://user@host:5432/database") from None
            kind = SinkUnavailable if passing else SinkError
            raise kind(f"{self.called} cannot {doing}", *detail, *([f"SQLSTATE {state}"] if state else [])) from error


class PostgresTransaction:
    one_moment = True

    def __init__(self, connection: "psycopg.Connection[tuple[Any, ...]]", store: PostgresStore) -> None:
        self._connection, self._store, self._target, self._spec = connection, store, store.target, store.target.spec
        self._staged = False  # whether rows of this transaction are staged

    def note(self) -> Note | None:
        from psycopg import sql

        if (found := self._line(" FOR UPDATE")) is None:  # a line without a life, so that there is something to lock
            new = "INSERT INTO {} (flow, sink, incarnation, generation, epoch) VALUES (%s, %s, '', -1, -1) ON CONFLICT DO NOTHING"
            self._connection.execute(sql.SQL(new).format(self._target.name(MARKERS)), [self._spec.flow, self._spec.name])
            found = self._line(" FOR UPDATE")
        return _noted(found)

    def seen(self) -> Note | None:
        """What is kept, as others see it: without a lock."""
        return _noted(self._line(""))

    def _line(self, locked: LiteralString) -> tuple[Any, ...] | None:
        from psycopg import sql

        line = "SELECT incarnation, generation, epoch, refused FROM {} WHERE flow = %s AND sink = %s"
        statement = sql.SQL(line).format(self._target.name(MARKERS)) + sql.SQL(locked)
        return self._connection.execute(statement, [self._spec.flow, self._spec.name]).fetchone()

    def keep(self, note: Note) -> None:
        from psycopg import sql

        statement = (
            "INSERT INTO {} (flow, sink, incarnation, generation, epoch, refused) VALUES (%s, %s, %s, %s, %s, %s) "
            "ON CONFLICT (flow, sink) DO UPDATE SET incarnation = excluded.incarnation, generation = excluded.generation, "
            "epoch = excluded.epoch, refused = excluded.refused"
        )
        marker = note.marker
        self._connection.execute(
            sql.SQL(statement).format(self._target.name(MARKERS)),
            [self._spec.flow, self._spec.name, marker.incarnation, marker.generation, marker.epoch, note.refused or None],
        )

    def write(self, changes: Changes) -> Sequence[Refusal]:
        if changes.gone.num_rows:
            self._delete(changes.gone)
        return accepted(self._upsert, changes.put) if changes.put.num_rows else ()

    def rows(self) -> Iterator[pa.Table]:
        """All rows but those that are deleted softly."""
        from psycopg import sql

        soft, schema = self._store.definition.soft_delete, self._spec.schema
        columns = [
            sql.SQL("{}::text" if pa.types.is_string(f.type) or pa.types.is_nested(f.type) else "{}").format(sql.Identifier(f.name))
            for f in schema
        ]
        statement = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(columns), self._target.name())
        statement += sql.SQL(" WHERE {} IS NULL").format(sql.Identifier(soft)) if soft else sql.SQL("")
        with self._connection.cursor("penstock_rows") as cursor:
            cursor.execute(statement)
            while lines := cursor.fetchmany(_FETCHED):
                yield readable_rows(dict(zip(schema.names, zip(*lines, strict=True), strict=True)), schema)

    def _delete(self, gone: pa.Table) -> None:
        from psycopg import sql

        soft, key = self._store.definition.soft_delete, self._spec.key
        rows = gone.select(list(key))
        if soft:
            rows = rows.append_column(TIME, gone[TIME].cast(TIMESTAMP))
        accepted(self._name_gone, rows)  # a key that does not fit the table is not there
        nulls = any(rows[name].null_count for name in key)
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{0} {1} g.{0}").format(sql.Identifier(name), sql.SQL("IS NOT DISTINCT FROM" if nulls else "="))
            for name in key
        )
        statement = "DELETE FROM {table} t USING {gone} g WHERE {same}"
        if soft:
            statement = "UPDATE {table} t SET {soft} = g.{time} FROM {gone} g WHERE {same}"
        self._connection.execute(
            sql.SQL(statement).format(
                table=self._target.name(),
                gone=self._target.gone,
                same=same,
                soft=sql.Identifier(soft or ""),
                time=sql.Identifier(TIME),
            )
        )

    def _name_gone(self, rows: pa.Table) -> None:
        with self._whole():
            self._copy(self._target.gone, rows)

    def _upsert(self, rows: pa.Table) -> None:
        from psycopg import sql

        with self._whole():
            if self._staged:
                self._connection.execute(sql.SQL("TRUNCATE {}").format(self._target.staged))
            self._staged = True
            self._copy(self._target.staged, rows.select(self._spec.schema.names))
            self._connection.execute(self._statement())

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """All of the rows or none; RowRefused if one of them does not fit."""
        psycopg = client()
        try:
            with self._connection.transaction():  # a savepoint
                yield
        except (psycopg.errors.DataError, psycopg.errors.IntegrityError) as error:
            raise RowRefused(str(error).splitlines()[0]) from error

    def _statement(self) -> "sql.Composed":
        from psycopg import sql

        names, key, definition = self._spec.schema.names, self._spec.key, self._store.definition
        values = listed(names)
        statement = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
            self._target.name(), values, values, self._target.staged
        )
        if not key:
            return statement
        sets = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in names if name not in key]
        sets += [sql.SQL("{} = NULL").format(sql.Identifier(definition.soft_delete))] if definition.soft_delete else []
        if definition.on_conflict == "ignore" or not sets:
            return statement + sql.SQL(" ON CONFLICT ({}) DO NOTHING").format(listed(key))
        return statement + sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(listed(key), sql.SQL(", ").join(sets))

    def _copy(self, table: "sql.Identifier", rows: pa.Table) -> None:
        from psycopg import sql

        with self._connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(table)) as copy:
            for lines in copy_lines(rows):
                copy.write(lines)


def _noted(line: tuple[Any, ...] | None) -> Note | None:
    return Note(Marker(*line[:3]), bytes(line[3] or b"")) if line and line[0] else None
