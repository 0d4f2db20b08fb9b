"""What can be cleaned of a partition: its rewritten segments, and the closed ones behind them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from penstock.log.decode import Decoder
from penstock.log.file.acks import Ack, State, encode_ack, open_acks
from penstock.log.file.listing import Listing
from penstock.log.file.manifest import Part
from penstock.log.file.place import Place
from penstock.log.file.segment import Segment, damage
from penstock.log.file.settle import settle
from penstock.log.port import Chunk, Frame
from penstock.log.stamp import Tail


@dataclass(frozen=True)
class Source:
    """A segment that nobody writes to any more, and what is known behind it."""

    segment: Segment
    length: int
    rows: int
    tail: Tail

    @property
    def part(self) -> Part | None:
        return self.segment.part

    @property
    def serial(self) -> int:
        return self.segment.name.serial

    @property
    def base(self) -> int:
        return self.segment.name.base

    def frames(self, decoder: Decoder) -> Iterator[tuple[Frame, Chunk | None]]:
        """Every frame, and its rows where it has any."""
        for stored in self.segment.all():
            body = self.segment.body(stored) if stored.frame.count else None
            yield stored.frame, None if body is None else Chunk(stored.frame, decoder.decode(body, stored.layout))


class Closed:
    """The closed end of a partition at one moment."""

    def __init__(self, place: Place, found: Listing, ack: Ack | None) -> None:
        self.place, self.manifest, self.ack = place, found.manifest, ack
        live = [Segment(place, name) for name in found.names]
        if live and live[0].open().before_serial != self.manifest.through:
            raise damage(place, live[0].name, live[0].name.base, 0, "the segments before it are missing")
        self.sources = [_of_part(place, part) for part in self.manifest.parts]
        self.sources += [_of_segment(at, behind) for at, behind in pairwise(live)]
        self.active = live[-1] if live else None
        if self.active and ack and ack.state == State.CLOSED:
            self.sources.append(_of_last(self.active, ack))
            self.active = None


def _of_part(place: Place, part: Part) -> Source:
    segment = Segment(place, part.name, part)
    segment.extend(part.length, part.end)
    return Source(segment, part.length, part.rows, part.tail)


def _of_segment(segment: Segment, behind: Segment) -> Source:
    header = behind.open()
    segment.extend(header.before_length, header.base)
    tail = Tail(header.base, header.appended, header.time, header.mark, header.greatest)
    return Source(segment, header.before_length, header.base - segment.name.base, tail)


def _of_last(segment: Segment, ack: Ack) -> Source:
    segment.extend(ack.length, ack.next)
    tail = segment.tail()
    known = Tail(tail.next, tail.appended, tail.time, tail.mark, segment.greatest())
    return Source(segment, ack.length, tail.next - segment.name.base, known)


def closed(place: Place) -> Closed:
    """Settles the partition, as the next writer would, and tells what is closed."""
    with place.storage.lock(place.lock):
        found, ack = settle(place)
    return Closed(place, found, ack)


def close_active(place: Place, older: int) -> None:
    """Closes the segment that is written to, if its last frame is not younger than `older`; the next append begins another one."""
    with place.storage.lock(place.lock):
        found, ack = settle(place)
        if ack is None or ack.state != State.OPEN:
            return
        active = Segment(place, found.names[-1])
        active.extend(ack.length, ack.next)
        if active.tail().appended > older:
            return
        log, acks = place.storage.append(place.log(active.name)), open_acks(place, active.name)
        try:
            log.sync()  # closed segments are durable, whatever the topic promises
            acks.write(encode_ack(Ack(State.CLOSED, ack.length, ack.next)))
        finally:
            log.close()
            acks.close()
