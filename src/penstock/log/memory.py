"""A log in memory: the reference for every log, and the log of tests."""

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.core.names import check_name
from penstock.core.schema import Schema
from penstock.core.time import NEVER, Clock, SystemClock
from penstock.errors import NotFound, OffsetGone
from penstock.log.altering import differs
from penstock.log.cleaning.partition import Cleaned
from penstock.log.decode import Decoder
from penstock.log.errors import already_there, evolves, no_topic, refuse_codec
from penstock.log.file.frame import Layout
from penstock.log.file.manifest import Lost
from penstock.log.groups.memory import MemoryGroups
from penstock.log.holding import Held, Holds, nobody
from penstock.log.intake.checked import CheckedRows, RowCheck
from penstock.log.memory_cleaning import Kept, OldEnd
from penstock.log.port import Appended, Chunk, End, Frame, Judge, Sender, TopicSpec
from penstock.log.producers import Producers, check_sender
from penstock.log.settings import check_spec
from penstock.log.stamp import Tail, check_something, refuse_events, stamped


class _Partition:
    def __init__(self) -> None:
        self.chunks: list[Kept] = []
        self.tail = Tail()
        self.old = OldEnd()
        self.producers = Producers()

    def find(self, sender: Sender) -> Frame | None:
        return next((f for f, _, _ in reversed(self.chunks) if f.sender and f.sender[:3] == sender[:3]), None)

    def clean(self, spec: TopicSpec, number: int, held: Sequence[Held], now: int) -> Cleaned:
        self.chunks, cleaned = self.old.clean(self.chunks, spec, number, held, now)
        return cleaned


class MemoryTopic:
    """One topic of a MemoryLog."""

    headers = True

    def __init__(self, spec: TopicSpec, clock: Clock) -> None:
        self._spec, self._clock, self._check = spec, clock, RowCheck(spec)
        self._id = secrets.token_hex(16)
        self._schemas = [spec.schema]
        self._partitions = [_Partition() for _ in range(spec.partitions)]
        self._guard = threading.RLock()
        self._deleted = False

    @property
    def spec(self) -> TopicSpec:
        return self._spec

    @property
    def id(self) -> str:
        return self._id

    def append(
        self, partition: int, rows: pa.RecordBatch | CheckedRows | None, *, mark: int = NEVER, sender: Sender | None = None
    ) -> Appended:
        check_something(rows, mark)
        check_sender(sender)
        refuse_events(self._spec, rows)
        with self._guard:
            at = self._partition(partition)
            checked = None if rows is None else self._check.checked(rows)
            if checked and not checked.num_rows and mark == NEVER and sender is None:
                return Appended(at.tail.next, 0, duplicate=False)
            answer = at.producers.answer(sender, at.find) if sender else None
            return answer or self._added(at, checked, mark, sender)

    def append_judged(self, partition: int, judge: Judge) -> Appended | None:
        with self._guard:
            at = self._partition(partition)
            rows = judge(at.tail.end(at.old.first), lambda start: self.read(partition, max(start, at.old.first)))
            return None if rows is None else self._added(at, self._check.checked(rows))

    def _added(self, at: _Partition, rows: CheckedRows | None, mark: int = NEVER, sender: Sender | None = None) -> Appended:
        frame = stamped(self._spec, at.tail, rows, mark, sender, self._clock.now())
        at.chunks.append(Kept(frame, Layout(len(self._schemas) - 1, rows.system if rows else 0), rows.batch if rows else None))
        at.tail = at.tail.after(frame)
        at.producers.remember(frame)
        return Appended(frame.base, frame.count, duplicate=False)

    def frames(self, partition: int, start: int = 0, stop: int | None = None) -> Sequence[Frame]:
        with self._guard:
            self._refuse_gone(partition, start)
            found = [frame for frame, _, _ in self._partition(partition).chunks]
        return [f for f in found if f.touches(start, stop)]

    def read(
        self, partition: int, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        with self._guard:
            decoder = Decoder(self._spec, self._schemas, columns)
            self._refuse_gone(partition, start)
            found = list(self._partition(partition).chunks)
        return (
            Chunk(frame, decoder.shaped(batch, layout))
            for frame, layout, batch in found
            if batch is not None and frame.count and frame.end > start and (stop is None or frame.base < stop)
        )

    def read_at(self, partition: int, offsets: Sequence[int], columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        chunks = self.read(partition, self._partition(partition).old.first, None, columns)
        wanted = np.asarray(offsets, np.int64)
        return (chunk for chunk in chunks if np.isin(chunk.offsets, wanted).any())

    def end(self, partition: int) -> End:
        with self._guard:
            return self._partition(partition).tail.end(self._partition(partition).old.first)

    def ends(self) -> dict[int, End]:
        with self._guard:
            return {p: self.end(p) for p in range(self._spec.partitions)}

    def reaching(self, partition: int, since: int) -> int | None:
        return next((f.base for f, _, _ in self._partition(partition).chunks if f.count and f.greatest >= since), None)

    def rows(self, partition: int) -> int:
        return sum(frame.count for frame, _, _ in self._partition(partition).chunks)

    def compacted_to(self, partition: int) -> int:
        return self._partition(partition).old.through

    def lost(self, partition: int) -> Sequence[Lost]:
        return self._partition(partition).old.lost

    def senders(self, partition: int) -> Mapping[str, Sender]:
        with self._guard:
            return self._partition(partition).producers.last()

    def grow(self, schema: Schema) -> None:
        """Adds a version of the schema."""
        with self._guard:
            self._schemas.append(schema)
            self._take(replace(self._spec, schema=schema))

    def alter(self, spec: TopicSpec) -> None:
        with self._guard:
            if differs(self._spec, spec):
                self._partitions += [_Partition() for _ in range(spec.partitions - self._spec.partitions)]
                self._take(spec)

    def _take(self, spec: TopicSpec) -> None:
        self._spec, self._check = spec, RowCheck(spec)

    def clean(self, held: Sequence[Held] = ()) -> list[Cleaned]:
        """The reference of cleaning: frame by frame, with a dict; every frame but the last of a partition counts as closed."""
        with self._guard:
            numbers, now = range(self._spec.partitions), self._clock.now()
            return [self._partitions[p].clean(self._spec, p, [h for h in held if h.partition == p], now) for p in numbers]

    def _refuse_gone(self, partition: int, start: int) -> None:
        first = self._partition(partition).old.first
        if start < first:
            what = f"topic {self._spec.name}, partition {partition} begins at offset {first}, {start} was asked for"
            raise OffsetGone(what, f"offsets {start} to {first - 1} were removed by retention")

    def end_life(self) -> None:
        self._deleted = True

    def _partition(self, partition: int) -> _Partition:
        if self._deleted:
            raise NotFound(f"topic {self._spec.name} was deleted", hint="open the topic again")
        if not 0 <= partition < self._spec.partitions:
            raise NotFound(f"topic {self._spec.name} has no partition {partition}", f"it has {self._spec.partitions}")
        return self._partitions[partition]


class MemoryLog:
    """Topics that live as long as this object."""

    def __init__(self, clock: Clock | None = None, groups: MemoryGroups | None = None) -> None:
        self.clock = clock or SystemClock()
        self._topics: dict[str, MemoryTopic] = {}
        self._groups = groups or MemoryGroups(self.clock)

    def groups(self) -> MemoryGroups:
        return self._groups

    def create(self, spec: TopicSpec) -> MemoryTopic:
        check_name(spec.name)
        check_spec(spec)
        refuse_codec(spec)
        made = MemoryTopic(spec, self.clock)
        there = self._topics.setdefault(spec.name.lower(), made)
        if there is not made:
            raise already_there(spec.name, there.spec.name)
        return made

    def topic(self, name: str) -> MemoryTopic:
        found = self._topics.get(check_name(name).lower())
        if found is None or found.spec.name != name:
            raise no_topic(name, self.topics())
        return found

    def topics(self) -> list[str]:
        return sorted(topic.spec.name for topic in self._topics.values())

    def delete(self, name: str) -> None:
        self.topic(name).end_life()
        del self._topics[name.lower()]

    def alter(self, spec: TopicSpec) -> MemoryTopic:
        self.topic(spec.name).alter(spec)
        return self.topic(spec.name)

    def clean(self, name: str, holds: Holds = nobody, *, eager: bool = True) -> list[Cleaned]:
        return self.topic(name).clean(holds(name))

    def evolve(self, name: str, schema: Schema) -> MemoryTopic:
        topic = self.topic(name)
        if evolves(name, topic.spec.schema, schema):
            topic.grow(schema)
        return topic
