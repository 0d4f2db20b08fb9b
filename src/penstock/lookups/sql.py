"""Tables and queries of SQL databases, asked by key: a SELECT for each batch, on connections that lookups share."""

import os
import re
import sqlite3
from abc import abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar
from urllib.parse import quote

from penstock.core.time import micros, text
from penstock.errors import BadInput
from penstock.lookups.asking import Store, StoreQuestions, connections_of
from penstock.lookups.tables import KeyedTable
from penstock.lookups.values import shaped
from penstock.plan import Answers, Asked, Lookup, Questions
from penstock.sinks.stores.arguments import names
from penstock.sinks.stores.places import Password
from penstock.sinks.stores.sql.mysql_connection import MysqlServer
from penstock.sinks.stores.sql.postgres_connection import PostgresDatabase
from penstock.sinks.stores.sql.tables import TableName

PROGRAM = "penstock lookup"
_QUERY = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
PARAMETERS = 30_000  # in one statement; all of the databases take as many


@dataclass(frozen=True)
class SqlRemote(Store):
    """table: its name, or a query that gives its rows."""

    table: str
    key: tuple[str, ...]

    quote: ClassVar[str] = '"'
    style: ClassVar[str] = "pyformat"

    @property
    @abstractmethod
    def place(self) -> str:
        """PostgreSQL db.example:5432/shop"""

    @property
    def called(self) -> str:
        return f"{'a query' if self.is_query else f'table {self.table}'} of {self.place}"

    @property
    def is_query(self) -> bool:
        return bool(_QUERY.match(self.table))

    def open(self, lookup: Lookup) -> Questions:
        return SqlQuestions(self, lookup)

    def asked(self, lookup: Lookup) -> KeyedTable:
        """The table as the SELECT names it."""
        made = KeyedTable(self.called, "", self.key or lookup.on, lookup.on, lookup.answers, self.quote, self.style)
        if self.is_query:
            return replace(made, source=made.literal(f"({self.table.strip().rstrip(';')}) AS asked"))
        return replace(made, source=".".join(map(made.quoted, TableName.of(self.table).parts)))


class SqlQuestions(StoreQuestions):
    def __init__(self, remote: SqlRemote, lookup: Lookup) -> None:
        super().__init__(remote)
        self._table, self._shaped = remote.asked(lookup), shaped(lookup.answers)

    def __call__(self, keys: Asked) -> Answers:
        step = max(1, PARAMETERS // len(self._table.key))
        return [answer for start in range(0, len(keys), step) for answer in self._some(keys[start : start + step])]

    def _some(self, keys: Asked) -> Answers:
        sql, values = self._table.query(keys)
        with self.connection() as connection:
            cursor = connection.cursor()
            cursor.execute(sql, values)
            found = cursor.fetchall()
            cursor.close()
        return [answer and self._shaped(answer) for answer in self._table.answers_in(found, keys)]


@dataclass(frozen=True)
class PostgresRemote(SqlRemote):
    url: str = field(repr=False)
    password: str | None = None
    connections: int = 4

    @property
    def _database(self) -> PostgresDatabase:
        return PostgresDatabase(self.url, self.password)

    @property
    def place(self) -> str:
        return str(self._database.place)

    @property
    def secret(self) -> Password:
        return self._database.secret

    @property
    def settings(self) -> Hashable:
        return "postgres", self.url, self.password, self.connections

    def connect(self) -> Any:
        return self._database.connect(PROGRAM, session="-c default_transaction_read_only=on", autocommit=True)

    def alive(self, connection: Any) -> None:
        connection.execute("SELECT 1")


@dataclass(frozen=True)
class MysqlRemote(SqlRemote):
    url: str = field(repr=False)
    password: str | None = None
    connections: int = 4

    kind: ClassVar[str] = "MySQL"
    quote: ClassVar[str] = "`"

    @property
    def _server(self) -> MysqlServer:
        return MysqlServer(self.kind, self.url, self.password)

    @property
    def place(self) -> str:
        return str(self._server.place)

    @property
    def secret(self) -> Password:
        return Password(self.password, self._server.place)

    @property
    def settings(self) -> Hashable:
        return "mysql", self.url, self.password, self.connections

    def connect(self) -> Any:
        made = self._server.connect(PROGRAM)
        made.query("SET SESSION TRANSACTION READ ONLY")
        return made

    def alive(self, connection: Any) -> None:
        connection.ping(reconnect=False)  # a new session would not have our settings


@dataclass(frozen=True)
class MariadbRemote(MysqlRemote):
    kind: ClassVar[str] = "MariaDB"


@dataclass(frozen=True)
class SqliteRemote(SqlRemote):
    path: str
    connections: int = 4

    style: ClassVar[str] = "qmark"

    @property
    def place(self) -> str:
        return self.path

    @property
    def secret(self) -> None:
        return None

    @property
    def settings(self) -> Hashable:
        return "sqlite", self.path, self.connections

    def asked(self, lookup: Lookup) -> KeyedTable:
        return replace(super().asked(lookup), bound=_as_sqlite_has_it)

    def connect(self) -> Any:
        return sqlite3.connect(f"file:{quote(self.path)}?mode=ro", uri=True, check_same_thread=False)

    def alive(self, connection: Any) -> None:
        """A file does not hang up."""


def _as_sqlite_has_it(value: Any) -> Any:
    """What it has no type for is text, as its sink writes it."""
    if isinstance(value, datetime):
        return text(micros(value))
    return str(value) if isinstance(value, date | Decimal) else value


def postgres(
    url: str, table: str, *, key: str | Iterable[str] = (), password: str | None = None, connections: int = 4
) -> PostgresRemote:
    """A table of a PostgreSQL to look rows up in, or a query:
    `orders.lookup(lookups.postgres("postgresql://shop@db/shop", "crm.users", password="env:SHOP_PASSWORD"), on="user_id", …)`.

    `key` names the table's columns, in the order of `on`; left out, they are called as in the stream. Together they must be unique.
    `connections`: how many a process has to this database at most, for all of its lookups. Needs the extra `postgres`."""
    PostgresDatabase(url, password)
    return PostgresRemote(_table(table), _key(key), url, password, connections_of(connections))


def mysql(url: str, table: str, *, key: str | Iterable[str] = (), password: str | None = None, connections: int = 4) -> MysqlRemote:
    """A table of a MySQL to look rows up in, or a query; the rest is as in `postgres`. Needs the extra `mysql`."""
    MysqlServer("MySQL", url, password)
    return MysqlRemote(_table(table), _key(key), url, password, connections_of(connections))


def mariadb(
    url: str, table: str, *, key: str | Iterable[str] = (), password: str | None = None, connections: int = 4
) -> MariadbRemote:
    """A table of a MariaDB; everything is as in `mysql`."""
    MysqlServer("MariaDB", url, password)
    return MariadbRemote(_table(table), _key(key), url, password, connections_of(connections))


def sqlite(path: str | os.PathLike[str], table: str, *, key: str | Iterable[str] = (), connections: int = 4) -> SqliteRemote:
    """A table of an SQLite database to look rows up in, or a query; the file is opened for reading only. The rest is as in
    `postgres`."""
    return SqliteRemote(_table(table), _key(key), os.path.abspath(path), connections_of(connections))  # tasks may run elsewhere


def _table(given: str) -> str:
    if not (isinstance(given, str) and _QUERY.match(given)):
        TableName.of(given)
    return given


def _key(given: str | Iterable[str]) -> tuple[str, ...]:
    columns = names(given) or ()
    for name in columns:
        if not isinstance(name, str) or not name or "\0" in name:
            raise BadInput(f"key={name!r} is no name of a column")
    return columns
