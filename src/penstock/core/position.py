"""Where a row comes from, as bytes that compare in the order of ties.

A source row: topic, partition, offset. A window: its keys and start. A pair: both positions. A union adds the number of its input.
Parts are escaped and closed, so that byte order is the order of the tuples.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
        topic, end, rest = data[1:].partition(_END)
        if data[:1] != b"s" or not end or len(rest) != 12:
            return None
        return Position(topic.decode(), int.from_bytes(rest[:4], "big"), int.from_bytes(rest[4:], "big"))


def source_prefix(topic: str, partition: int) -> bytes:
    return b"s" + topic.encode() + _END + partition.to_bytes(4, "big")


def source_positions(topic: str, partition: int, offsets: npt.NDArray[np.int64]) -> pa.Array:
    """The positions of many records of one partition."""
    prefix = np.frombuffer(source_prefix(topic, partition), np.uint8)
    n, width = len(offsets), len(prefix) + 8
    data = np.empty((n, width), np.uint8)
    data[:, :-8] = prefix
    data[:, -8:] = offsets.astype(">i8").view(np.uint8).reshape(n, 8)
    ends = np.arange(n + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def escape(part: bytes) -> bytes:
    """A part of a longer position: zero bytes doubled up, then closed, so that no part is a prefix of another."""
    return part.replace(b"\x00", b"\x00\x01") + _END
