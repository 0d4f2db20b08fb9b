"""A COPY of PostgreSQL in ranges: read by a thread of its own, a few ranges ahead of whoever compares them."""

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.capture.postgres.copy.copying import csv_columns

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

RANGE_ROWS, RANGE_BYTES = 50_000, 32 << 20
AHEAD = 2  # ranges

_Found = pa.Table | BaseException | None


class _Stopped(Exception):
    """Nobody wants the rest."""


def csv_ranges(connection: "Connection", statement: Any, columns: Sequence[str]) -> Iterator[pa.Table]:
    """All columns as text. If it is not read to its end, the transaction of the connection goes on as if it had not begun."""
    found: queue.Queue[_Found] = queue.Queue(AHEAD)
    stopping = threading.Event()
    reader = threading.Thread(
        target=_read, args=(connection, statement, columns, found, stopping), name="penstock-copy", daemon=True
    )
    reader.start()
    try:
        while (each := found.get()) is not None:
            if isinstance(each, BaseException):
                raise each
            yield each
    finally:
        stopping.set()
        while reader.is_alive():
            _emptied(found)
            reader.join(0.01)


def _read(
    connection: "Connection",
    statement: Any,
    columns: Sequence[str],
    found: "queue.Queue[_Found]",
    stopping: threading.Event,
) -> None:
    try:
        with connection.transaction(), connection.cursor().copy(statement) as copy:  # a savepoint of the transaction
            parts, rows, size = list[bytes | bytearray | memoryview](), 0, 0
            for row in copy:  # the server sends each row in a message of its own
                parts.append(row)
                rows, size = rows + 1, size + len(row)
                if rows >= RANGE_ROWS or size >= RANGE_BYTES:
                    if stopping.is_set():
                        raise _Stopped
                    found.put(csv_columns(b"".join(parts), columns))
                    parts, rows, size = [], 0, 0
            if parts:
                found.put(csv_columns(b"".join(parts), columns))
        found.put(None)
    except BaseException as error:
        found.put(error)


def _emptied(found: "queue.Queue[_Found]") -> None:
    while not found.empty():
        found.get()
