"""Asking somebody outside: a function of the user's or a database, in a thread of its own, so that waiting can end."""

import queue
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any

from penstock.core.time import duration_text
from penstock.errors import BadFlow
from penstock.plan import Database, Lookup

Asked = list[dict[str, Any]]
Ask = Callable[[Asked], Any]
Todo = queue.SimpleQueue[tuple[Asked, "Future[Any]"] | None]

_SQLITE = "sqlite:///"
_BACKTICKS = ("MySQLdb", "pymysql", "mysql", "mariadb")


class TookTooLong(Exception):
    pass


class Asker:
    """Calls one after the other. A call that takes too long is left behind with its thread, and the next one gets a new one."""

    _todo: Todo | None = None

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        remote = lookup.remote
        called = getattr(remote, "__qualname__", type(remote).__name__)
        self.name = f"table {remote.table}" if isinstance(remote, Database) else called.replace("<locals>.", "")

    def ask(self, keys: Asked, timeout: timedelta | None) -> Any:
        if self._todo is None:
            self._todo = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._lookup, self._todo), daemon=True, name=f"lookup-{self.name}").start()
        given: Future[Any] = Future()
        self._todo.put((keys, given))
        try:
            return given.result(timeout.total_seconds() if timeout else None)
        except TimeoutError as error:
            if given.done():  # the function itself raised it
                raise
            self._todo.put(None)  # once it comes back, it ends
            self._todo = None
            raise TookTooLong(f"no answer within {duration_text(timeout or timedelta())}") from error

    def __del__(self) -> None:
        if self._todo is not None:
            self._todo.put(None)


def _work(lookup: Lookup, todo: Todo) -> None:
    """What a thread does until it is told None. A connection stays open from call to call, and is opened anew after an error."""
    ask: Ask | None = None
    while (todo_next := todo.get()) is not None:
        keys, given = todo_next
        try:
            ask = ask or _opened(lookup)
            given.set_result(ask(keys))
        except BaseException as error:
            _close(ask)
            ask = None
            given.set_exception(error)
    _close(ask)


def _opened(lookup: Lookup) -> Ask:
    return DatabaseTable(lookup.remote, lookup) if isinstance(lookup.remote, Database) else lookup.remote


def _close(ask: Ask | None) -> None:
    if isinstance(ask, DatabaseTable):
        ask.close()


class DatabaseTable:
    """A connection, and the SELECT that asks for many keys at once. After an error it is closed, and another one opened."""

    def __init__(self, database: Database, lookup: Lookup) -> None:
        self.table, self.on, self.answers = database.table, lookup.on, lookup.answers
        self.key = database.key or lookup.on
        self.connection = _connected(database.connect)
        module = type(self.connection).__module__.partition(".")[0]
        self.style = str(database.paramstyle or getattr(sys.modules.get(module), "paramstyle", "qmark"))
        self.quote = "`" if module in _BACKTICKS else '"'

    def __call__(self, keys: Asked) -> list[dict[str, Any] | None]:
        sql, values = self.query(keys)
        cursor = self.connection.cursor()
        try:
            cursor.execute(sql, values)
            found = cursor.fetchall()
        finally:
            cursor.close()
        with suppress(Exception):  # some drivers have nothing to end
            self.connection.rollback()  # the next question is to see what is there then
        rows = self._by_key(found, {tuple(key.values()) for key in keys})
        return [rows.get(tuple(key.values())) for key in keys]

    def query(self, keys: Asked) -> tuple[str, "Sequence[Any] | dict[str, Any]"]:
        """Names quoted, values as parameters."""
        values = [value for key in keys for value in key.values()]
        marks = iter(self._marks(len(values)))
        columns = [self._quoted(name) for name in self.key]
        if len(columns) == 1:
            condition = f"{columns[0]} IN ({', '.join(marks)})"
        else:
            condition = " OR ".join("(" + " AND ".join(f"{c} = {next(marks)}" for c in columns) + ")" for _ in keys)
        wanted = ", ".join([*columns, *(self._quoted(name) for name in self.answers.names)])
        sql = f"SELECT {wanted} FROM {self._quoted(self.table)} WHERE {condition}"
        return sql, {f"p{i}": v for i, v in enumerate(values)} if self.style == "named" else values

    def _marks(self, count: int) -> list[str]:
        forms = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{}", "named": ":p{}"}
        shift = 1 if self.style == "numeric" else 0
        return [forms[self.style].format(i + shift) for i in range(count)]

    def _quoted(self, name: str) -> str:
        return ".".join(f"{self.quote}{part}{self.quote}" for part in name.split("."))

    def _by_key(self, found: Sequence[Sequence[Any]], asked: set[tuple[Any, ...]]) -> dict[tuple[Any, ...], dict[str, Any]]:
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in found:
            key, values = tuple(row[: len(self.key)]), row[len(self.key) :]
            if key in rows:
                hint = "look up by columns that are unique there: database(…, key=…)"
                raise BadFlow(f"table {self.table} has several rows with {self._shown(key)}", hint=hint)
            if key in asked:
                rows[key] = dict(zip(self.answers.names, values, strict=True))
            elif [type(v) for v in key] not in [[type(v) for v in known] for known in asked]:
                hint = f"declare the stream's {', '.join(self.on)} with the type that the table has"
                raise BadFlow(f"table {self.table} gave {self._shown(key)}, which is none of the keys it was asked for", hint=hint)
        return rows  # a row of another key: the database compares otherwise than we do, by case perhaps

    def _shown(self, key: Sequence[Any]) -> str:
        return ", ".join(f"{name} = {value!r}" for name, value in zip(self.key, key, strict=True))

    def close(self) -> None:
        self.connection.close()


def _connected(connect: str | Callable[[], Any]) -> Any:
    if not isinstance(connect, str):
        return connect()
    import sqlite3
    from urllib.parse import quote

    return sqlite3.connect(f"file:{quote(connect.removeprefix(_SQLITE))}?mode=ro", uri=True)
