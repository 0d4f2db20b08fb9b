"""What a record says of itself beside key and value: Kafka headers. A few are the log's own; all others are the user's, or of those
who keep messages in a topic."""

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import array_of, buffer_of, joined, lengths_of, map_of, numbers_in, values_in
from penstock.core.change import Op
from penstock.core.columns import EVENT_TIME, HEADERS, OP, POSITION, WATERMARK
from penstock.core.schema import TIMESTAMP
from penstock.core.time import NEVER
from penstock.log.kafka.read.batches import binary
from penstock.log.kafka.read.fetching import Header, Headers, Numbers
from penstock.log.port import Sender

TIME = "penstock-time"  # microseconds, as text: the event time, where it is no column
OPERATION = "penstock-op"  # "delete"
ROW = "penstock-row"  # of a flow's rows: event time and W(r), microseconds, eight bytes each, the greatest first; then the position
MARK = "penstock-mark"  # microseconds, as text; such a record has no key and no value, and is no row
SENDER = "penstock-sender"  # JSON: id, epoch, sequence, rows; on the first record of a frame
END = "penstock-end"  # the transactional id whose leftovers such a record ends; it is a mark that tells nothing

_OURS = pa.array([name.encode() for name in (TIME, OPERATION, ROW, MARK, SENDER, END)], pa.binary())
_FIXED = 16  # bytes of a flow's header before the position


def row_headers(batch: pa.RecordBatch) -> list[list[Header] | None] | None:
    """The headers of each row; None where no row has any."""
    names = set(batch.schema.names) & {EVENT_TIME, OP, POSITION, WATERMARK, HEADERS}
    if not names:
        return None
    if POSITION in names:
        return [[(ROW, row)] for row in _rows_of_flow(batch)]
    out: list[list[Header]] = [[] for _ in range(batch.num_rows)]
    for name, header, form in ((EVENT_TIME, TIME, _digits), (OP, OPERATION, _deletes)):
        if name in names:
            for row, value in zip(out, form(batch.column(name)), strict=True):
                if value is not None:
                    row.append((header, value))
    if HEADERS in names:
        for row, pairs in zip(out, batch.column(HEADERS).to_pylist(), strict=True):
            row.extend(pairs or ())
    return [row or None for row in out]


def _rows_of_flow(batch: pa.RecordBatch) -> list[bytes]:
    fixed = np.empty((batch.num_rows, 2), ">i8")
    for i, name in enumerate((EVENT_TIME, WATERMARK)):
        known = batch.column(name).cast(pa.int64()).fill_null(NEVER) if name in batch.schema.names else None
        fixed[:, i] = NEVER if known is None else known.to_numpy()
    ends = np.arange(0, 16 * batch.num_rows + 1, 16, dtype=np.int32)
    head = pa.Array.from_buffers(pa.binary(), batch.num_rows, [None, buffer_of(ends), pa.py_buffer(fixed.tobytes())])
    return values_in(joined(head, batch.column(POSITION), b""), bytes)


def _digits(column: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = column.cast(pa.int64()).cast(pa.string()).cast(pa.binary()).to_pylist()
    return found


def _deletes(column: pa.Array) -> list[bytes | None]:
    return [b"delete" if op == Op.DELETE else None for op in column.to_pylist()]


def mark_headers(mark: int) -> list[Header]:
    return [(MARK, str(mark).encode())]


def end_headers(id: str) -> list[Header]:
    return [*mark_headers(NEVER), (END, id.encode())]


def sender_header(sender: Sender, rows: int) -> Header:
    return SENDER, orjson.dumps([sender.id, sender.epoch, sender.sequence, rows])


def sender_of(stamp: bytes | None) -> tuple[Sender, int] | None:
    """Who sent the frame that begins with this stamp, and how many rows it has."""
    try:
        id, epoch, sequence, rows = orjson.loads(stamp or b"")
        return Sender(str(id), int(epoch), int(sequence)), int(rows)
    except (ValueError, TypeError):
        return None


def marks_of(found: Headers) -> dict[int, int]:
    """Which records are marks, and their times. A header that is no time makes a record no mark, but a row like any other."""
    rows, values = found.named(MARK.encode())
    numbers = map(_number, values.to_pylist())
    return {row: number for row, number in zip(rows.tolist(), numbers, strict=True) if number is not None}


def deletes_in(found: Headers) -> set[int]:
    rows, values = found.named(OPERATION.encode())
    return {row for row, value in zip(rows.tolist(), values.to_pylist(), strict=True) if value == b"delete"}


def system_columns(found: Headers, count: int, *, flow: bool, timed: bool) -> dict[str, pa.Array]:
    """The system columns that headers hold. flow: a flow writes the topic; timed: headers may hold event times."""
    if not len(found):
        return {}
    columns: dict[str, pa.Array] = {}
    users = found.where(~pc.is_in(found.names, _OURS).to_numpy(zero_copy_only=False))
    if len(users):
        columns[HEADERS] = _map(users, count)
    if timed and len(found.named(TIME.encode())[0]):
        columns[EVENT_TIME] = _numbers(*found.named(TIME.encode()), count).cast(TIMESTAMP)
    if flow:
        columns |= _flow_columns(*found.named(ROW.encode()), count)
    return columns


def _flow_columns(rows: Numbers, values: pa.Array, count: int) -> dict[str, pa.Array]:
    """Event time, position and W(r), which a flow has written into one header."""
    whole = pc.greater_equal(lengths_of(values), pa.scalar(_FIXED)).fill_null(False).to_numpy(zero_copy_only=False)
    rows, values = rows[whole], values.filter(pa.array(whole))
    if not len(rows):
        return {}
    starts, sizes, data = _places(values)
    fixed = numbers_in(data, np.uint8)[starts[:, None] + np.arange(_FIXED)].view(">i8").astype(np.int64)
    at = np.full(count, -1, np.int64)
    at[rows] = np.arange(len(rows))
    places = array_of(at, absent=at < 0)
    positions = binary(data, starts + _FIXED, sizes - _FIXED, np.zeros(len(rows), bool))
    time, judged = (pa.array(fixed[:, i], mask=fixed[:, i] <= NEVER).take(places) for i in (0, 1))
    return {EVENT_TIME: time.cast(TIMESTAMP), POSITION: positions.take(places), WATERMARK: judged}


def _places(values: pa.Array) -> tuple[Numbers, Numbers, pa.Buffer]:
    """Where each value begins in the data, and its size."""
    ends = numbers_in(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = values.buffers()[2]
    assert data is not None
    return ends[:-1], np.diff(ends), data


def _map(users: Headers, count: int) -> pa.Array:
    """The user's own headers; null where a record has none."""
    ends = np.searchsorted(users.rows, np.arange(count + 1))
    none = np.append(ends[1:] == ends[:-1], False)
    names = pa.array([name.decode("utf-8", "replace") for name in values_in(users.names, bytes)], pa.string())
    return map_of(pa.array(ends, pa.int32(), mask=none), names, users.values)


def _numbers(rows: Numbers, values: pa.Array, count: int) -> pa.Array:
    out, null = np.zeros(count, np.int64), np.ones(count, bool)
    try:
        found = values.cast(pa.string()).cast(pa.int64())
    except pa.ArrowInvalid:  # somebody else's idea of a time
        found = pa.array([_number(value) for value in values.to_pylist()], pa.int64())
    known = found.is_valid().to_numpy(zero_copy_only=False)
    out[rows[known]], null[rows[known]] = found.drop_null().to_numpy(), False
    return pa.array(out, mask=null)


def _number(text: bytes | None) -> int | None:
    try:
        number = int(text or b"")
    except ValueError:
        return None
    return number if NEVER <= number < 2**63 else None
