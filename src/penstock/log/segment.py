"""Reading a segment: frame after frame, headers checked, remembered by position."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import Damaged
from penstock.log.frame import (
    MAGIC,
    SEGMENT_HEADER,
    Bad,
    SegmentHeader,
    Stored,
    body_whole,
    decode_segment,
    frame_start,
    stored_frame,
)
from penstock.log.place import Place, SegmentName
from penstock.log.port import Frame
from penstock.log.stamp import Tail


@dataclass
class Scan:
    """Frames found one behind the other; `why` says what stopped the search before its limit."""

    at: int
    next: int
    positions: list[int] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    why: str | None = None


def scan(data: memoryview, at: int, limit: int, next_offset: int, bodies_from: int) -> Scan:
    """Follows the frames from `at`. Rows are checked from byte `bodies_from` on, headers always."""
    found = Scan(at, next_offset)
    try:
        while found.at < limit:
            length, base, count = frame_start(data, found.at, limit)
            if base != found.next or count < 0:
                raise Bad(f"it claims offset {base}")
            if found.at >= bodies_from and not body_whole(data, stored_frame(data, found.at, 0)):
                raise Bad("its rows do not match their checksum")
            found.positions.append(found.at)
            found.bases.append(base)
            found.at += length
            found.next += count
    except Bad as bad:
        found.why = str(bad)
    return found


def later_frame(data: memoryview, bad: int) -> Frame | None:
    """A whole frame that was written when the bytes at `bad` were durable already: the proof that they are damaged, not torn."""
    raw = bytes(data[bad:])
    at = raw.find(MAGIC)
    while at >= 0:
        try:
            frame_start(data, bad + at, len(data))
            stored = stored_frame(data, bad + at, 0)
            if stored.durable > bad and body_whole(data, stored):
                return stored.frame
        except Bad:
            pass
        at = raw.find(MAGIC, at + 1)
    return None


def damage(place: Place, name: SegmentName, offset: int, at: int, why: str) -> Damaged:
    return Damaged(
        f"{place} is damaged at offset {offset}",
        f"segment {name}.log, byte {at}: {why}",
        hint="the records before it can still be read; restore the file from a copy, or delete the topic",
    )


class Segment:
    """The frames of one segment as far as they were asked for. What is damaged is told when it is reached."""

    def __init__(self, place: Place, name: SegmentName) -> None:
        self.place, self.name = place, name
        self.header: SegmentHeader | None = None
        self.positions: list[int] = []
        self.bases: list[int] = []
        self.damaged: Damaged | None = None
        self._end, self._next = SEGMENT_HEADER, name.base
        self._buffer: pa.Buffer = pa.py_buffer(b"")
        self._view = memoryview(b"")

    @property
    def next(self) -> int:
        return self._next

    def extend(self, limit: int) -> None:
        """Takes in the frames up to byte `limit`, all of which were acknowledged."""
        if self.damaged or (limit <= self._end and self.header):
            return
        if len(self._view) < limit or not self.header:
            self._map()
        if not self.header:
            self._take_header()
        if self.damaged:
            return
        found = scan(self._view, self._end, min(limit, len(self._view)), self._next, bodies_from=limit)
        self.positions += found.positions
        self.bases += found.bases
        self._end, self._next = found.at, found.next
        if found.why or found.at < limit:
            why = found.why or f"the file ends there, {limit} bytes were acknowledged"
            self.damaged = damage(self.place, self.name, found.next, found.at, why)

    def stored(self, at: int) -> Stored:
        return stored_frame(self._view, self.positions[at], self.name.serial)

    def tail(self) -> Tail:
        """What the next frame behind this segment has to know."""
        if self.damaged:
            raise self.damaged
        assert self.header
        if self.positions:
            return Tail().after(self.stored(len(self.positions) - 1).frame)
        return Tail(self.header.base, self.header.appended, self.header.time, self.header.mark)

    def frames(self, start: int, stop: int) -> list[Frame]:
        """Frames that hold an offset in [start, stop), and marks from start to stop."""
        first = max(bisect_left(self.bases, start) - 1, 0)
        first = bisect_left(self.bases, self.bases[first]) if self.bases else 0
        found = (self.stored(i).frame for i in range(first, bisect_right(self.bases, stop)))
        return [frame for frame in found if frame.touches(start, stop)]

    def holding(self, start: int, stop: int) -> list[Stored]:
        """Frames that hold rows from offset start up to, not including, stop."""
        first = max(bisect_right(self.bases, start) - 1, 0)
        first = bisect_left(self.bases, self.bases[first]) if self.bases else 0
        found = (self.stored(i) for i in range(first, bisect_left(self.bases, stop)))
        return [s for s in found if s.frame.count and s.frame.end > start]

    def body(self, stored: Stored) -> pa.Buffer:
        """The encoded rows, checked."""
        _, at, length = stored.frame.where
        if not body_whole(self._view, stored):
            raise damage(self.place, self.name, stored.frame.base, at, "its rows do not match their checksum")
        return self._buffer.slice(stored.body_at, at + length - stored.body_at)

    def _map(self) -> None:
        self._buffer = self.place.storage.read(self.place.log(self.name))
        self._view = memoryview(self._buffer)

    def _take_header(self) -> None:
        try:
            header = decode_segment(self._view)
            mine = (self.place.id, self.place.partition, self.name.serial, self.name.base)
            if (header.topic, header.partition, header.serial, header.base) != mine:
                raise Bad("the segment belongs to another topic or place")
            self.header = header
        except Bad as bad:
            self.damaged = damage(self.place, self.name, self.name.base, 0, str(bad))
