"""Makes what a program writes into its own database happen once per record, although a consumer may read a record again.

Which offsets were taken stands in a table of that database, and is written in the same transaction as the program's own rows:
either both are there or neither. Offsets are kept as ranges, so the table stays small.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from penstock.core.record import Record
from penstock.errors import BadInput
from penstock.log.groups.reading import Batch

TABLE = "penstock_taken"
_KEY = "reader = ? AND topic_id = ? AND partition_number = ?"
_LOCK = -1  # where the row stands that writers of one partition wait for each other at
_STYLES = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class Reader(Protocol):
    """Who reads, and which life of the topic: a GroupConsumer, or anything that says the same."""

    @property
    def group(self) -> str: ...

    @property
    def topic_id(self) -> str: ...


class _Span(NamedTuple):
    start: int
    stop: int


class IdempotentWriter:
    """A writer over a DB-API connection with transactions: sqlite3, psycopg, or another that knows ON CONFLICT DO NOTHING.

    >>> with GroupConsumer(None, "stock", "orders") as consumer:  # doctest: +SKIP
    ...     writer = IdempotentWriter(connection, consumer)
    ...     for record in consumer.records():
    ...         with writer.record(record) as fresh:
    ...             if fresh:
    ...                 connection.execute("UPDATE stock SET pieces = pieces - ? WHERE item = ?", ...)

    Each `with` is one transaction: it ends with a commit, or with a rollback if it is left by an exception. Two writers of one
    partition, such as a consumer that lost its lease and the one that took over, wait for each other and take every record once.
    """

    def __init__(self, connection: Any, reader: Reader, placeholder: str | None = None) -> None:
        if getattr(connection, "autocommit", False) is True:
            raise BadInput("the connection commits every statement by itself", hint="open it with autocommit=False")
        self._connection, self._reader = connection, reader
        self._mark = placeholder or placeholder_of(connection)
        make_table(
            connection,
            TABLE,
            "reader TEXT NOT NULL, topic_id TEXT NOT NULL, partition_number INTEGER NOT NULL, start_offset BIGINT NOT NULL, "
            "stop_offset BIGINT NOT NULL, PRIMARY KEY (reader, topic_id, partition_number, start_offset)",
        )

    @contextmanager
    def record(self, record: Record) -> Iterator[bool]:
        """Whether the record is new here; if it is, it counts as taken when the `with` ends."""
        with self._taking(record.partition, _Span(record.offset, record.offset + 1)) as known:
            yield not known

    @contextmanager
    def batch(self, batch: Batch) -> Iterator[pa.Table]:
        """The rows of the batch that are new here; all of them count as taken when the `with` ends."""
        with self._taking(batch.partition, _Span(batch.start, batch.next)) as known:
            offsets = batch.table.column(batch.offset_column).to_numpy()
            fresh = np.ones(len(offsets), bool)
            for span in known:
                fresh &= (offsets < span.start) | (offsets >= span.stop)
            yield batch.table.filter(pa.array(fresh))

    @contextmanager
    def _taking(self, partition: int, span: _Span) -> Iterator[list[_Span]]:
        key = (self._reader.group, self._reader.topic_id, partition)
        try:
            self._lock(key)
            near = [_Span(*row) for row in self._near(key, span)]
            yield [other for other in near if other.start < span.stop and other.stop > span.start]
            self._put(key, span, near)
            self._connection.commit()
        except BaseException:
            roll_back(self._connection)
            raise

    def _lock(self, key: tuple[str, str, int]) -> None:
        """Begins the transaction with a write, so that another writer of the partition waits until this one has ended."""
        if getattr(self._connection, "isolation_level", "") is None and not getattr(self._connection, "in_transaction", True):
            self._run("BEGIN IMMEDIATE")  # sqlite3 without transactions of its own
        self._run(f"INSERT INTO {TABLE} VALUES (?, ?, ?, {_LOCK}, {_LOCK}) ON CONFLICT DO NOTHING", *key)
        self._run(f"UPDATE {TABLE} SET stop_offset = {_LOCK} WHERE {_KEY} AND start_offset = {_LOCK}", *key)

    def _near(self, key: tuple[str, str, int], span: _Span) -> list[Any]:
        """The ranges that overlap or touch."""
        query = f"SELECT start_offset, stop_offset FROM {TABLE} WHERE {_KEY} AND start_offset <= ? AND stop_offset >= ?"
        rows = self._run(query, *key, span.stop, span.start).fetchall()
        return [tuple(row.values()) if isinstance(row, Mapping) else row for row in rows]

    def _put(self, key: tuple[str, str, int], span: _Span, near: list[_Span]) -> None:
        if any(other.start <= span.start and span.stop <= other.stop for other in near):
            return
        for other in near:
            self._run(f"DELETE FROM {TABLE} WHERE {_KEY} AND start_offset = ?", *key, other.start)
        start, stop = min(span.start, *(s.start for s in near), span.start), max(span.stop, *(s.stop for s in near), span.stop)
        self._run(f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?)", *key, start, stop)

    def _run(self, statement: str, *values: object) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement.replace("?", self._mark), values)
        return cursor


def make_table(connection: Any, table: str, columns: str) -> None:
    """Makes the table if it is not there, and commits. Of several that do so at once PostgreSQL lets all but one fail; these find
    it there."""
    try:
        connection.cursor().execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        connection.commit()
    except Exception:
        roll_back(connection)
        if not _is_there(connection, table):
            raise


def _is_there(connection: Any, table: str) -> bool:
    try:
        connection.cursor().execute(f"SELECT 1 FROM {table} WHERE 1 = 0")
    except Exception:  # whatever the module calls it
        return False
    finally:
        roll_back(connection)
    return True


def roll_back(connection: Any) -> None:
    """As far as there is a connection: what went wrong before is the news."""
    with suppress(Exception):
        connection.rollback()


def placeholder_of(connection: Any) -> str:
    """How the connection's module writes parameters."""
    module = sys.modules.get(type(connection).__module__.split(".")[0])
    style = getattr(module, "paramstyle", "qmark")
    if style not in _STYLES:
        raise BadInput(f"the connection wants parameters in the style {style!r}", hint="give placeholder=, e.g. '?' or '%s'")
    return _STYLES[style]
