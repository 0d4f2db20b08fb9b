"""A COPY of PostgreSQL in ranges: read by a thread of its own, a few ranges ahead of whoever compares them."""

import io
import queue
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc_csv

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

RANGE_ROWS, RANGE_BYTES = 50_000, 32 << 20
AHEAD = 2  # ranges

_Found = pa.Table | BaseException | None


def csv_ranges(connection: "Connection", statement: Any, columns: int) -> Iterator[pa.Table]:
    """All columns as text. If it is not read to its end, the connection is of no use any more."""
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


def _read(connection: "Connection", statement: Any, columns: int, found: "queue.Queue[_Found]", stopping: threading.Event) -> None:
    try:
        with connection.cursor().copy(statement) as copy:
            parts, rows, size = list[bytes | bytearray | memoryview](), 0, 0
            for row in copy:  # the server sends each row in a message of its own
                parts.append(row)
                rows, size = rows + 1, size + len(row)
                if rows >= RANGE_ROWS or size >= RANGE_BYTES:
                    if stopping.is_set():
                        return
                    found.put(_table(b"".join(parts), columns))
                    parts, rows, size = [], 0, 0
            if parts:
                found.put(_table(b"".join(parts), columns))
        found.put(None)
    except BaseException as error:
        found.put(error)


def _emptied(found: "queue.Queue[_Found]") -> None:
    while not found.empty():
        found.get()


def _table(data: bytes, columns: int) -> pa.Table:
    """Of CSV in which all values but null stand in quotes."""
    names = [str(i) for i in range(columns)]
    return pc_csv.read_csv(
        io.BytesIO(data),
        pc_csv.ReadOptions(column_names=names, block_size=max(1 << 20, len(data) + 1), use_threads=False),
        pc_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pc_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.utf8()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
