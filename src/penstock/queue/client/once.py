"""Makes what a program writes into its own database happen once per message, although a queue may give a message out again.

Which messages were taken stands in a table of that database, and is written in the same transaction as the program's own rows:
either both are there or neither."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from penstock.core.names import check_name
from penstock.core.time import Clock, SystemClock, duration, micros
from penstock.errors import BadInput
from penstock.log.groups.once import make_table, placeholder_of, roll_back

TABLE = "penstock_done"
_OFTEN = 1_000  # messages between two looks for ids that can be forgotten


class Once:
    """A table of ids over a DB-API connection with transactions: sqlite3, psycopg, or another that knows ON CONFLICT DO NOTHING.

    >>> once = Once(connection, "stock")  # doctest: +SKIP
    >>> for message in consumer:  # doctest: +SKIP
    ...     with once.message(message.id) as fresh:
    ...         if fresh:
    ...             connection.execute("UPDATE stock SET pieces = pieces - 1 WHERE item = ?", ...)
    ...     message.ack()

    Each `with` is one transaction: it ends with a commit, or with a rollback if it is left by an exception. Acknowledge after it.
    name: of the reader; all that share the work share it. keep: how long ids are kept, longer than any duplicate may take."""

    def __init__(
        self,
        connection: Any,
        name: str,
        keep: str | timedelta = "7 days",
        placeholder: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        if getattr(connection, "autocommit", False) is True:
            raise BadInput("the connection commits every statement by itself", hint="open it with autocommit=False")
        self._connection, self._name = connection, check_name(name, "reader of a queue")
        self._keep, self._clock = micros(duration(keep, "keep")), clock or SystemClock()
        self._mark, self._count = placeholder or placeholder_of(connection), 0
        make_table(connection, TABLE, "reader TEXT NOT NULL, id TEXT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (reader, id)")

    @contextmanager
    def message(self, id: str) -> Iterator[bool]:
        """Whether the message of this id is new here; if it is, it counts as taken when the `with` ends."""
        if not id:
            raise BadInput("a message without an id cannot be told from its duplicate")
        try:
            yield self._take(id)
            self._forget()
            self._connection.commit()
        except BaseException:
            roll_back(self._connection)
            raise

    def _take(self, id: str) -> bool:
        """Begins the transaction with a write: another one with the same id waits until this one has ended."""
        if getattr(self._connection, "isolation_level", "") is None and not getattr(self._connection, "in_transaction", True):
            self._run("BEGIN IMMEDIATE")  # sqlite3 without transactions of its own
        new = f"INSERT INTO {TABLE} VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        return bool(self._run(new, self._name, id, self._clock.now()).rowcount)

    def _forget(self) -> None:
        self._count += 1
        if self._count % _OFTEN == 1:
            self._run(f"DELETE FROM {TABLE} WHERE reader = ? AND at < ?", self._name, self._clock.now() - self._keep)

    def _run(self, statement: str, *values: object) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement.replace("?", self._mark), values)
        return cursor
