"""Streams of events on the log: one topic, each stream in one of its partitions."""

import os
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import table_of
from penstock.core.hashing import partition_of
from penstock.core.time import Clock, SystemClock
from penstock.errors import AlreadyThere, BadInput, NotFound, PenstockError
from penstock.events.event import Append, StoredEvent, Written
from penstock.events.on_log.index import FLUSH, PartitionIndex
from penstock.events.on_log.judge import Session
from penstock.events.on_log.rows import AT, STREAM, VERSION, check_sizes, check_topic, decode, encode, topic_spec
from penstock.events.on_log.run_files import RunFiles
from penstock.events.port import StreamInfo
from penstock.events.rules import check_stream, check_together
from penstock.log.file.log import FileLog
from penstock.log.file.topic import FileTopic
from penstock.log.intake.checked import CheckedRows, RowCheck
from penstock.log.memory import MemoryLog
from penstock.log.port import Chunk, End, JudgedTopic, Log
from penstock.log.producer import FRAME_BYTES
from penstock.storage.group_commit import GroupCommit, Pending

_Appends = Sequence[Append]
_Group = Sequence[Pending[_Appends, list[Written]]]


class Partition:
    """One partition of a store: appends of many threads are judged together and written as one frame."""

    def __init__(self, topic: JudgedTopic, number: int, clock: Clock, flush: int) -> None:
        self._topic, self._number, self._clock = topic, number, clock
        files = RunFiles(*topic.beside(number)) if isinstance(topic, FileTopic) else None
        self.index = PartitionIndex(topic, number, files, flush)
        self._check = RowCheck(topic.spec)
        self._appends: GroupCommit[_Appends, list[Written]] = GroupCommit(
            self._commit, "the append was interrupted; its events may or may not be there", FRAME_BYTES
        )

    def append(self, appends: _Appends, size: int) -> list[Written]:
        self.index.prepare()
        return self._appends.run(appends, size)

    def read(self, stream: str, start: int, stop: int | None) -> list[StoredEvent]:
        first = self.index.refresh().first
        offsets = self.index.places(stream, start, stop, first)
        chunks = list(self._topic.read_at(self._number, offsets))
        events = decode(self._topic.spec.name, self._number, chunks, stream)
        return [event for event in events if event.version >= start and (stop is None or event.version <= stop)]

    def version(self, stream: str) -> int:
        head = self.index.head(stream, self.index.refresh().first)
        return head.version if head else 0

    def _commit(self, group: _Group) -> None:
        sessions = list[Session]()

        def judge(end: End, since: Callable[[int], Iterator[Chunk]]) -> CheckedRows | None:
            self.index.take(end, since)
            session = Session(self._topic.spec.name, self._number, self.index, end, since, self._clock.now())
            sessions.append(session)
            for pending in group:
                try:
                    pending.result = session.take(pending.request)
                except PenstockError as error:
                    pending.error = error
            return encode(session.rows, self._check) if session.rows else None

        try:
            self._topic.append_judged(self._number, judge)
        except BaseException:
            for pending in group:
                pending.error = None  # who was refused may have been so because of one that failed now
            raise
        if sessions[-1].rows:
            self.index.add(sessions[-1].rows, sessions[-1].end.next)


class LogStreams:
    """The streams of a store on a log. Any number of processes may use them at once."""

    def __init__(self, topic: JudgedTopic, clock: Clock | None = None, flush: int = FLUSH) -> None:
        """flush: events in memory that become a file of the index."""
        check_topic(topic.spec)
        self.topic, self._clock, self._flush = topic, clock or SystemClock(), flush
        self._forget()

    @property
    def name(self) -> str:
        return self.topic.spec.name

    def _forget(self) -> None:
        self._partitions: dict[int, Partition] = {}
        self._pid = os.getpid()

    def append(self, appends: Sequence[Append]) -> list[Written]:
        check_together(appends)
        size = check_sizes(appends, self.topic.spec.max_record)
        if size > FRAME_BYTES:
            raise BadInput(f"an append of about {size:,} bytes is too large", f"at most {FRAME_BYTES:,} are written at once")
        numbers = {self.partition_of(append.stream) for append in appends}
        if len(numbers) > 1:
            names = ", ".join(append.stream for append in appends)
            raise BadInput(
                f"streams {names} lie in several partitions of store {self.topic.spec.name}",
                "nothing can append to all of them at once",
                hint="append to one after the other, or keep them in a store with one partition",
            )
        return self._partition(numbers.pop()).append(appends, size)

    def read(self, stream: str, start: int = 1, stop: int | None = None) -> Sequence[StoredEvent]:
        return self._partition(self.partition_of(stream)).read(stream, start, stop)

    def version(self, stream: str) -> int:
        return self._partition(self.partition_of(stream)).version(stream)

    def streams(self) -> Iterator[StreamInfo]:
        found = [info for number in range(self.topic.spec.partitions) for info in self._streams_of(number)]
        return iter(sorted(found))

    def partition_of(self, stream: str) -> int:
        """Where a stream lies."""
        return partition_of(check_stream(stream).encode(), self.topic.spec.partitions)

    def index(self, number: int) -> PartitionIndex:
        """The index of a partition."""
        return self._partition(number).index

    def events(self, number: int) -> Iterator[StoredEvent]:
        """All events of a partition, in the order of the log."""
        for chunk in self.topic.read(number, self.topic.end(number).first):
            yield from decode(self.topic.spec.name, number, [chunk])

    def _streams_of(self, number: int) -> Iterator[StreamInfo]:
        columns = [STREAM, VERSION, AT]
        chunks = self.topic.read(number, self.topic.end(number).first, None, columns)
        tables = [pa.Table.from_batches([chunk.rows.select(columns)]) for chunk in chunks]
        if not tables:
            return
        groups = pa.concat_tables(tables).group_by(STREAM)
        sums = groups.aggregate([(VERSION, "count"), (VERSION, "max"), (AT, "min"), (AT, "max")])
        rows = table_of(
            {name: pc.cast(sums.column(name), pa.int64()) if name != STREAM else sums.column(name) for name in sums.column_names}
        )
        for row in rows.to_pylist():
            yield StreamInfo(row[STREAM], row["version_count"], row["version_max"], row["at_min"], row["at_max"], number)

    def _partition(self, number: int) -> Partition:
        if self._pid != os.getpid():  # threads of the process we were forked from hold locks for ever
            self._forget()
        known = self._partitions.get(number)
        return known or self._partitions.setdefault(number, Partition(self.topic, number, self._clock, self._flush))


def open_streams(
    log: Log, name: str, partitions: int = 1, clock: Clock | None = None, flush: int = FLUSH, compact: bool = False
) -> LogStreams:
    """The store of this name; its topic is made if it is not there. compact: of a new one, whether only the last event of every
    stream is kept."""
    if not isinstance(log, FileLog | MemoryLog):
        hint = "use the embedded log"
        raise BadInput("this log cannot hold an event store: its topics do not compare before they append", hint=hint)
    try:
        topic: JudgedTopic = log.topic(name)
    except NotFound:
        try:
            topic = log.create(topic_spec(name, partitions, compact))
        except AlreadyThere:  # somebody else made it just now
            topic = log.topic(name)
    return LogStreams(topic, clock or log.clock, flush)
