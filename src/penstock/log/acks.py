"""How far a segment is acknowledged: a small file beside it that grows by one record a commit.

A record is written after the frames are as durable as the topic says, and never synced itself. So a record that is there
tells the truth, and one that a power loss took away is made again by looking at the frames. Readers see a segment up to
its last record; writers see by the file's size whether anybody else was there.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa
from crc32c import crc32c

from penstock.errors import NotFound
from penstock.log.place import Place, SegmentName
from penstock.storage.port import Appender

_RECORD = struct.Struct("<Iiqq")
RECORD = _RECORD.size


class State(IntEnum):
    OPEN = 0
    CLOSED = 1  # nothing behind `length` counts, and the next frame goes to a new segment
    DELETED = 2  # the topic is gone


class Ack(NamedTuple):
    state: State
    length: int  # bytes of the segment that are acknowledged
    next: int  # the offset behind them


def read_ack(place: Place, name: SegmentName) -> Ack | None:
    """The last whole record, None if there is none."""
    try:
        return last_ack(place.storage.read(place.acks(name)))
    except NotFound:
        return None


def last_ack(data: pa.Buffer) -> Ack | None:
    for at in range(data.size // RECORD - 1, -1, -1):
        crc, state, length, next_offset = _RECORD.unpack_from(data, at * RECORD)
        if crc == crc32c(memoryview(data)[at * RECORD + 4 : (at + 1) * RECORD]) and state in iter(State) and length >= 0:
            return Ack(State(state), length, next_offset)
    return None


def open_acks(place: Place, name: SegmentName) -> Appender:
    """The file open for the next record, half a record at its end cut off."""
    appender = place.storage.append(place.acks(name))
    if appender.size % RECORD:
        appender.truncate(appender.size - appender.size % RECORD)
    return appender


def encode_ack(ack: Ack) -> bytes:
    fields = _RECORD.pack(0, *ack)
    return b"".join((crc32c(fields[4:]).to_bytes(4, "little"), fields[4:]))
