"""A table of a PostgreSQL, kept in step: COPY to a temporary table, one upsert, and the marker, in one transaction."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.core.columns import TIME
from penstock.core.schema import TIMESTAMP
from penstock.errors import SinkError, SinkUnavailable, install
from penstock.sinks.port import Marker, SinkSpec
from penstock.sinks.stores.arguments import OnConflict, OnError, names, one_of
from penstock.sinks.stores.changes import Keep
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.places import Password, Place
from penstock.sinks.stores.port import Changes, Note, Refusal
from penstock.sinks.stores.refusing import RowRefused, accepted
from penstock.sinks.stores.sql.postgres_tables import GONE, STAGED, Target, listed, prepare
from penstock.sinks.stores.sql.tables import MARKERS, TableName
from penstock.sinks.stores.texts import copy_lines

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store

CONNECT_SECONDS = 10
_SESSION = "-c TimeZone=UTC -c DateStyle=ISO -c client_min_messages=warning"


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
    Password(password, Place.of(url, "PostgreSQL", 5432))
    TableName.of(table)
    one_of("on_conflict", on_conflict, OnConflict)
    one_of("on_error", on_error, OnError)
    return PostgresDefinition(url, table, names(key), password, on_conflict, soft_delete, on_error)


class PostgresStore:
    """One table. The markers of all sinks that write to its schema are in a table beside it."""

    def __init__(self, definition: PostgresDefinition, spec: SinkSpec) -> None:
        self._definition, self._spec = definition, spec
        self._target = Target(TableName.of(definition.table), spec, definition.soft_delete)
        self._place = Place.of(definition.url, "PostgreSQL", 5432)
        self._password = Password(definition.password, self._place)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    @property
    def called(self) -> str:
        return f"table {self._target.table} of {self._place}"

    def open(self) -> None:
        self.close()
        psycopg = _library()
        with self._translated("be opened"):
            given = psycopg.conninfo.conninfo_to_dict(self._definition.url)
            mine: dict[str, Any] = {"client_encoding": "UTF8", "options": f"{given.get('options', '')} {_SESSION}".strip()}
            mine |= {"application_name": f"penstock {self._spec.flow}/{self._spec.name}"[:63]}
            mine |= {} if "connect_timeout" in given else {"connect_timeout": CONNECT_SECONDS}
            mine |= {} if self._password.absent else {"password": self._password.read()}
            self._connection = psycopg.connect(self._definition.url, **mine)
            prepare(self._connection, self._target, self.called)

    @contextmanager
    def transaction(self) -> Iterator["PostgresTransaction"]:
        connection = self._connection
        if connection is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        with self._translated("take an epoch"):
            try:
                yield PostgresTransaction(connection, self)
                connection.commit()
            except BaseException:
                with suppress(_library().Error):
                    connection.rollback()
                raise

    def close(self) -> None:
        if self._connection is not None:
            with suppress(_library().Error):
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
        psycopg = _library()
        try:
            yield
        except psycopg.Error as error:
            state = error.sqlstate or ""
            passing = not state or state[:2] in ("08", "57", "53", "58", "40") or state in ("55P03",)
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            detail = [self._password.hidden(line) for line in lines]
            if isinstance(error, psycopg.ProgrammingError) and not state:
                raise SinkError(f"the URL of {self.called} cannot be read", hint="postgresql://user@host:5432/database") from None
            kind = SinkUnavailable if passing else SinkError
            raise kind(f"{self.called} cannot {doing}", *detail, *([f"SQLSTATE {state}"] if state else [])) from error


class PostgresTransaction:
    def __init__(self, connection: "psycopg.Connection[tuple[Any, ...]]", store: PostgresStore) -> None:
        self._connection, self._store, self._target, self._spec = connection, store, store.target, store.target.spec
        self._staged = False  # whether rows of this transaction are in the temporary table

    def note(self) -> Note | None:
        from psycopg import sql

        markers, ours = self._target.name(MARKERS), [self._spec.flow, self._spec.name]
        statement = sql.SQL(
            "SELECT incarnation, generation, epoch, refused FROM {} WHERE flow = %s AND sink = %s FOR UPDATE"
        ).format(markers)
        found = self._connection.execute(statement, ours).fetchone()
        if found is None:  # a line without a life, so that there is something to lock
            new = sql.SQL(
                "INSERT INTO {} (flow, sink, incarnation, generation, epoch) VALUES (%s, %s, '', -1, -1) ON CONFLICT DO NOTHING"
            )
            self._connection.execute(new.format(markers), ours)
            found = self._connection.execute(statement, ours).fetchone()
        return Note(Marker(*found[:3]), bytes(found[3] or b"")) if found and found[0] else None

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

    def _delete(self, gone: pa.Table) -> None:
        from psycopg import sql

        soft, key = self._store.definition.soft_delete, self._spec.key
        rows = gone.select(list(key))
        if soft:
            rows = rows.append_column(TIME, gone[TIME].cast(TIMESTAMP))
        self._copy(GONE, rows)
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
                gone=sql.Identifier(GONE),
                same=same,
                soft=sql.Identifier(soft or ""),
                time=sql.Identifier(TIME),
            )
        )

    def _upsert(self, rows: pa.Table) -> None:
        """All of the rows or none; RowRefused if one of them does not fit."""
        psycopg = _library()
        try:
            with self._connection.transaction():  # a savepoint
                if self._staged:
                    self._connection.execute(f"TRUNCATE {STAGED}")
                self._staged = True
                self._copy(STAGED, rows.select(self._spec.schema.names))
                self._connection.execute(self._statement())
        except (psycopg.errors.DataError, psycopg.errors.IntegrityError) as error:
            raise RowRefused(str(error).splitlines()[0]) from error

    def _statement(self) -> "sql.Composed":
        from psycopg import sql

        names, key, definition = self._spec.schema.names, self._spec.key, self._store.definition
        values = listed(names)
        statement = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
            self._target.name(), values, values, sql.Identifier(STAGED)
        )
        if not key:
            return statement
        sets = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in names if name not in key]
        sets += [sql.SQL("{} = NULL").format(sql.Identifier(definition.soft_delete))] if definition.soft_delete else []
        if definition.on_conflict == "ignore" or not sets:
            return statement + sql.SQL(" ON CONFLICT ({}) DO NOTHING").format(listed(key))
        return statement + sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(listed(key), sql.SQL(", ").join(sets))

    def _copy(self, table: str, rows: pa.Table) -> None:
        from psycopg import sql

        with self._connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(table))) as copy:
            for lines in copy_lines(rows):
                copy.write(lines)


def _library() -> Any:
    try:
        import psycopg
        import psycopg.errors
    except ImportError as error:
        raise SinkError("PostgreSQL's client is not installed", hint=install("'psycopg[binary]'")) from error
    return psycopg
