"""What a record says of itself beside key and value: Kafka headers. Ours begin with `penstock-`; all others are the user's."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from penstock.core.change import Op
from penstock.core.schema import TIMESTAMP
from penstock.core.time import NEVER
from penstock.log.kafka.fetching import Header
from penstock.log.port import EVENT_TIME, HEADERS, OPS, ORIGIN, WATERMARK, Sender

OURS = "penstock-"
TIME = "penstock-time"  # microseconds, as text: the event time, where it is no column
OPERATION = "penstock-op"  # "delete"
POSITION = "penstock-pos"  # bytes: the position that a flow gave the row
JUDGED = "penstock-w"  # microseconds, as text: W(r) of a row not yet judged
MARK = "penstock-mark"  # microseconds, as text; such a record has no key and no value, and is no row
SENDER = "penstock-sender"  # JSON: id, epoch, sequence, rows; on the first record of a frame

_MAP = pa.map_(pa.string(), pa.binary())
Found = Mapping[int, Sequence[Header]]


def row_headers(batch: pa.RecordBatch) -> list[list[Header] | None] | None:
    """The headers of each row; None where no row has any."""
    names = set(batch.schema.names) & {EVENT_TIME, OPS, ORIGIN, WATERMARK, HEADERS}
    if not names:
        return None
    out: list[list[Header]] = [[] for _ in range(batch.num_rows)]
    for name, header, form in _FORMS:
        if name in names:
            for row, value in zip(out, form(batch.column(name)), strict=True):
                if value is not None:
                    row.append((header, value))
    if HEADERS in names:
        for row, pairs in zip(out, batch.column(HEADERS).to_pylist(), strict=True):
            row.extend(pairs or ())
    return [row or None for row in out]


def _digits(column: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = column.cast(pa.int64()).cast(pa.string()).cast(pa.binary()).to_pylist()
    return found


def _deletes(column: pa.Array) -> list[bytes | None]:
    return [b"delete" if op == Op.DELETE else None for op in column.to_pylist()]


_FORMS: tuple[tuple[str, str, Any], ...] = (
    (EVENT_TIME, TIME, _digits),
    (ORIGIN, POSITION, lambda column: column.to_pylist()),
    (WATERMARK, JUDGED, _digits),
    (OPS, OPERATION, _deletes),
)


def mark_headers(mark: int) -> list[Header]:
    return [(MARK, str(mark).encode())]


def sender_header(sender: Sender, rows: int) -> Header:
    return SENDER, orjson.dumps([sender.id, sender.epoch, sender.sequence, rows])


def sender_of(headers: Sequence[Header]) -> tuple[Sender, int] | None:
    """Who sent the frame that begins here, and how many rows it has."""
    found = dict(headers).get(SENDER)
    try:
        id, epoch, sequence, rows = orjson.loads(found or b"")
        return Sender(str(id), int(epoch), int(sequence)), int(rows)
    except (ValueError, TypeError):
        return None


def marks_of(found: Found) -> dict[int, int]:
    """Which records are marks, and their times. A header that is no time makes a record no mark, but a row like any other."""
    out = {}
    for i, headers in found.items():
        mark = _number(dict(headers).get(MARK))
        if mark is not None:
            out[i] = mark
    return out


def deletes_in(found: Found) -> set[int]:
    return {i for i, headers in found.items() if dict(headers).get(OPERATION) == b"delete"}


def system_columns(found: Found, count: int, *, flow: bool, timed: bool) -> dict[str, pa.Array]:
    """The system columns that headers hold. flow: a flow writes the topic; timed: headers may hold event times."""
    if not found:
        return {}
    ours = {i: dict(headers) for i, headers in found.items()}
    columns: dict[str, pa.Array] = {}
    users = {i: [h for h in headers if not h[0].startswith(OURS)] for i, headers in found.items()}
    if any(users.values()):
        columns[HEADERS] = pa.array([users.get(i) or None for i in range(count)], _MAP)
    if timed and any(TIME in row for row in ours.values()):
        columns[EVENT_TIME] = _numbers(ours, TIME, count).cast(TIMESTAMP)
    if flow and any(POSITION in row for row in ours.values()):
        columns[ORIGIN] = pa.array([ours[i].get(POSITION) if i in ours else None for i in range(count)], pa.binary())
        columns[WATERMARK] = _numbers(ours, JUDGED, count)
    return columns


def _numbers(ours: Mapping[int, Mapping[str, bytes | None]], name: str, count: int) -> pa.Array:
    values, null = np.zeros(count, np.int64), np.ones(count, bool)
    for i, row in ours.items():
        number = _number(row.get(name))
        if number is not None:
            values[i], null[i] = number, False
    return pa.array(values, mask=null)


def _number(text: bytes | None) -> int | None:
    try:
        number = int(text or b"")
    except ValueError:
        return None
    return number if NEVER <= number < 2**63 else None
