"""How far a segment is acknowledged: a small file beside it that grows by one record a commit.

A record is written after the frames are as durable as the topic says, and never synced itself. So a record that is there
tells the truth, and one that a power loss took away is made again by looking at the frames. Readers see a segment up to
its last record; writers see by the file's size whether anybody else was there.

The records are an index, too: every one names a place where a frame begins, and the offset that stands there. Every now and
then one says what the greatest event time before such a place is.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from penstock.core.arrow import numbers_in
from penstock.errors import NotFound
from penstock.log.file.place import Place, SegmentName
from penstock.storage.port import Appender

_RECORD = struct.Struct("<Iiqq")
RECORD = _RECORD.size
_FIELDS = np.dtype([("crc", "<u4"), ("state", "<i4"), ("length", "<i8"), ("next", "<i8")])
POINTS_APART = 1 << 16  # bytes between two points of the index


class State(IntEnum):
    OPEN = 0
    CLOSED = 1  # nothing behind `length` counts, and the next frame goes to a new segment
    DELETED = 2  # the topic is gone
    POINT = 3  # no acknowledgement: `next` is the greatest event time before the byte `length`


_STATES = {int(state): state for state in State}


class Ack(NamedTuple):
    state: State
    length: int  # bytes of the segment that are acknowledged
    next: int  # the offset behind them


class Point(NamedTuple):
    """A place in a segment where a frame begins."""

    at: int
    value: int  # its offset, or the greatest event time before it


class Index(NamedTuple):
    offsets: list[Point]
    times: list[Point]


def read_ack(place: Place, name: SegmentName) -> Ack | None:
    """The last whole record, None if there is none."""
    try:
        return last_ack(place.storage.read(place.acks(name)))
    except NotFound:
        return None


def last_ack(data: pa.Buffer) -> Ack | None:
    for at in range(data.size // RECORD - 1, -1, -1):
        found = _whole(data, at)
        if found and found.state != State.POINT:
            return found
    return None


def read_index(place: Place, name: SegmentName) -> Index:
    """Places about POINTS_APART bytes apart, as far as the file tells. What was said before a segment was cut back is left out."""
    try:
        data = place.storage.read(place.acks(name))
    except NotFound:
        return Index([], [])
    records = numbers_in(data, _FIELDS, data.size // RECORD)
    known = np.flatnonzero((records["state"] == State.OPEN) | (records["state"] == State.POINT))
    lengths = records["length"][known]
    back = np.flatnonzero(np.diff(lengths) < 0)
    known = known[back[-1] + 1 :] if len(back) else known
    points = (records["state"] == State.POINT)[known]
    return Index(_sampled(data, records, known[~points]), _sampled(data, records, known[points]))


class Starts(NamedTuple):
    """Where the frames of a segment begin, one of every append: ascending offsets, and the byte of each."""

    offsets: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]

    def before(self, offset: int) -> int:
        """The last of these bytes whose frame begins at the offset or before it; -1 where none is known."""
        place = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        return int(self.bytes[place]) if place >= 0 else -1


def read_starts(place: Place, name: SegmentName) -> Starts:
    """All of them that the file tells, unchecked: whoever uses one looks whether a frame begins there."""
    try:
        data = place.storage.read(place.acks(name))
    except NotFound:
        return Starts(np.empty(0, np.int64), np.empty(0, np.int64))
    records = numbers_in(data, _FIELDS, data.size // RECORD)
    known = records["state"] == State.OPEN
    offsets, places = records["next"][known], records["length"][known]
    back = np.flatnonzero((np.diff(places) < 0) | (np.diff(offsets) < 0))  # the segment was cut back there
    return Starts(offsets[back[-1] + 1 :], places[back[-1] + 1 :]) if len(back) else Starts(offsets, places)


def _sampled(data: pa.Buffer, records: npt.NDArray[np.void], known: npt.NDArray[np.int64]) -> list[Point]:
    """One record of every stretch of POINTS_APART bytes, those that are not whole left out."""
    _, first = np.unique(records["length"][known] // POINTS_APART, return_index=True)
    found = (_whole(data, at) for at in known[first].tolist())
    return [Point(ack.length, ack.next) for ack in found if ack]


def _whole(data: pa.Buffer, at: int) -> Ack | None:
    crc, state, length, next_offset = _RECORD.unpack_from(data, at * RECORD)
    if crc == crc32c(memoryview(data)[at * RECORD + 4 : (at + 1) * RECORD]) and state in _STATES and length >= 0:
        return Ack(_STATES[state], length, next_offset)
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
