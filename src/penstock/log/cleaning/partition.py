"""One partition cleaned: what has had its time is let go, the rest of what is closed is compacted and rewritten.

The order of the steps is the guarantee (docs/adr/0007-cleaning.md): new files are written and synced; the manifest that names them
is published; only then the old ones are removed. A crash leaves files that nobody names, and the next cleaning removes them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from penstock.core.schema import Schema
from penstock.core.time import NEVER, micros
from penstock.errors import PenstockError
from penstock.log.cleaning.compaction import Latest, Mask, Numbers, latest
from penstock.log.cleaning.retention import Due, due
from penstock.log.cleaning.rewriting import Rewriter
from penstock.log.cleaning.sources import Closed, Source, close_active, closed
from penstock.log.cleaning.sweeping import sweep
from penstock.log.decode import Decoder
from penstock.log.file.frame import SegmentHeader, encode_segment
from penstock.log.file.listing import look
from penstock.log.file.manifest import Lost, Manifest, Part, encode_manifest
from penstock.log.file.place import Place, SegmentName
from penstock.log.file.senders import encoded_senders, senders_behind, write_senders
from penstock.log.holding import Held
from penstock.log.port import Chunk, TopicSpec
from penstock.log.stamp import Tail

LOST_KEPT = 20  # entries of what readers lost, a partition
_AT_ONCE = 16  # rewritten segments before they are published: so much space is needed twice
_IDLE = 3_600_000_000  # microseconds: a compacted topic's last segment is closed in the background once nothing came for so long
_DIRTY = 0.5  # in the background a topic is compacted when so much was written since, of what there was


@dataclass(frozen=True)
class Order:
    """What a cleaning has to know of its topic. eager: compact all that is there, not only once it is worth it."""

    spec: TopicSpec
    schemas: Callable[[], Sequence[Schema | None]]  # all versions, the oldest first
    segment_size: int
    now: int
    held: Sequence[Held] = ()
    eager: bool = True
    check_alive: Callable[[], None] = lambda: None  # NotFound once the topic was deleted


@dataclass(frozen=True)
class Cleaned:
    """What a cleaning did to a partition."""

    topic: str
    partition: int
    rows_before: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes: int = 0
    first: int = 0
    removed: int = 0  # segments that retention let go
    rewritten: int = 0
    keyless: int = 0
    lost: tuple[Lost, ...] = ()
    waiting: tuple[Held, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.removed or self.rewritten)


def clean_partition(place: Place, order: Order) -> Cleaned | None:
    """Cleans; None if somebody else is at it."""
    with place.storage.lock(place.cleaning, wait=False) as held:
        if not held:
            return None
        done = [Cleaning(place, order).run()]
        while done[-1].rewritten >= _AT_ONCE and not order.spec.compact:
            done.append(Cleaning(place, order).run())
    first = done[0]
    removed, rewritten = (sum(getattr(one, name) for one in done) for name in ("removed", "rewritten"))
    lost, rows, size = tuple(lost for one in done for lost in one.lost), first.rows_before, first.bytes_before
    return replace(done[-1], removed=removed, rewritten=rewritten, lost=lost, rows_before=rows, bytes_before=size)


class Cleaning:
    """One pass over a partition that nobody else is cleaning."""

    def __init__(self, place: Place, order: Order) -> None:
        self._place, self._order, self._spec = place, order, order.spec

    def run(self) -> Cleaned:
        sweep(self._place)
        self._close_old()
        state = closed(self._place)
        schemas = self._order.schemas()  # after that: what is closed has no newer one
        self._spec, self._version = replace(self._spec, schema=schemas[-1]), len(schemas) - 1
        self._decoder = Decoder(self._spec, schemas, None)
        manifest, active = state.manifest, _active_bytes(state)
        gone = due(state.sources, active, self._spec, self._order.held, self._order.now)
        rest = state.sources[gone.count :]
        found = self._latest(manifest, rest)
        if found:
            gone.lost += _deletes_lost(found, self._order)
        groups = self._groups(rest, found)
        parts, covered = self._parts(manifest.number + 1, groups, found)
        made = self._manifest(state, gone, covered, parts, found)
        self._order.check_alive()
        if made:
            self.publish(made, state, gone.count + covered)
        keyless = found.keyless if found else manifest.keyless
        return self._outcome(state, made or manifest, gone, len([p for p in parts if p not in manifest.parts]), keyless)

    def _close_old(self) -> None:
        spec, now = self._spec, self._order.now
        if spec.retain is not None:
            close_active(self._place, now - micros(spec.retain))
        if spec.compact:
            close_active(self._place, now if self._order.eager else now - _IDLE)

    def _latest(self, manifest: Manifest, sources: Sequence[Source]) -> Latest | None:
        """Which rows are kept; None where all are."""
        fresh = sum(s.length for s in sources if not s.part)
        old = sum(s.length for s in sources if s.part)
        due_tombstones = self._order.eager and any(s.part for s in sources)
        if not self._spec.compact or not sources or not (fresh or due_tombstones):
            return None
        if not self._order.eager and fresh < old * _DIRTY:
            return None
        rows = sum(s.rows for s in sources)
        expired = OldEnough(manifest.compacted, self._order)
        return latest(lambda: self._chunks(sources), rows, self._spec.schema is None, expired)

    def _chunks(self, sources: Sequence[Source]) -> Iterator[Chunk]:
        return (chunk for source in sources for _, chunk in source.frames(self._decoder) if chunk)

    def _groups(self, sources: Sequence[Source], found: Latest | None) -> list["_Group"]:
        """Segments that become one: together not larger than a segment, as far as can be said."""
        groups: list[_Group] = []
        place = 0
        for source in sources:
            keep = found.keep(place, source.rows) if found else None
            kept = source.rows if keep is None else int(keep.sum())
            size = source.length * kept // max(source.rows, 1)
            whole = kept == source.rows and source.part is not None
            last = groups[-1] if groups else None
            settled = whole and (found is None or size * 2 >= self._order.segment_size)
            if last and not last.settled and not settled and last.size + size <= self._order.segment_size:
                last.sources.append(source)
                last.size, last.whole = last.size + size, False
            else:
                groups.append(_Group([source], place, size, whole, settled))
            place += source.rows
        return groups

    def _parts(self, number: int, groups: Sequence["_Group"], found: Latest | None) -> tuple[list[Part], int]:
        """The rewritten segments, and how many of the sources they stand for."""
        parts: list[Part] = []
        covered = fresh = 0
        for group in groups:
            if fresh >= _AT_ONCE and not found:
                break
            self._order.check_alive()
            part = group.sources[0].part if group.whole else None
            if part is None:
                part = self._rewritten(number, group, found)
                fresh += 1
            parts.append(part)
            covered += len(group.sources)
        return parts, covered

    def _rewritten(self, number: int, group: "_Group", found: Latest | None) -> Part:
        first, last = group.sources[0], group.sources[-1]
        before = tail_before(first)
        name = SegmentName(first.base, last.serial)
        header = SegmentHeader(self._place.id, self._place.partition, name.serial, name.base, -1, 0, *before, cleaning=number)
        tail = Tail(first.base, *before)
        rewriter = Rewriter(self._spec, self._version, tail)
        path = self._place.part(name, number)
        log = self._place.storage.append(path)
        try:
            log.write(encode_segment(header))
            for data in self._frames(group, found, rewriter):
                log.write(data)
            log.sync()
            return Part(name.base, name.serial, number, log.size, rewriter.rows, rewriter.tail)
        except BaseException:
            with suppress(PenstockError):  # a full disk should not be left fuller
                self._place.storage.remove(path, durable=False)
            raise
        finally:
            log.close()

    def _frames(self, group: "_Group", found: Latest | None, rewriter: Rewriter) -> Iterator[bytes]:
        place = group.place
        for source in group.sources:
            for frame, chunk in source.frames(self._decoder):
                yield from rewriter.add(frame, chunk, found.keep(place, frame.count) if found and frame.count else None)
                place += frame.count
        yield from rewriter.finish(group.sources[-1].tail.next)

    def _manifest(self, state: Closed, gone: Due, covered: int, parts: list[Part], found: Latest | None) -> Manifest | None:
        """What is to be published; None if nothing changed."""
        known, sources = state.manifest, state.sources[: gone.count + covered]
        if not gone.count and tuple(parts) == known.parts:
            return None
        fresh = [source for source in sources if not source.part]
        made = replace(known, number=known.number + 1, parts=tuple(parts), lost=(*known.lost, *gone.lost)[-LOST_KEPT:])
        if fresh:
            last = fresh[-1]
            made = replace(made, through=last.serial, length=last.length, tail=last.tail, senders=made.number)
        if gone.count:
            made = replace(made, first=state.sources[gone.count - 1].tail.next)
        if found:
            made = replace(made, compacted=_horizons(known.compacted, made.tail.next, self._order), keyless=found.keyless)
        return made

    def publish(self, made: Manifest, state: Closed, covered: int) -> None:
        """Under the writers' lock, for the time of a sync: its holder can trust that the files it has listed stay."""
        place, storage = self._place, self._place.storage
        fresh = [source.segment for source in state.sources[:covered] if not source.part]
        producers = None
        if fresh:
            live = [source.segment.name for source in state.sources[covered:]] + ([state.active.name] if state.active else [])
            producers = senders_behind(place, state.manifest, fresh, live[0] if live else None)
            storage.publish(place.cleaned_senders(made.number), encoded_senders(producers))
        with storage.lock(place.lock):
            if producers and all(name.serial <= made.through for name in look(place).names):
                # what producers sent is kept twice: beside the next segment, too, where nobody has begun it yet
                write_senders(place, SegmentName(made.tail.next, made.through + 1), producers)
            storage.publish(place.manifest(made.number), encode_manifest(made, place))
        seen = storage.append(place.cleanings)
        try:
            seen.write(b".")
        finally:
            seen.close()
        sweep(place)

    def _outcome(self, state: Closed, made: Manifest, gone: Due, rewritten: int, keyless: int) -> Cleaned:
        active = _active_bytes(state)
        behind = [s for s in state.sources if not s.part and s.serial > made.through]
        alive = (state.ack.next - state.active.name.base) if state.active and state.ack else 0
        return Cleaned(
            self._spec.name,
            self._place.partition,
            rows_before=sum(s.rows for s in state.sources) + alive,
            rows=sum(p.rows for p in made.parts) + sum(s.rows for s in behind) + alive,
            bytes_before=sum(s.length for s in state.sources) + active,
            bytes=sum(p.length for p in made.parts) + sum(s.length for s in behind) + active,
            first=made.first,
            removed=gone.count,
            rewritten=rewritten,
            keyless=keyless,
            lost=tuple(gone.lost),
            waiting=tuple(gone.waiting),
        )


@dataclass
class _Group:
    sources: list[Source]
    place: int  # of its first row
    size: int
    whole: bool  # one rewritten segment that keeps all of its rows: it stays as it is
    settled: bool  # and nothing is added to it


class OldEnough:
    """Which deletes are old enough to go: those compacted first more than `tombstones` ago. A reader that has not come so far keeps
    them, up to `hold` longer."""

    def __init__(self, compacted: Sequence[tuple[int, int]], order: Order) -> None:
        self._ends = np.array([offset for offset, _ in compacted], np.int64)
        self._since = np.array([at for _, at in compacted] + [order.now], np.int64)
        self._order = order
        self._read = min((reader.offset for reader in order.held), default=None)

    def __call__(self, offsets: Numbers) -> Mask:
        over = self._since[np.searchsorted(self._ends, offsets, side="right")] + micros(self._order.spec.tombstones)
        fresh = np.searchsorted(self._ends, offsets, side="right") == len(self._ends)  # compacted for the first time
        gone = (over <= self._order.now) & ~fresh
        if self._read is not None:
            gone &= (offsets < self._read) | (over + micros(self._order.spec.hold) <= self._order.now)
        return np.asarray(gone)


def _deletes_lost(found: Latest, order: Order) -> list[Lost]:
    """Deletes that go although a reader has not seen them."""
    lost = []
    for reader in order.held:
        unseen = [offset for offset in found.tombstones if offset >= reader.offset]
        if unseen:
            lost.append(Lost(reader.reader, min(unseen), max(unseen) + 1, order.now))
    return lost


def _horizons(known: Sequence[tuple[int, int]], end: int, order: Order) -> tuple[tuple[int, int], ...]:
    """When which offsets were compacted first; what is over is kept as one."""
    over = order.now - micros(order.spec.tombstones) - micros(order.spec.hold)
    old = [one for one in known if one[1] <= over][-1:]
    young = [one for one in known if one[1] > over]
    last = known[-1][0] if known else -1
    return (*old, *young, *([(end, order.now)] if end > last else []))


def tail_before(source: Source) -> tuple[int, int, int, int]:
    """What the header of a rewritten segment says of all before it."""
    header = source.segment.open()
    nothing = header.before_serial < 0 and not source.part  # segments of an earlier version do not say it
    return header.appended, header.time, header.mark, NEVER if nothing else header.greatest


def _active_bytes(state: Closed) -> int:
    return state.ack.length if state.active and state.ack else 0
