"""A table of a MySQL or MariaDB, kept in step: rows in few INSERTs, keys that go, and the marker, in one transaction."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from penstock.errors import BadInput, SinkError
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.arguments import OnConflict, OnError, names, one_of
from penstock.sinks.stores.changes import Keep
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.sql.mysql_connection import MysqlServer, client
from penstock.sinks.stores.sql.mysql_tables import Prepared, Target, prepare
from penstock.sinks.stores.sql.mysql_transaction import MysqlTransaction
from penstock.sinks.stores.sql.tables import TableName, emptying

if TYPE_CHECKING:
    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store
    from penstock.sinks.stores.sql.mysql_connection import MysqlConnection


@dataclass(frozen=True)
class MysqlDefinition(StoreDefinition):
    """`stream.sink(mysql(…))`"""

    url: str = field(repr=False)
    table: str
    key: tuple[str, ...] | None = None
    password: str | None = None
    on_conflict: OnConflict = "update"
    soft_delete: str | None = None
    on_error: OnError = "dead"

    kind: ClassVar[str] = "mysql"
    called: ClassVar[str] = "MySQL"

    @property
    def target(self) -> str:
        return self.table

    @property
    def holds(self) -> Keep:
        return "first" if self.on_conflict == "ignore" else "last"

    @property
    def server(self) -> MysqlServer:
        return MysqlServer(self.called, self.url, self.password)

    @property
    def database(self) -> str:
        found = TableName.of(self.table).schema or self.server.database
        if not found:
            raise BadInput(f"no database is named for table {self.table!r}", hint="mysql://user@host/database, or database.table")
        return found

    def checked(self) -> Self:
        """What users gave it, refused before a flow runs."""
        assert self.database
        one_of("on_conflict", self.on_conflict, OnConflict)
        one_of("on_error", self.on_error, OnError)
        return self

    def emptied(self, flow: str, name: str) -> str:
        return f"in {self.server.place}: {emptying(TableName.of(self.table), flow, name, '`')}"

    def store(self, context: "SinkContext") -> "Store":
        return MysqlStore(self, context.spec)


@dataclass(frozen=True)
class MariadbDefinition(MysqlDefinition):
    """`stream.sink(mariadb(…))`"""

    kind: ClassVar[str] = "mariadb"
    called: ClassVar[str] = "MariaDB"


def mysql(
    url: str,
    table: str,
    *,
    key: str | Iterable[str] | None = None,
    password: str | None = None,
    on_conflict: OnConflict = "update",
    soft_delete: str | None = None,
    on_error: OnError = "dead",
) -> MysqlDefinition:
    """A table of a MySQL: `sales.sink(mysql("mysql://shop@db/shop", "sales", password="env:SHOP_PASSWORD"))`.

    `table` (or `database.table`) is made where it is missing, with a key; it gains columns that the flow gains. `key` names the
    columns that tell rows apart; left out, they are those of the step, and rows that have none are appended. `on_conflict`: what
    happens to a row whose key is there: it is updated, or the new one is ignored. `soft_delete`: a column that gets the time of a
    delete, instead of the row being deleted. `on_error`: a row that the table refuses (a constraint, a type, NaN) becomes a dead
    letter, or stops the flow. Needs the extra `mysql`."""
    return MysqlDefinition(url, table, names(key), password, on_conflict, soft_delete, on_error).checked()


def mariadb(
    url: str,
    table: str,
    *,
    key: str | Iterable[str] | None = None,
    password: str | None = None,
    on_conflict: OnConflict = "update",
    soft_delete: str | None = None,
    on_error: OnError = "dead",
) -> MariadbDefinition:
    """A table of a MariaDB; everything is as in `mysql`."""
    return MariadbDefinition(url, table, names(key), password, on_conflict, soft_delete, on_error).checked()


class MysqlStore:
    """One table. The markers of all sinks that write to its database are in a table beside it."""

    def __init__(self, definition: MysqlDefinition, spec: SinkSpec) -> None:
        self._definition, self._server = definition, definition.server
        self._target = Target(definition.database, TableName.of(definition.table), spec, definition.soft_delete)
        self._connection: MysqlConnection | None = None
        self._prepared: Prepared | None = None

    @property
    def called(self) -> str:
        return f"table {self._target.table} of {self._server.place}"

    def open(self) -> None:
        self.close()
        spec = self._target.spec
        with self._server.translated(self.called, "be opened"):
            self._connection = self._server.connect(f"penstock {spec.flow}/{spec.name}")
            self._prepared = prepare(self._connection, self._target, self.called)

    @contextmanager
    def transaction(self) -> Iterator["MysqlTransaction"]:
        connection, prepared = self._connection, self._prepared
        if connection is None or prepared is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        with self._server.translated(self.called, "take an epoch"):
            try:
                connection.begin()
                yield MysqlTransaction(connection, self._target, prepared, self._definition.on_conflict)
                connection.commit()
            except BaseException:
                with suppress(client().MySQLError):
                    connection.rollback()
                raise

    def close(self) -> None:
        if self._connection is not None:
            with suppress(client().MySQLError):
                self._connection.close()
            self._connection = None
