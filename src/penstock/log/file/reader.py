"""One partition as a reader sees it: acknowledged frames only, headers remembered between calls.

Cleaning may replace or remove files at any moment. A file that is mapped stays readable; one that is gone before it was mapped
makes the reader look again and go on where it was: with the rows that are there now, or with OffsetGone.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from penstock.core.time import FOREVER
from penstock.errors import Damaged, DiskFull, NotFound, OffsetGone, StorageError
from penstock.log.file.acks import Ack, State, read_ack
from penstock.log.file.frame import Stored
from penstock.log.file.listing import Listing, look
from penstock.log.file.manifest import Manifest
from penstock.log.file.place import Place, SegmentName
from penstock.log.file.segment import Segment, damage
from penstock.log.file.settle import extent, settle
from penstock.log.port import End, Frame

T = TypeVar("T")


class Found(NamedTuple):
    """A frame with rows. after: offsets before this one were given already, out of files that are gone now."""

    segment: Segment
    stored: Stored
    after: int | None = None


class PartitionReader:
    """Safe for several threads at once."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._manifest = Manifest()
        self._segments: list[Segment] = []  # rewritten ones, then those behind them
        self._cleanings = -1
        self._guard = threading.RLock()

    def refresh(self) -> bool:
        """Takes in what was acknowledged and cleaned since the last call; False if there is nothing at all."""
        with self._guard:
            last = self._last()
            ack = read_ack(self._place, last.name) if last else None
            usual = ack and ack.state == State.OPEN and last and self._size(last.name) == ack.length
            if not usual or self._place.cleanings_seen() != self._cleanings:
                ack = self._look()
            self._reach(ack)
            return bool(self._segments) or self._manifest.number > 0

    def take(self, found: Listing, ack: Ack | None) -> None:
        """Takes in a partition that the caller has settled under its lock."""
        self._list(found)
        if ack:
            self._segments[-1].extend(ack.length, ack.next)

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    @property
    def live(self) -> list[Segment]:
        """The segments that no cleaning has replaced."""
        with self._guard:
            return [segment for segment in self._segments if segment.part is None]

    def end(self) -> End:
        with self._guard:
            last = self._last()
            tail = last.tail() if last else self._manifest.tail
            return tail.end(self._manifest.first)

    def frames(self, start: int, stop: int | None) -> list[Frame]:
        """The frames that hold an offset in [start, stop), and the marks from start to stop."""
        limit = FOREVER if stop is None else stop

        def found() -> list[Frame]:
            self._refuse_gone(start)
            return [frame for segment in self._between(start, limit) for frame in segment.frames(start, limit)]

        return self._again(found)

    def read(self, start: int, stop: int | None) -> Iterator[Found]:
        """The frames that hold rows from start up to stop, as far as they were there when reading began."""
        with self._guard:
            self._refuse_gone(start)
            last = self._last()
            known = self._manifest.tail.next if last is None else FOREVER if last.damaged else last.next
        return self._walk(start, known if stop is None else min(stop, known))

    def at(self, offsets: Iterable[int]) -> Iterator[Found]:
        """The frames that hold these offsets, which ascend, each once. Offsets that hold nothing any more are left out."""
        end = self._manifest.first
        for offset in offsets:
            if offset >= end:
                found = self._again(lambda offset=offset: self._holder(offset))  # type: ignore[misc]
                if found:
                    end = found.stored.frame.end
                    yield found

    def _holder(self, offset: int) -> Found | None:
        place = bisect_right(self._segments, offset, key=lambda segment: segment.name.base) - 1
        if place < 0 or offset < self._manifest.first:
            return None
        segment = self._finished(place)
        stored = segment.holder(offset)
        return Found(segment, stored) if stored else None

    def reaching(self, since: int) -> int | None:
        """The first offset of the first frame that has a row of this time or later; None if there is none."""

        def found() -> int | None:
            segments = self._segments
            later = bisect_left(segments, True, key=lambda segment: segment.open().greatest >= since)
            for at in range(max(later - 1, 0), len(segments)):
                offset = self._finished(at).reaching(since)
                if offset is not None:
                    return offset
            return None

        return self._again(found)

    def _walk(self, start: int, stop: int) -> Iterator[Found]:
        at, after = start, None
        stretches = self.stretches(start, stop)
        while True:
            try:
                with self._guard:
                    stretch = next(stretches, None)
            except NotFound as gone:
                self._look_again(gone)
                self._refuse_gone(at)
                after, stretches = at, self.stretches(at, stop)
                continue
            if stretch is None:
                return
            for segment, stored in stretch:
                at = stored.frame.end
                yield Found(segment, stored, after if after is not None and stored.frame.base < after else None)

    def stretches(self, start: int, stop: int) -> Iterator[list[tuple[Segment, Stored]]]:
        """The frames that hold offsets of [start, stop), some at a time."""
        for segment in self._between(start, stop):
            for held in segment.holding(start, stop):
                yield [(segment, stored) for stored in held]

    def _between(self, start: int, stop: int) -> Iterator[Segment]:
        """Segments that may hold offsets from start to stop, closed ones known to their end."""
        segments = self._segments
        for at, segment in enumerate(segments):
            if segment.name.base > stop:
                return
            if at + 1 == len(segments) or segments[at + 1].name.base >= start:
                yield self._finished(at, segments)

    def _finished(self, at: int, segments: list[Segment] | None = None) -> Segment:
        segments = segments or self._segments
        segment, following = segments[at], segments[at + 1] if at + 1 < len(segments) else None
        if segment.part:
            segment.extend(segment.part.length, segment.part.end)
        elif following:
            header = following.open()
            if header.before_serial != segment.name.serial:
                raise damage(self._place, segment.name, following.name.base, 0, "the segment behind it is missing")
            segment.extend(header.before_length, following.name.base)
        live = len(self._manifest.parts)  # the first that no cleaning has replaced
        if live in (at, at + 1) and live < len(segments):
            self._refuse_missing(segments[live])
        return segment

    def _refuse_missing(self, first: Segment) -> None:
        if not first.damaged and first.open().before_serial != self._manifest.through:
            raise damage(self._place, first.name, first.name.base, 0, "the segments before it are missing")

    def _refuse_gone(self, start: int) -> None:
        first = self._manifest.first
        if start < first:
            raise OffsetGone(
                f"{self._place} begins at offset {first}, {start} was asked for",
                f"offsets {start} to {first - 1} were removed by retention",
                hint="read from the earliest that is there",
            )

    def _last(self) -> Segment | None:
        return self._segments[-1] if self._segments and self._segments[-1].part is None else None

    def _size(self, name: SegmentName) -> int:
        try:
            return int(self._place.storage.read(self._place.log(name)).size)
        except NotFound:
            return -1

    def _again(self, find: Callable[[], T]) -> T:
        """What `find` finds; if a file is gone, in the files that are there now."""
        with self._guard:
            while True:
                try:
                    return find()
                except NotFound as gone:
                    self._look_again(gone)

    def _look_again(self, gone: NotFound) -> None:
        with self._guard:
            before = [segment.file for segment in self._segments]
            ack = self._look()
            if before == [segment.file for segment in self._segments]:
                hint = "restore the file from a copy"
                raise Damaged(f"{self._place} is damaged", f"a file is missing: {gone.what}", hint=hint) from gone
            self._reach(ack)

    def _reach(self, ack: Ack | None) -> None:
        """Makes the last segment known as far as it is acknowledged; if it was cleaned meanwhile, the one that is there now."""
        try:
            if ack:
                self._segments[-1].extend(ack.length, ack.next)
        except NotFound as gone:
            self._look_again(gone)

    def _look(self) -> Ack | None:
        """Lists the segments anew; repairs the end if nobody is writing."""
        cleanings = self._place.cleanings_seen()
        found, ack = self._settled()
        if ack and ack.state == State.DELETED:
            raise NotFound(f"topic {self._place.topic} was deleted")
        self._list(found)
        self._cleanings = cleanings
        return ack

    def _list(self, found: Listing) -> None:
        known = {segment.file: segment for segment in self._segments}
        parts = [Segment(self._place, part.name, part) for part in found.manifest.parts]
        made = [*parts, *(Segment(self._place, name) for name in found.names)]
        self._manifest, self._segments = found.manifest, [known.get(segment.file, segment) for segment in made]

    def _settled(self) -> tuple[Listing, Ack | None]:
        found = look(self._place)
        if not found.names and not found.acknowledged:
            return found, None
        if found.names and found.acknowledged[-1:] == found.names[-1:]:  # the usual case: nothing to repair
            ack = read_ack(self._place, found.names[-1])
            if ack and ack.state == State.OPEN and ack.length == self._size(found.names[-1]):
                return found, ack
        try:
            with self._place.storage.lock(self._place.lock, wait=False) as held:
                if held:
                    return settle(self._place)
            found = look(self._place)
            for count in (0, 1):  # a writer may be making the last one just now
                ack = read_ack(self._place, found.names[-1 - count]) if len(found.names) > count else None
                if ack:
                    return found._replace(names=found.names[: len(found.names) - count]), ack
            with self._place.storage.lock(self._place.lock):
                return settle(self._place)
        except (StorageError, DiskFull):
            found = look(self._place)
            try:
                return found, extent(self._place, found.names[-1]) if found.names else None
            except NotFound:  # cleaned meanwhile
                return self._settled()
