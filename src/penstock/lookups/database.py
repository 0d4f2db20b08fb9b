"""A table behind a connection of the user's own."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock.lookups.tables import KeyedTable
from penstock.plan import Answers, Asked, Lookup, Remote

SQLITE = "sqlite:///"
_BACKTICKS = ("MySQLdb", "pymysql", "mysql", "mariadb")


@dataclass(frozen=True)
class Database(Remote):
    """A table of a database, asked by key."""

    connect: str | Callable[[], Any]  # a URL sqlite:///path, or what gives a DB-API connection
    table: str
    key: tuple[str, ...] = ()  # its columns, in the order of `on`; (): called as they are there
    paramstyle: str | None = None  # None: as the driver's module says

    @property
    def called(self) -> str:
        return f"table {self.table}"

    def open(self, lookup: Lookup) -> "DatabaseTable":
        return DatabaseTable(self, lookup)


class DatabaseTable:
    """A connection, and the SELECT that asks for many keys at once. After an error it is closed, and another one opened."""

    def __init__(self, database: Database, lookup: Lookup) -> None:
        self.connection = _connected(database.connect)
        module = type(self.connection).__module__.partition(".")[0]
        style = str(database.paramstyle or getattr(sys.modules.get(module), "paramstyle", "qmark"))
        quote = "`" if module in _BACKTICKS else '"'
        source = ".".join(f"{quote}{part}{quote}" for part in database.table.split("."))
        self._table = KeyedTable(database.called, source, database.key or lookup.on, lookup.on, lookup.answers, quote, style)

    def __call__(self, keys: Asked) -> Answers:
        sql, values = self.query(keys)
        cursor = self.connection.cursor()
        try:
            cursor.execute(sql, values)
            found = cursor.fetchall()
        finally:
            cursor.close()
        with suppress(Exception):  # some drivers have nothing to end
            self.connection.rollback()  # the next question is to see what is there then
        return [*self._table.answers_in(found, keys)]

    def query(self, keys: Asked) -> tuple[str, "Sequence[Any] | dict[str, Any]"]:
        return self._table.query(keys)

    def close(self) -> None:
        self.connection.close()


def _connected(connect: str | Callable[[], Any]) -> Any:
    if not isinstance(connect, str):
        return connect()
    import sqlite3
    from urllib.parse import quote

    return sqlite3.connect(f"file:{quote(connect.removeprefix(SQLITE))}?mode=ro", uri=True)
