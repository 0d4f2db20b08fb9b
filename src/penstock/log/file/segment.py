"""Reading a segment: headers checked and remembered, stretch by stretch, only as far as somebody asks."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import Damaged
from penstock.log.file.acks import Index, Point, Starts, read_index, read_starts
from penstock.log.file.frame import (
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
from penstock.log.file.manifest import Part
from penstock.log.file.place import Place, SegmentName
from penstock.log.port import Frame
from penstock.log.stamp import Tail

_BLOCK = 1 << 18  # bytes: a longer stretch is cut, where the index knows a place


@dataclass
class Scan:
    """Frames found one behind the other; `why` says what stopped the search before its limit."""

    at: int
    next: int
    positions: list[int] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    why: str | None = None


def scan(data: memoryview, at: int, limit: int, next_offset: int, bodies_from: int, gaps: bool = False) -> Scan:
    """Follows the frames from `at`. Rows are checked from byte `bodies_from` on, headers always. gaps: offsets may be missing."""
    found = Scan(at, next_offset)
    try:
        while found.at < limit:
            length, base, offsets = frame_start(data, found.at, limit)
            if (base < found.next if gaps else base != found.next) or offsets < 0:
                raise Bad(f"it claims offset {base}")
            if found.at >= bodies_from and not body_whole(data, stored_frame(data, found.at, 0)):
                raise Bad("its rows do not match their checksum")
            found.positions.append(found.at)
            found.bases.append(base)
            found.at += length
            found.next = base + offsets
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


def damage(place: Place, name: SegmentName | str, offset: int, at: int, why: str) -> Damaged:
    return Damaged(
        f"{place} is damaged at offset {offset}",
        f"segment {name}{'' if '.' in str(name) else '.log'}, byte {at}: {why}",
        hint="the records before it can still be read; restore the file from a copy, or delete the topic",
    )


@dataclass
class Block:
    """A stretch of a segment, from one frame's first byte to another's; `found` is what was read of it so far."""

    start: int
    limit: int
    base: int
    next: int
    found: Scan
    damaged: Damaged | None = None


class Segment:
    """The frames of one segment. Damage raises when it is reached."""

    def __init__(self, place: Place, name: SegmentName, part: Part | None = None) -> None:
        self.place, self.name, self.part = place, name, part
        self.header: SegmentHeader | None = None
        self.damaged: Damaged | None = None  # its header is
        self._blocks: list[Block] = []
        self._end, self._next = SEGMENT_HEADER, name.base
        self._index: Index | None = None
        self._starts: tuple[int, Starts] | None = None  # as they were when the segment ended at that byte
        self._buffer: pa.Buffer = pa.py_buffer(b"")
        self._view = memoryview(b"")

    @property
    def next(self) -> int:
        return self._next

    def open(self) -> SegmentHeader:
        """Its header; Damaged if it cannot be read, NotFound if the file is gone."""
        if not self.header and not self.damaged:
            self._map()
            self._take_header()
        if self.damaged:
            raise self.damaged
        assert self.header
        return self.header

    def extend(self, limit: int, next_offset: int) -> None:
        """Makes the bytes up to `limit` known, all of which were acknowledged; the offset behind them is `next_offset`."""
        if self.damaged or (limit <= self._end and self.header):
            return
        with suppress(Damaged):
            self.open()
        if self.damaged:
            return
        if len(self._view) < limit:
            self._map()
        for point in [*self._points(limit), Point(limit, next_offset)]:
            self._grow(point.at, point.value)

    def skip(self, at: int, offset: int) -> None:
        """Leaves out what lies before this byte, where the frame of this offset begins. Before `extend`."""
        self.open()
        self._end, self._next = at, offset

    def stored(self, at: int) -> Stored:
        """The frame at this byte."""
        return stored_frame(self._view, at, self.name.serial)

    def tail(self) -> Tail:
        """What the next frame behind this segment has to know, but for the greatest time; see `greatest`."""
        header = self.open()
        tail = Tail(header.base, header.appended, header.time, header.mark)
        for block in self._blocks[-1:]:
            found = self._read(block)
            if block.damaged:
                raise block.damaged
            if found.positions:
                tail = Tail().after(self.stored(found.positions[-1]).frame)
        return tail

    def greatest(self) -> int:
        """The greatest event time up to its end; reads all of its headers."""
        header = self.open()
        return max([header.greatest, *(frame.greatest for frame in self.frames(0, self._next))])

    def frames(self, start: int, stop: int) -> Iterator[Frame]:
        """Frames that hold an offset in [start, stop), and marks from start to stop; Damaged where the next one should be."""
        if self.damaged:
            raise self.damaged
        for block in self._blocks:
            if block.base > stop or block.next < start:
                continue
            found = self._read(block)
            first = max(bisect_left(found.bases, start) - 1, 0)
            first = bisect_left(found.bases, found.bases[first]) if found.bases else 0
            for at in found.positions[first : bisect_right(found.bases, stop)]:
                frame = self.stored(at).frame
                if frame.touches(start, stop):
                    yield frame
            if block.damaged and found.next <= stop:
                raise block.damaged

    def all(self) -> Iterator[Stored]:
        """Every frame; Damaged where one should be."""
        return (self.stored(frame.where[1]) for frame in self.frames(self.name.base, self._next))

    def holding(self, start: int, stop: int) -> Iterator[list[Stored]]:
        """Frames with rows that hold offsets from start up to, not including, stop, a stretch at a time."""
        if self.damaged and self.name.base < stop:
            raise self.damaged
        for block in self._blocks:
            if block.base >= stop or block.next <= start:
                continue
            found = self._read(block)
            first = max(bisect_right(found.bases, start) - 1, 0)
            first = bisect_left(found.bases, found.bases[first]) if found.bases else 0
            held = [self.stored(at) for at in found.positions[first : bisect_left(found.bases, stop)]]
            yield [stored for stored in held if stored.frame.count and stored.frame.end > start]
            if block.damaged and found.next < stop:
                raise block.damaged

    def holder(self, offset: int) -> Stored | None:
        """The frame with rows that holds this offset, looked for where an acknowledgement says that it begins."""
        at = -1 if self.damaged or self.part else self._known_starts().before(offset)
        while SEGMENT_HEADER <= at < self._end:
            try:
                length, base, offsets = frame_start(self._view, at, self._end)
            except Bad:
                break
            if base <= offset < base + offsets:
                return self.stored(at)
            at = at + length if base <= offset else -1
        return next((stored for held in self.holding(offset, offset + 1) for stored in held), None)

    def _known_starts(self) -> Starts:
        if self._starts is None or self._starts[0] != self._end:
            self._starts = (self._end, read_starts(self.place, self.name))
        return self._starts[1]

    def reaching(self, since: int) -> int | None:
        """The first offset of the first frame that has a row of this time or later."""
        if self.damaged:
            raise self.damaged
        known = max((at for at, greatest in self._indexed().times if greatest < since), default=0)
        for block in self._blocks:
            if block.limit <= known:
                continue
            for at in self._read(block).positions:
                frame = self.stored(at).frame
                if at >= known and frame.count and frame.greatest >= since:
                    return frame.base
            if block.damaged:
                raise block.damaged
        return None

    def body(self, stored: Stored) -> pa.Buffer:
        """The encoded rows, checked."""
        _, at, length = stored.frame.where
        if not body_whole(self._view, stored):
            raise self._damage(stored.frame.base, at, "its rows do not match their checksum")
        return self._buffer.slice(stored.body_at, at + length - stored.body_at)

    @property
    def file(self) -> str:
        return self.place.part(self.name, self.part.cleaning) if self.part else self.place.log(self.name)

    def _grow(self, limit: int, next_offset: int) -> None:
        last = self._blocks[-1] if self._blocks else None
        if last and limit - last.start <= _BLOCK and not last.damaged:
            last.limit, last.next = limit, next_offset
        else:
            self._blocks.append(Block(self._end, limit, self._next, next_offset, Scan(self._end, self._next)))
        self._end, self._next = limit, next_offset

    def _points(self, limit: int) -> list[Point]:
        """Places inside a long stretch, a block apart."""
        if limit - self._end <= _BLOCK or self.part:
            return []
        self._index, chosen = None, list[Point]()
        for point in self._indexed().offsets:
            if point.at >= (chosen[-1].at if chosen else self._end) + _BLOCK and point.at < limit and point.value >= self._next:
                chosen.append(point)
        return chosen

    def _indexed(self) -> Index:
        if self._index is None:
            self._index = Index([], []) if self.part else read_index(self.place, self.name)
        return self._index

    def _read(self, block: Block) -> Scan:
        """The frames of a block."""
        found = block.found
        if found.at >= block.limit or block.damaged:
            return found
        more = scan(self._view, found.at, min(block.limit, len(self._view)), found.next, block.limit, gaps=self.part is not None)
        found.positions += more.positions
        found.bases += more.bases
        found.at, found.next = more.at, more.next
        why = more.why or (f"the file ends there, {block.limit} bytes were acknowledged" if more.at < block.limit else None)
        if why is None and self.part and found.next <= block.next:
            found.next = block.next  # the last offsets may hold nothing
        if why or found.next != block.next:
            block.damaged = self._damage(found.next, found.at, why or f"it should go on to offset {block.next}")
        return found

    def _damage(self, offset: int, at: int, why: str) -> Damaged:
        return damage(self.place, self.file.rpartition("/")[2], offset, at, why)

    def _map(self) -> None:
        self._buffer = self.place.storage.read(self.file)
        self._view = memoryview(self._buffer)

    def _take_header(self) -> None:
        try:
            header = decode_segment(self._view)
            mine = (self.place.id, self.place.partition, self.name.serial, self.name.base, self.part.cleaning if self.part else 0)
            if (header.topic, header.partition, header.serial, header.base, header.cleaning) != mine:
                raise Bad("the segment belongs to another topic or place")
            self.header = header
        except Bad as bad:
            self.damaged = self._damage(self.name.base, 0, str(bad))
