"""Where a row comes from, as bytes that compare in the order of ties.

A source row: topic, partition, offset. A window: its keys and start. A pair: both positions. A union adds the number of its input.
Parts are escaped and closed, so that byte order is the order of the tuples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import array_of, buffer_of, chosen, coalesced, joined, numbers_in, replaced, values_in

_END = b"\x00\x00"


@dataclass(frozen=True, order=True)
class Position:
    """One record of the log."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"

    def encode(self) -> bytes:
        return source_prefix(self.topic, self.partition) + self.offset.to_bytes(8, "big")

    @staticmethod
    def decode(data: bytes) -> "Position | None":
        """The record a position names, or None where it is a derived one."""
        if data[:1] == b"d":
            return Position.decode(_place(data)[1])
        topic, end, rest = data[1:].partition(_END)
        if data[:1] != b"s" or not end or len(rest) != 12:
            return None
        return Position(topic.decode(), int.from_bytes(rest[:4], "big"), int.from_bytes(rest[4:], "big"))


def record_of(data: bytes) -> "Position | None":
    """The record that a row is, also behind a union; None where it was made from several, or from none."""
    return record_of(data[1:-4]) if data[:1] == b"u" else Position.decode(data)


def position_text(data: bytes) -> str:
    """A position for people: `orders/0@12`; of a derived row what it was made from."""
    if data[:1] == b"s" and data[-14:-12] == _END and data.count(_END, 0, -12) == 1:  # as almost all are
        return f"{data[1:-14].decode()}/{int.from_bytes(data[-12:-8], 'big')}@{int.from_bytes(data[-8:], 'big')}"
    if data[:1] == b"u":
        return position_text(data[1:-4])
    if data[:1] == b"d":
        place, record = _place(data)
        return f"{position_text(record)} ({place})"
    source = Position.decode(data)
    return str(source) if source else f"{_KINDS.get(data[:1], 'row')} {data.hex()}"


_KINDS = {b"w": "window", b"p": "pair"}


def position_texts(positions: pa.Array) -> pa.Array:
    """position_text of many, none of which is null; at once where they are records of one topic, as almost all are."""
    data = _rows(positions)
    if not isinstance(data, np.ndarray) or not _of_one_topic(data):
        distinct = positions.dictionary_encode()
        return pa.array(map(position_text, values_in(distinct.dictionary, bytes)), pa.string()).take(distinct.indices)
    topic = data[0, 1:-14].tobytes().decode()
    partitions = array_of(np.ascontiguousarray(data[:, -12:-8]).view(">i4").ravel().astype(np.int32)).cast(pa.string())
    offsets = array_of(np.ascontiguousarray(data[:, -8:]).view(">i8").ravel().astype(np.int64)).cast(pa.string())
    return joined(f"{topic}/", partitions, "@", offsets, "")


def _of_one_topic(data: "Bytes") -> bool:
    """True if these are positions of records that differ in partition and offset alone."""
    prefix = data[0, :-12].tobytes() if data.shape[1] > 14 else b""
    same = prefix[:1] == b"s" and prefix.find(_END) == len(prefix) - 2
    return same and bool((data[:, :-12] == data[0, :-12]).all())


def source_prefix(topic: str, partition: int) -> bytes:
    return b"s" + topic.encode() + _END + partition.to_bytes(4, "big")


def source_positions(topic: str, partitions: int | npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> pa.Array:
    """The positions of many records of one topic."""
    prefix = np.frombuffer(source_prefix(topic, 0)[:-4], np.uint8)
    n, width = len(offsets), len(prefix) + 12
    data = np.empty((n, width), np.uint8)
    data[:, :-12] = prefix
    data[:, -12:-8] = (
        np.ascontiguousarray(np.broadcast_to(np.asarray(partitions, ">i4"), n)).reshape(n, 1).view(np.uint8).reshape(n, 4)
    )
    data[:, -8:] = offsets.astype(">i8").view(np.uint8).reshape(n, 8)
    ends = np.arange(n + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), n, [None, buffer_of(ends), buffer_of(data)])


def escape(part: bytes) -> bytes:
    """A part of a longer position: zero bytes doubled up, then closed, so that no part is a prefix of another."""
    return part.replace(b"\x00", b"\x00\x01") + _END


# Every encoded position is closed in itself: none is the beginning of another. So positions put one behind the other compare
# as tuples do, without being escaped again. The first byte says what it is: s source, d source with its place in a database,
# w window, p pair, u union.
_NULL, _FIXED, _TEXT = b"\x01", b"\x02", b"\x03"
_ABSENT = b"\x00"  # the missing side of a pair: before every position
_SIGN = np.uint64(1 << 63)

Bytes = npt.NDArray[np.uint8]  # one row of bytes per position
Indices = npt.NDArray[np.int64]


def window_positions(by: Sequence[pa.Array], starts: npt.NDArray[np.int64]) -> pa.Array:
    """The positions of windows: the values of their keys, then their start."""
    n = len(starts)
    parts = [_constant(b"w" + bytes([len(by)]), n), *(_value(column) for column in by), _ordered(starts.view(np.uint64) ^ _SIGN)]
    return _joined(parts, n)


def union_positions(positions: pa.Array, number: int) -> pa.Array:
    """The positions of rows that came in as this input of a union."""
    n = len(positions)
    return _joined([_constant(b"u", n), _rows(positions), _constant(number.to_bytes(4, "big"), n)], n)


def pair_positions(left: pa.Array | None, li: Indices | None, right: pa.Array | None, ri: Indices | None) -> pa.Array:
    """The positions of pairs of rows li and ri of both sides; a side that is None is absent: the rows of the other are alone."""
    some = li if li is not None else ri
    n = 0 if some is None else len(some)
    sides = (
        _constant(_ABSENT, n) if side is None or rows is None else _taken(side, rows) for side, rows in ((left, li), (right, ri))
    )
    return _joined([_constant(b"p", n), *sides], n)


def wal_place(lsn: int) -> bytes:
    """A place in the write-ahead log of a database."""
    return _FIXED + lsn.to_bytes(8, "big")


def binlog_place(file: str, offset: int, row: int) -> bytes:
    """A place in the numbered files of a binary log: `mysql-bin.000009` lies before `mysql-bin.000010`, however long the number."""
    name = file.rstrip("0123456789")
    number = int(file[len(name) :] or 0)
    return _TEXT + escape(name.encode()) + b"".join(n.to_bytes(8, "big") for n in (number, len(file) - len(name), offset, row))


def database_positions(places: pa.Array, positions: pa.Array) -> pa.Array:
    """The positions of records that know their place in the database they come from: that place, and behind it the record's own
    position, for several changes may lie at one place. Null: they know none; a zero byte: none, and before all that have one."""
    placed = joined(pa.scalar(b"d"), places, positions, pa.scalar(b"", pa.binary()))
    return coalesced(placed, positions)


def _place(data: bytes) -> tuple[str, bytes]:
    """The place in a database for people, and the position behind it."""
    if data[1:2] == _ABSENT:
        return "no place", data[2:]
    if data[1:2] == _FIXED:
        return f"lsn {int.from_bytes(data[2:10], 'big')}", data[10:]
    name, _, rest = data[2:].partition(_END)
    number, digits, offset, row = (int.from_bytes(rest[i : i + 8], "big") for i in range(0, 32, 8))
    file = name.replace(b"\x00\x01", b"\x00").decode() + (f"{number:0{digits}}" if digits else "")
    return f"{file}:{offset}" + (f" row {row}" if row else ""), rest[32:]


def _taken(positions: pa.Array, indices: Indices) -> Bytes | pa.Array:
    rows = _rows(positions)
    if isinstance(rows, np.ndarray):
        return np.asarray(rows.view(f"V{rows.shape[1]}").ravel()[indices].view(np.uint8).reshape(len(indices), rows.shape[1]))
    return rows.take(indices)


def _rows(array: pa.Array) -> Bytes | pa.Array:
    """A binary column as a matrix of bytes where all values are equally long, else as it is."""
    n = len(array)
    offsets = numbers_in(array.buffers()[1], np.int32, n + 1, array.offset * 4) if n else np.zeros(1, np.int32)
    width = int(offsets[1] - offsets[0]) if n else 0
    if not width or array.null_count or int(offsets[-1] - offsets[0]) != n * width or np.any(np.diff(offsets) != width):
        return array
    return numbers_in(array.buffers()[2], np.uint8, n * width, int(offsets[0])).reshape(n, width)


def _constant(value: bytes, n: int) -> Bytes:
    return np.broadcast_to(np.frombuffer(value, np.uint8), (n, len(value)))


def _joined(parts: Sequence[Bytes | pa.Array], n: int) -> pa.Array:
    matrices = [part for part in parts if isinstance(part, np.ndarray)]
    if len(matrices) == len(parts):
        return _binary(_side_by_side(matrices, n))
    arrays = [_binary(np.ascontiguousarray(part)) if isinstance(part, np.ndarray) else part for part in parts]
    return joined(*arrays, pa.scalar(b"", pa.binary()))


def _side_by_side(matrices: Sequence[Bytes], n: int) -> Bytes:
    """One matrix of several; columns are copied as whole values, which is twice as fast as byte by byte."""
    widths = [m.shape[1] for m in matrices]
    out = np.empty(n, np.dtype([(str(i), f"V{width}") for i, width in enumerate(widths)]))
    for i, (m, width) in enumerate(zip(matrices, widths, strict=True)):
        one = m if m.strides[0] else m[:1]
        out[str(i)] = np.ascontiguousarray(one).view(f"V{width}").ravel()
    return out.view(np.uint8).reshape(n, sum(widths))


def _binary(matrix: Bytes) -> pa.Array:
    n, width = matrix.shape
    ends = np.arange(n + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), n, [None, buffer_of(ends), buffer_of(np.ascontiguousarray(matrix))])


def _value(column: pa.Array) -> Bytes | pa.Array:
    """One key column as bytes that compare as its values do; null first."""
    encoded = _fixed(column)
    if encoded is None:
        return _text(column)
    tagged = np.hstack([_constant(_FIXED, len(column)), encoded])
    if not column.null_count:
        return tagged
    return chosen(column.is_null(), pa.scalar(_NULL, pa.binary()), _binary(tagged))


def _fixed(column: pa.Array) -> Bytes | None:
    t = column.type
    if pa.types.is_date32(t):
        column = column.cast(pa.int32())
    if pa.types.is_decimal128(t):
        words = numbers_in(column.buffers()[1], np.uint64, 2 * len(column), column.offset * 16).reshape(-1, 2)
        return np.hstack([_ordered(words[:, 1] ^ _SIGN), _ordered(words[:, 0])])
    if pa.types.is_floating(t):
        bits = np.ascontiguousarray(column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)).view(np.uint64)
        return _ordered(np.where(bits & _SIGN, ~bits, bits ^ _SIGN))
    if pa.types.is_integer(t) or pa.types.is_boolean(t) or pa.types.is_temporal(t):
        numbers = np.ascontiguousarray(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
        return _ordered(numbers.view(np.uint64) ^ _SIGN)
    return None


def _text(column: pa.Array) -> pa.Array:
    t = column.type
    if not (pa.types.is_string(t) or pa.types.is_binary(t) or pa.types.is_large_string(t) or pa.types.is_large_binary(t)):
        column = pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())  # nested: by its text
    escaped = replaced(column.cast(pa.binary()), "\x00", by="\x00\x01")
    closed = joined(pa.scalar(_TEXT), escaped, pa.scalar(_END), pa.scalar(b"", pa.binary()))
    return closed.fill_null(_NULL)


def _ordered(numbers: npt.NDArray[np.uint64]) -> Bytes:
    return numbers.astype(">u8").view(np.uint8).reshape(len(numbers), 8)
