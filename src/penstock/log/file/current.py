"""The segment that a partition is written to: opened, caught up with other processes, rolled, given up after a failure.

Everything here happens under the partition's lock.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import NotFound, PenstockError
from penstock.log.file.acks import POINTS_APART, RECORD, Ack, State, encode_ack, last_ack, open_acks
from penstock.log.file.frame import SegmentHeader, encode_segment, glance, stored_frame
from penstock.log.file.listing import look
from penstock.log.file.place import Place, SegmentName
from penstock.log.file.reader import Found, PartitionReader
from penstock.log.file.segment import Segment, scan
from penstock.log.file.senders import cleaned_senders, find_frame, read_senders, write_senders
from penstock.log.file.settle import settle
from penstock.log.port import Frame, Sender
from penstock.log.producers import Producers
from penstock.log.stamp import Tail
from penstock.storage.port import Appender


@dataclass
class Current:
    """An open segment and what is known at its end. Thrown away whole after any failure."""

    name: SegmentName
    tail: Tail
    producers: Producers
    log: Appender
    acks: Appender
    length: int = 0  # bytes that are acknowledged
    acks_size: int = 0
    point: int = 0  # bytes of the last point of the index
    judged: tuple[int, int] | None = None  # offset and byte up to which the judge has seen it
    begin: SegmentHeader | None = None  # the header of a new segment, to be written with its first frame

    def close(self) -> None:
        self.log.close()
        self.acks.close()


class SegmentKeeper:
    """Prefetch out the current segment, and takes back what could not be written."""

    def __init__(self, place: Place, segment_size: int, check_topic: Callable[[], None]) -> None:
        self._place, self._segment_size, self._check_topic = place, segment_size, check_topic
        self._current: Current | None = None
        self._failed: SegmentName | None = None
        self._first = (-1, 0)  # after how many cleanings, and which offset was the oldest

    def current(self) -> Current:
        """The segment that the next frame goes to."""
        current = self._current
        if current and not self._caught_up(current):
            self.drop()
            current = None
        if current is None:
            current = self._current = self._opened()
        if current.length >= self._segment_size or current.name == self._failed:
            current = self._current = self._rolled(current)
        return current

    def write(self, current: Current, frames: bytes, tail: Tail) -> None:
        """Write, sync, acknowledge: in this order. After a failure the segment is cut back and never written to again."""
        begin = encode_segment(current.begin) if current.begin else b""
        try:
            current.log.write(begin + frames)
            if self._place.durable:
                current.log.sync()
            ack = Ack(State.OPEN, current.length + len(begin) + len(frames), tail.next)
            records = _point(current) + encode_ack(ack)
            current.acks.write(records)
        except BaseException:
            self._give_up(current)
            raise
        current.length, current.tail, current.begin = ack.length, tail, None
        current.acks_size += len(records)

    def find(self, current: Current, sender: Sender) -> Frame | None:
        """The frame that a producer wrote long ago."""
        return find_frame(self._reader(current), sender)

    def since(self, current: Current, start: int) -> Iterator[Found]:
        """The acknowledged frames that hold rows from `start` on."""
        if start >= current.tail.next:
            return iter(())
        if start < current.name.base:
            reader = self._reader(current)
            return reader.read(max(start, reader.manifest.first), current.tail.next)
        segment = Segment(self._place, current.name)
        if current.judged and current.judged[0] == start:
            segment.skip(current.judged[1], start)
        segment.extend(current.length, current.tail.next)
        return (Found(segment, stored) for held in segment.holding(start, current.tail.next) for stored in held)

    def first(self) -> int:
        """The oldest offset that is still there."""
        cleanings = self._place.cleanings_seen()
        if cleanings != self._first[0]:
            self._first = (cleanings, look(self._place).manifest.first)
        return self._first[1]

    def _reader(self, current: Current) -> PartitionReader:
        """All that is acknowledged. The files stay while the lock is held."""
        found, reader = look(self._place), PartitionReader(self._place)
        ack = Ack(State.OPEN, current.begin.before_length if current.begin else current.length, current.tail.next)
        if current.begin:
            found.names.remove(current.name)
        reader.take(found, ack if found.names else None)
        return reader

    def leave(self) -> None:
        """Before the lock is let go. A segment that got no frame is taken away: others would take it for the rest of a crash."""
        current = self._current
        if current and current.begin:
            self.drop()
            with suppress(PenstockError):
                self._place.storage.remove(self._place.acks(current.name), durable=False)
                self._place.storage.remove(self._place.log(current.name), durable=False)

    def drop(self) -> None:
        if self._current:
            self._current.close()
            self._current = None

    def _caught_up(self, current: Current) -> bool:
        """Takes in what other processes appended to the same segment; False if there is more to it."""
        size, written = current.acks.size, current.log.size
        if size == current.acks_size and written == current.length:
            return True
        ack = last_ack(pa.py_buffer(current.acks.read(size - RECORD, RECORD))) if size >= RECORD and not size % RECORD else None
        if ack is None or ack.state != State.OPEN or ack.length != written or written < current.length:
            return False
        data = memoryview(current.log.read(current.length, ack.length - current.length))  # what others wrote, and no more
        found = scan(data, 0, len(data), current.tail.next, bodies_from=len(data))
        if found.why or current.length + found.at != ack.length:
            return False
        greatest = current.tail.greatest
        for at in found.positions:
            time, named = glance(data, at)
            greatest = max(greatest, time)
            if named:
                current.producers.remember(stored_frame(data, at, 0).frame)
        if found.positions:
            current.tail = replace(current.tail.after(stored_frame(data, found.positions[-1], 0).frame), greatest=greatest)
        current.length, current.acks_size = ack.length, size
        return True

    def _opened(self) -> Current:
        self._check_topic()
        found, ack = settle(self._place)
        cleaned, names = found.manifest, found.names
        if ack is None:
            before, producers = (cleaned.through, cleaned.length), cleaned_senders(self._place, cleaned)
            return self._begun(self._header(cleaned.through + 1, before, cleaned.tail), cleaned.tail, producers)
        if ack.state == State.DELETED:
            raise NotFound(f"topic {self._place.topic} was deleted")
        last = Segment(self._place, names[-1])
        last.extend(ack.length, ack.next)
        tail, producers = replace(last.tail(), greatest=last.greatest()), read_senders(self._place, found, ack)
        log, acks = self._appenders(names[-1])
        current = Current(names[-1], tail, producers, log, acks, ack.length, acks.size, ack.length)
        return self._rolled(current) if ack.state == State.CLOSED else current

    def _rolled(self, current: Current) -> Current:
        """A new segment behind the current one. The note in the acks comes first: it tells other processes to follow."""
        try:
            if not self._place.durable:
                current.log.sync()  # closed segments are durable, whatever the topic promises
            current.acks.write(encode_ack(Ack(State.CLOSED, current.length, current.tail.next)))
            serial = current.name.serial + 1
            name = SegmentName(current.tail.next, serial)
            write_senders(self._place, name, current.producers)
        finally:
            current.close()
            self._current = None
        header = self._header(serial, (current.name.serial, current.length), current.tail)
        return self._begun(header, current.tail, current.producers)

    def _header(self, serial: int, before: tuple[int, int], tail: Tail) -> SegmentHeader:
        known = (tail.appended, tail.time, tail.mark, tail.greatest)
        return SegmentHeader(self._place.id, self._place.partition, serial, tail.next, *before, *known)

    def _begun(self, header: SegmentHeader, tail: Tail, producers: Producers) -> Current:
        name = SegmentName(header.base, header.serial)
        log, acks = self._appenders(name)
        return Current(name, tail, producers, log, acks, begin=header)

    def _appenders(self, name: SegmentName) -> tuple[Appender, Appender]:
        log = self._place.storage.append(self._place.log(name))
        try:
            return log, open_acks(self._place, name)
        except PenstockError:
            log.close()
            raise

    def _give_up(self, current: Current) -> None:
        """Nothing that was not acknowledged may stay; what cannot be undone now is undone by the next `settle`."""
        self.drop()
        with suppress(PenstockError):
            if current.begin:
                self._place.storage.remove(self._place.acks(current.name))
                self._place.storage.remove(self._place.log(current.name))
                return
            self._failed = current.name
            self._close_failed(current)
            log = self._place.storage.append(self._place.log(current.name))
            try:
                log.truncate(current.length)
            finally:
                log.close()

    def _close_failed(self, current: Current) -> None:
        with suppress(PenstockError):
            acks = open_acks(self._place, current.name)
            try:
                acks.write(encode_ack(Ack(State.CLOSED, current.length, current.tail.next)))
            finally:
                acks.close()


def _point(current: Current) -> bytes:
    """A point of the index, where the last one is far behind: what is the greatest time of all that is acknowledged."""
    if current.length - current.point < POINTS_APART:
        return b""
    current.point = current.length
    return encode_ack(Ack(State.POINT, current.length, current.tail.greatest))
