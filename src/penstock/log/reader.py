"""One partition as a reader sees it: acknowledged frames only, headers remembered between calls."""

import threading
from collections.abc import Iterator

from penstock.core.time import FOREVER
from penstock.errors import DiskFull, NotFound, OffsetGone, StorageError
from penstock.log.acks import Ack, State, read_ack
from penstock.log.frame import Stored
from penstock.log.place import Place, SegmentName
from penstock.log.port import End, Frame
from penstock.log.segment import Segment, damage
from penstock.log.settle import extent, settle
from penstock.log.stamp import Tail


class PartitionReader:
    """Safe for several threads at once."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._segments: list[Segment] = []
        self._guard = threading.RLock()

    def refresh(self) -> bool:
        """Takes in what was acknowledged since the last call; False if there is nothing at all."""
        with self._guard:
            last = self._segments[-1] if self._segments else None
            ack = read_ack(self._place, last.name) if last else None
            if last is None or ack is None or ack.state != State.OPEN or self._size(last.name) != ack.length:
                ack = self._look()
            if ack:
                self._segments[-1].extend(ack.length)
            return ack is not None

    def take(self, names: list[SegmentName], ack: Ack) -> None:
        """Takes in the segments of a partition that the caller has settled under its lock."""
        self._list(names)
        self._segments[-1].extend(ack.length)

    @property
    def names(self) -> list[SegmentName]:
        with self._guard:
            return [segment.name for segment in self._segments]

    def end(self) -> End:
        with self._guard:
            tail = self._segments[-1].tail() if self._segments else Tail()
            return tail.end(self._segments[0].name.base if self._segments else 0)

    def frames(self, start: int, stop: int | None) -> list[Frame]:
        """The frames that hold an offset in [start, stop), and the marks from start to stop."""
        stop = FOREVER if stop is None else stop
        found: list[Frame] = []
        with self._guard:
            for segment in self._between(start, stop):
                found += segment.frames(start, stop)
                if segment.damaged and segment.next <= stop:
                    raise segment.damaged
        return found

    def read(self, start: int, stop: int | None) -> Iterator[tuple[Segment, Stored]]:
        """The frames that hold rows from start up to stop, as far as they were there when reading began."""
        with self._guard:
            first = self._segments[0].name.base if self._segments else 0
            last = self._segments[-1] if self._segments else None
            known = FOREVER if last is None or last.damaged else last.next
            segments = self._between(start, known if stop is None else min(stop, known))
        if start < first:
            raise OffsetGone(
                f"{self._place} begins at offset {first}, {start} was asked for",
                hint="the records before it were removed; read from the earliest that is there",
            )
        return self._walk(segments, start, known if stop is None else min(stop, known))

    def _walk(self, segments: Iterator[Segment], start: int, stop: int) -> Iterator[tuple[Segment, Stored]]:
        while True:
            with self._guard:
                segment = next(segments, None)
                found = segment.holding(start, stop) if segment else []
            if segment is None:
                return
            for stored in found:
                yield segment, stored
            if segment.damaged and segment.next < stop:
                raise segment.damaged

    def _between(self, start: int, stop: int) -> Iterator[Segment]:
        """Segments that may hold offsets from start to stop, closed ones read to their end."""
        segments = list(self._segments)
        followings = [*segments[1:], None]
        return (
            self._finish(segment, following)
            for segment, following in zip(segments, followings, strict=False)
            if segment.name.base <= stop and (following is None or following.name.base >= start)
        )

    def _finish(self, segment: Segment, following: Segment | None) -> Segment:
        if following is None:
            return segment
        following.extend(0)
        if not following.header:
            assert following.damaged
            raise following.damaged
        if following.header.before_serial != segment.name.serial:
            raise damage(self._place, segment.name, following.name.base, 0, "the segment behind it is missing")
        segment.extend(following.header.before_length)
        if not segment.damaged and segment.next != following.name.base:
            raise damage(self._place, segment.name, segment.next, 0, f"the next segment begins at {following.name.base}")
        return segment

    def _size(self, name: SegmentName) -> int:
        try:
            return int(self._place.storage.read(self._place.log(name)).size)
        except NotFound:
            return -1

    def _look(self) -> Ack | None:
        """Lists the segments anew; repairs the end if nobody is writing."""
        names, ack = self._settled()
        if ack and ack.state == State.DELETED:
            raise NotFound(f"topic {self._place.topic} was deleted")
        self._list(names)
        return ack

    def _list(self, names: list[SegmentName]) -> None:
        known = {segment.name: segment for segment in self._segments}
        self._segments = [known.get(name) or Segment(self._place, name) for name in names]

    def _settled(self) -> tuple[list[SegmentName], Ack | None]:
        names, acknowledged = self._place.segments(), self._place.acknowledged()
        if not names and not acknowledged:
            return [], None
        if names and acknowledged[-1:] == names[-1:]:  # the usual case: nothing to repair
            ack = read_ack(self._place, names[-1])
            if ack and ack.state == State.OPEN and ack.length == self._size(names[-1]):
                return names, ack
        try:
            with self._place.storage.lock(self._place.lock, wait=False) as held:
                if held:
                    return settle(self._place)
            names = self._place.segments()
            for count in (0, 1):  # a writer may be making the last one just now
                ack = read_ack(self._place, names[-1 - count]) if len(names) > count else None
                if ack:
                    return names[: len(names) - count], ack
            with self._place.storage.lock(self._place.lock):
                return settle(self._place)
        except (StorageError, DiskFull):
            names = self._place.segments()
            return names, extent(self._place, names[-1]) if names else None
