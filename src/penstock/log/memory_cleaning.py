"""Cleaning as one would write it down first: a frame at a time, a dict of keys. The reference for the file log."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa

from penstock.core.arrow import values_in
from penstock.core.columns import BEFORE, KEY, OFFSET
from penstock.core.time import FOREVER, NEVER, micros
from penstock.log.cleaning.partition import Cleaned
from penstock.log.file.frame import Layout
from penstock.log.file.manifest import Lost
from penstock.log.holding import Held
from penstock.log.intake.codec import event_times
from penstock.log.intake.stored_rows import SYSTEM, deletes_of
from penstock.log.port import Chunk, Frame, TopicSpec


class Kept(NamedTuple):
    """A frame of a log in memory."""

    frame: Frame
    layout: Layout
    rows: pa.RecordBatch | None


@dataclass
class OldEnd:
    """What cleaning has made of a partition so far."""

    first: int = 0
    lost: list[Lost] = field(default_factory=list)
    compacted: dict[int, int] = field(default_factory=dict)  # offset of a delete: when it was compacted first
    through: int = 0  # what lies before this offset was compacted

    def clean(
        self, kept: list[Kept], spec: TopicSpec, partition: int, held: Sequence[Held], now: int
    ) -> tuple[list[Kept], Cleaned]:
        left, lost, waiting = self._retained(kept, spec, held, now)
        self.lost += lost
        if spec.compact:
            self.through = max([self.through, *(one.frame.end for one in left)])
            left = self._compacted(left, spec, held, now)
        rows, size = [sum(k.frame.count for k in some) for some in (kept, left)], [_bytes(some) for some in (kept, left)]
        cleaned = Cleaned(
            spec.name, partition, rows[0], rows[1], size[0], size[1], self.first, lost=tuple(lost), waiting=tuple(waiting)
        )
        return left, replace(cleaned, removed=len(kept) - len(left), rewritten=int(spec.compact))

    def _retained(
        self, kept: list[Kept], spec: TopicSpec, held: Sequence[Held], now: int
    ) -> tuple[list[Kept], list[Lost], list[Held]]:
        lost: list[Lost] = []
        left = list(kept)
        while left:
            frame = left[0].frame
            age = FOREVER if spec.retain is None else frame.appended + micros(spec.retain)
            size = now if spec.retain_bytes is not None and _bytes(left[1:]) >= spec.retain_bytes else FOREVER
            behind = [reader for reader in held if reader.offset < frame.end]
            if min(age, size) > now or (behind and min(age, size) + micros(spec.hold) > now):
                return left, lost, behind if min(age, size) <= now else []
            lost += [Lost(reader.reader, max(reader.offset, frame.base), frame.end, now) for reader in behind]
            self.first = max(self.first, frame.end)
            left.pop(0)
        return left, lost, []

    def _compacted(self, kept: list[Kept], spec: TopicSpec, held: Sequence[Held], now: int) -> list[Kept]:
        newest: dict[bytes, int] = {}
        for one in kept:
            newest |= {key: offset for key, offset, _ in _keys(one, spec) if key is not None}
        gone: set[int] = set()
        for one in kept:
            for key, offset, delete in _keys(one, spec):
                if key is not None and (newest[key] != offset or (delete and self._over(offset, spec, held, now))):
                    gone.add(offset)
        return [left for one in kept for left in _without(one, gone, spec)]

    def _over(self, offset: int, spec: TopicSpec, held: Sequence[Held], now: int) -> bool:
        if offset not in self.compacted:
            self.compacted[offset] = now
            return False
        unread = any(reader.offset <= offset for reader in held)
        return self.compacted[offset] + micros(spec.tombstones) + (micros(spec.hold) if unread else 0) <= now


def _bytes(kept: Sequence[Kept]) -> int:
    return sum(0 if one.rows is None else one.rows.nbytes for one in kept)


def _keys(one: Kept, spec: TopicSpec) -> list[tuple[bytes | None, int, bool]]:
    """Key, offset and whether it is a delete, of every row."""
    if one.rows is None or not one.frame.count:
        return []
    keys = one.rows.column(KEY).to_pylist() if KEY in one.rows.schema.names else [None] * one.frame.count
    deletes = deletes_of(one.rows, spec.schema is None)
    gone = [False] * one.frame.count if deletes is None else deletes.tolist()
    return list(zip(keys, Chunk(one.frame, one.rows).offsets.tolist(), gone, strict=True))


def _without(one: Kept, gone: set[int], spec: TopicSpec) -> list[Kept]:
    """The frame without these rows; a mark stays where it stood."""
    if one.rows is None or not one.frame.count:
        return [one]
    frame, chunk = one.frame, Chunk(one.frame, one.rows)
    places = [at for at, offset in enumerate(chunk.offsets.tolist()) if offset not in gone]
    if len(places) == frame.count:
        return [one]
    if not places:
        mark = replace(frame, base=frame.end, count=0, gap=0, least=NEVER, greatest=NEVER)
        return [Kept(mark, Layout(one.layout.version, 0), None)] if frame.mark > NEVER else []
    times = event_times(one.rows, spec, chunk.appended).tolist()
    before = _before(spec, chunk, times)
    kept = [times[at] for at in places]
    small = replace(frame, count=len(places), gap=frame.end - frame.base - len(places), least=min(kept), greatest=max(kept))
    own = {OFFSET: [chunk.offsets.tolist()[at] for at in places], BEFORE: [before[at] for at in places]}
    rows = one.rows.take(places)
    columns = {name: rows.column(name) for name in rows.schema.names} | {n: pa.array(v, pa.int64()) for n, v in own.items()}
    system = one.layout.system | sum(1 << bit for bit, f in enumerate(SYSTEM) if f.name in own)
    order = [f.name for f in SYSTEM if f.name in columns]
    stored = pa.record_batch({name: columns[name] for name in [*(n for n in columns if n not in order), *order]})
    return [Kept(small, Layout(one.layout.version, system), stored)]


def _before(spec: TopicSpec, chunk: Chunk, times: list[int]) -> list[int]:
    """The greatest plausible time before each row, rows that are gone already included."""
    known, found = chunk.frame.time_before, []
    stored = values_in(chunk.rows.column(BEFORE), int) if BEFORE in chunk.rows.schema.names else [NEVER] * len(times)
    for time, appended, at_least in zip(times, chunk.appended.tolist(), stored, strict=True):
        known = max(known, at_least)
        found.append(known)
        if spec.writer or time <= appended + micros(spec.future):
            known = max(known, time)
    return found
