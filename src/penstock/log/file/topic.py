"""One topic of the embedded log."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.core.time import NEVER, Clock, SystemClock
from penstock.errors import BadRow, BadSchema, NotFound
from penstock.log.cleaning.partition import Cleaned, Order, clean_partition
from penstock.log.decode import Decoder
from penstock.log.file.frame import Layout, encode_body
from penstock.log.file.listing import look
from penstock.log.file.manifest import Lost
from penstock.log.file.place import Place
from penstock.log.file.reader import Found, PartitionReader
from penstock.log.file.segment import damage
from penstock.log.file.senders import senders_of
from penstock.log.file.settle import cut_bytes
from penstock.log.file.store import TopicStore
from penstock.log.file.trimming import behind
from penstock.log.file.writer import PartitionWriter, Request
from penstock.log.holding import Held
from penstock.log.intake.checked import CheckedRows, RowCheck
from penstock.log.port import Appended, Chunk, End, Frame, Judge, Sender, TopicSpec
from penstock.log.producers import check_sender
from penstock.log.stamp import check_something, refuse_events
from penstock.storage.local import LocalStorage
from penstock.storage.port import Storage

_MOST_OPEN = 256  # topics kept open by a process
_NOTICED = 1.0  # seconds after which altered settings are looked for


@dataclass(frozen=True)
class _Settings:
    """Schema versions and settings that belong together. Replaced as a whole: a frame's layout, the check of its rows and their
    schema must be of one version, even while another thread looks for newer ones."""

    schemas: tuple[Schema | None, ...]
    altered: int  # how often
    spec: TopicSpec
    check: RowCheck

    @classmethod
    def of(cls, store: TopicStore) -> "_Settings":
        schemas = tuple(store.schemas())
        altered, settings = store.settings()
        spec = replace(settings, schema=schemas[-1])
        return cls(schemas, altered, spec, RowCheck(spec))

    @property
    def version(self) -> tuple[int, int]:
        """Neither ever gets less."""
        return len(self.schemas), self.altered


class FileTopic:
    """A topic in a directory. Cheap to open, safe for several threads and processes, picklable."""

    headers = True

    def __init__(self, store: TopicStore, clock: Clock, segment_size: int) -> None:
        self._store, self._clock, self._segment_size = store, clock, segment_size
        self._known, self._looked = _Settings.of(store), time.monotonic()
        self._forget()

    def _forget(self) -> None:
        self._guard = threading.RLock()
        self._writers: dict[int, PartitionWriter] = {}
        self._readers: dict[int, PartitionReader] = {}
        self._pid = os.getpid()  # last: a thread that sees it uses nothing of the process we were forked from

    def __reduce__(self) -> tuple[object, ...]:
        return opened, (self._store, self._clock, self._segment_size)

    def __repr__(self) -> str:
        return f"FileTopic({self._spec.name!r})"

    @property
    def spec(self) -> TopicSpec:
        """The settings; what was altered elsewhere is noticed within about a second."""
        if time.monotonic() - self._looked > _NOTICED:
            self._notice()
        return self._spec

    @property
    def id(self) -> str:
        return self._store.id

    def append(
        self, partition: int, rows: pa.RecordBatch | CheckedRows | None, *, mark: int = NEVER, sender: Sender | None = None
    ) -> Appended:
        writer = self._writer(partition)
        check_something(rows, mark)
        check_sender(sender)
        refuse_events(self._spec, rows)
        known, checked = (self._known, None) if rows is None else self._checked(rows)
        if checked and not checked.num_rows:
            if mark == NEVER and sender is None:
                return Appended(self._reader(partition).end().next, 0, duplicate=False)
            checked = None
        return writer.append(self._request(known, checked, mark, sender))

    def append_judged(self, partition: int, judge: Judge) -> Appended | None:
        def decide(end: End, since: Callable[[int], Iterator[Found]]) -> Request | None:
            known = self._known
            decoder = Decoder(known.spec, known.schemas, None)
            rows = judge(end, lambda start: self._chunks(since(start), decoder))
            return None if rows is None else self._request(*self._checked(rows))

        return self._writer(partition).append_judged(decide)

    def read_at(self, partition: int, offsets: Sequence[int], columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        known = self._known
        return self._chunks(self._reader(partition).at(offsets), Decoder(known.spec, known.schemas, columns))

    def beside(self, partition: int) -> tuple[Storage, str]:
        """The storage and the directory of a partition, for files that belong to it and go with it."""
        place = self._place(partition)
        return place.storage, place.directory

    def frames(self, partition: int, start: int = 0, stop: int | None = None) -> Sequence[Frame]:
        return self._reader(partition).frames(start, stop)

    def read(
        self, partition: int, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        known = self._known
        decoder = Decoder(known.spec, known.schemas, columns)
        return self._chunks(self._reader(partition).read(start, stop), decoder)

    def end(self, partition: int) -> End:
        return self._reader(partition).end()

    def ends(self) -> dict[int, End]:
        self._notice()  # there may be more partitions
        return {p: self._reader(p).end() for p in range(self._spec.partitions)}

    def reaching(self, partition: int, since: int) -> int | None:
        return self._reader(partition).reaching(since)

    def rows(self, partition: int) -> int:
        """How many rows there are: fewer than offsets where some were compacted away."""
        reader = self._reader(partition)
        return sum(part.rows for part in reader.manifest.parts) + reader.end().next - reader.manifest.tail.next

    def compacted_to(self, partition: int) -> int:
        return self._reader(partition).manifest.tail.next

    def lost(self, partition: int) -> Sequence[Lost]:
        """What retention removed lately although a reader had not read it."""
        return self._reader(partition).manifest.lost

    def senders(self, partition: int) -> Mapping[str, Sender]:
        return senders_of(self._place(partition), self._reader(partition)).last()

    def clean(self, held: Sequence[Held] = (), *, eager: bool = True) -> list[Cleaned]:
        """Cleans the partitions that nobody else is cleaning just now; what was done to each."""
        self._notice()
        done = []
        for partition in range(self._spec.partitions):
            mine = [reader for reader in held if reader.partition == partition]
            now, alive = self._clock.now(), self._store.check_alive
            order = Order(self._spec, self._store.schemas, self._segment_size, now, mine, eager, alive)
            done.append(clean_partition(self._place(partition), order))
        return [one for one in done if one]

    def describe(self) -> dict[str, object]:
        """What an operator wants to know beside the settings."""
        places = [self._place(p) for p in range(self._spec.partitions)]
        return {
            "id": self.id,
            "durability": self._store.durability_in_words(),
            "schema_versions": len(self._known.schemas),
            "segments": sum(len(found.manifest.parts) + len(found.names) for found in map(look, places)),
            "torn_bytes_cut": sum(cut_bytes(place) for place in places),
        }

    def directories(self) -> list[str]:
        """Of its partitions, where they lie in directories of this machine."""
        places = [self._store.place(p) for p in range(self._spec.partitions)]
        return [f"{place.storage.root}/{place.directory}" for place in places if isinstance(place.storage, LocalStorage)]

    def close(self) -> None:
        """Closes the files; the next call opens them again."""
        with self._guard:
            for writer in self._writers.values():
                writer.close()
            self._forget()

    def take_settings(self) -> bool:
        """Looks for columns that were added and settings that were altered meanwhile; whether there are any."""
        self._notice_fork()
        with self._guard:  # one after the other, so that what is known never goes back
            before, self._looked = self._known, time.monotonic()
            if self._store.version() != before.version:
                self._known = _Settings.of(self._store)
            return before.version != self._known.version

    def _notice(self) -> None:
        self._looked = time.monotonic()
        if self._store.altered_since(self._known.altered):
            self.take_settings()

    @property
    def _spec(self) -> TopicSpec:
        return self._known.spec

    def _checked(self, rows: pa.RecordBatch | CheckedRows) -> tuple[_Settings, CheckedRows]:
        """The rows as they will be stored, and the settings under which they are."""
        known = self._known
        try:
            return known, known.check.checked(rows)
        except (BadSchema, BadRow):
            if not self.take_settings() and self._known is known:  # another process may have added the column, or raised the limit
                raise
            known = self._known
            return known, known.check.checked(rows)

    @staticmethod
    def _request(known: _Settings, rows: CheckedRows | None, mark: int = NEVER, sender: Sender | None = None) -> Request:
        layout = Layout(len(known.schemas) - 1, rows.system if rows else 0)
        return Request(known.spec, rows, encode_body(rows.batch if rows else None, layout), mark, sender)

    def _chunks(self, found: Iterator[Found], decoder: Decoder) -> Iterator[Chunk]:
        for segment, stored, after in found:
            if not decoder.knows(stored.layout):
                self.take_settings()
                decoder = decoder.with_schemas(self._known.schemas)
            body = segment.body(stored)
            try:
                chunk = Chunk(stored.frame, decoder.decode(body, stored.layout))
            except (pa.ArrowException, IndexError) as error:
                raise damage(segment.place, segment.name, stored.frame.base, stored.frame.where[1], str(error)) from error
            chunk = chunk if after is None else behind(self._spec, chunk, after)
            if chunk.frame.count:
                yield chunk

    def _place(self, partition: int) -> Place:
        if not 0 <= partition < self._spec.partitions:
            self._notice()
        if not 0 <= partition < self._spec.partitions:
            raise NotFound(f"topic {self._spec.name} has no partition {partition}", f"it has {self._spec.partitions}")
        return self._store.place(partition)

    def _writer(self, partition: int) -> PartitionWriter:
        self._notice_fork()
        with self._guard:
            if partition not in self._writers:
                place = self._place(partition)
                self._writers[partition] = PartitionWriter(place, self._clock, self._segment_size, self._store.check_alive)
            return self._writers[partition]

    def _reader(self, partition: int) -> PartitionReader:
        self._notice_fork()
        with self._guard:
            if partition not in self._readers:
                self._readers[partition] = PartitionReader(self._place(partition))
            reader = self._readers[partition]
        if not reader.refresh():
            self._store.check_alive()
        return reader

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._forget()


_OPEN: dict[tuple[object, ...], FileTopic] = {}


def opened(store: TopicStore, clock: Clock, segment_size: int) -> FileTopic:
    """The topic, opened once per process under the real clock: what it knows of its frames is kept between calls."""
    if not isinstance(clock, SystemClock) or not isinstance(store.storage, LocalStorage):
        return FileTopic(store, clock, segment_size)
    place = (store.storage, store.spec.name, store.id, segment_size)
    known = _OPEN.get(place)
    if known is not None:
        known.take_settings()
        return known
    if len(_OPEN) >= _MOST_OPEN:
        _OPEN.clear()
    return _OPEN.setdefault(place, FileTopic(store, clock, segment_size))  # another thread may have been first
