"""One topic of a Kafka broker."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.core.columns import KEY
from penstock.core.time import NEVER, Clock
from penstock.errors import BadSchema, NotFound, OffsetGone
from penstock.log.decode import check_columns
from penstock.log.intake.checked import CheckedRows, RowCheck
from penstock.log.kafka.catalog import Entry, catalog
from penstock.log.kafka.client import Bounds, Described, describe, look
from penstock.log.kafka.headers import SENDER, row_headers, sender_of
from penstock.log.kafka.read.ranges import PIECE, read_range
from penstock.log.kafka.read.rows import Reading, says_nothing
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.values.codecs import Codec, codec_of, raw_values
from penstock.log.kafka.write.frames import FrameWriter, Outgoing
from penstock.log.kafka.write.recovery import Recovery
from penstock.log.kafka.write.senders import senders
from penstock.log.port import Appended, Chunk, End, Frame, Part, Sender, TopicSpec
from penstock.log.producers import check_sender
from penstock.log.stamp import check_mark, check_something


class KafkaTopic:
    """A topic of the broker. Cheap to open, safe for several threads and processes, picklable."""

    headers = False

    def __init__(self, settings: KafkaSettings, clock: Clock, entry: Entry) -> None:
        self._settings, self._clock = settings, clock
        self._name = settings.prefix + entry.spec.name
        self._latest = NEVER
        self._ends: dict[int, Bounds] = {}  # as `ends` was last told: what lay within lies within
        self._guard = threading.Lock()
        self._writer = FrameWriter(settings, self._check_alive, self._find)
        self._take(entry)

    def _take(self, entry: Entry) -> None:
        self._entry, self._spec = entry, entry.spec
        self._check = RowCheck(entry.spec)
        self._codec: Codec | None = codec_of(entry.spec, self._settings, self._name, entry.schemas)

    def __reduce__(self) -> tuple[object, ...]:
        return KafkaTopic, (self._settings, self._clock, self._entry)

    def __repr__(self) -> str:
        return f"KafkaTopic({self._spec.name!r}, {self._settings})"

    @property
    def spec(self) -> TopicSpec:
        return self._spec

    @property
    def id(self) -> str:
        return self._entry.id

    def append(
        self, partition: int, rows: pa.RecordBatch | CheckedRows | None, *, mark: int = NEVER, sender: Sender | None = None
    ) -> Appended:
        check_something(rows, mark)
        check_sender(sender)
        frame = self._outgoing(Part(partition, rows, mark))
        if sender is not None:
            return self._writer.append_signed([frame], sender)[0]
        if not frame.records:
            return Appended(self.ends()[partition].next, 0, duplicate=False)
        return self._writer.append(frame)

    def append_together(self, parts: Sequence[Part], sender: Sender) -> None:
        """A frame to each of the partitions, all of them or none, in one transaction with their stamps."""
        check_sender(sender)
        if parts:
            self._writer.append_signed([self._outgoing(part) for part in parts], sender)

    def frames(self, partition: int, start: int = 0, stop: int | None = None) -> Sequence[Frame]:
        known = self._ends.get(partition)
        if stop is None or known is None or not known.first <= start <= stop <= known.end:
            first, end = self._bounds(partition)
            start, stop = self._start(partition, start, first), end if stop is None else min(stop, end)
        return [blank(base, min(PIECE, stop - base)) for base in range(start, stop, PIECE)]

    def read(
        self, partition: int, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        check_columns(self._spec, columns)
        first, end = self._bounds(partition)
        start, end = self._start(partition, start, first), end if stop is None else min(stop, end)
        return self._chunks(partition, start, end, columns)

    def ends(self) -> dict[int, End]:
        found = self._look(range(self._spec.partitions), newest=True)
        if len(found) < self._spec.partitions:  # some were added
            found |= self._look(range(len(found), self._spec.partitions), newest=True)
        self._ends = found
        return {p: End(first, next, newest * 1000 if newest >= 0 else NEVER) for p, (first, next, newest) in found.items()}

    def senders(self, partition: int) -> Mapping[str, Sender]:
        self._check_partition(partition)
        stamps = senders(self._settings)
        for sender in stamps.hanging(self.id, partition):
            self._writer.settle(Recovery(self._settings, self._name, self.id, sender), partition)
        return stamps.of(self.id, partition)

    def describe(self) -> dict[str, object]:
        """What an operator wants to know beside the settings."""
        return {
            "id": self.id,
            "broker": str(self._settings),
            "kafka_topic": self._name,
            "codec": self._spec.codec or ("json" if self._spec.schema else "raw"),
            "durability": "replicated: an acknowledged record is with all replicas in sync (acks=all)",
            "schema_versions": max(1, len(self._entry.schemas)),
        }

    def take_settings(self) -> bool:
        """Looks for columns or partitions that were added meanwhile; whether there are any."""
        found = catalog(self._settings).get(self._name)
        if found is None or found.id != self.id or found == self._entry:
            return False
        self._take(found)
        return True

    def _checked(self, rows: pa.RecordBatch | CheckedRows) -> CheckedRows:
        try:
            return self._check.checked(rows)
        except BadSchema:
            if not self.take_settings():  # another process may have added the column
                raise
            return self._check.checked(rows)

    def _outgoing(self, part: Part) -> Outgoing:
        """What goes to one partition as records, checked."""
        self._check_partition(part.partition)
        checked = None if part.rows is None else self._checked(part.rows)
        appended = self._now()
        check_mark(self._spec, part.mark, appended)
        values: Sequence[bytes | None] = []
        keys = headers = None
        if checked is not None and checked.num_rows:
            batch = checked.batch
            own = batch.select(self._spec.schema.names) if self._spec.schema else batch
            values = self._codec.encode(own) if self._codec else raw_values(batch)
            keys = batch.column(KEY).to_pylist() if KEY in batch.schema.names else None
            headers = row_headers(batch)
        return Outgoing(self._name, self.id, part.partition, values, keys, headers, appended, part.mark)

    def _chunks(self, partition: int, start: int, stop: int, columns: Sequence[str] | None) -> Iterator[Chunk]:
        reading, last = Reading(self._spec, self._codec, columns), None
        for piece in read_range(self._settings, self._name, self.id, partition, start, stop) if start < stop else ():
            self._check_alive()  # after the fetch: what was read is this topic's, not that of one made in its place
            for chunk in reading.chunks(piece):
                if last is not None and says_nothing(chunk):  # the end of a transaction, most often
                    last = Chunk(replace(last.frame, gap=chunk.frame.end - last.frame.base - last.frame.count), last.rows)
                    continue
                if last is not None:
                    yield last
                last = chunk
        if last is not None:
            yield last

    def _find(self, partition: int, sender: Sender) -> Frame | None:
        """An old frame of a sender, by the stamps on the records themselves."""
        first, end = self._bounds(partition)
        for piece in read_range(self._settings, self._name, self.id, partition, first, end) if first < end else ():
            for i, stamp in zip(*piece.headers.named(SENDER.encode()), strict=True):
                found = sender_of(stamp.as_py())
                if found and found[0][:3] == sender[:3]:
                    return blank(int(piece.offsets[i]), found[1])
        return None

    def _bounds(self, partition: int) -> tuple[int, int]:
        self._check_partition(partition)
        first, end, _ = self._look([partition])[partition]
        return first, end

    def _look(self, partitions: Sequence[int], *, newest: bool = False) -> dict[int, Bounds]:
        """The bounds of partitions of this very topic."""
        topic, found = look(self._settings, {self._name: partitions}, newest=newest)[self._name]
        self._check_id(topic)
        return found

    def _start(self, partition: int, start: int, first: int) -> int:
        """Where to begin. Zero means the beginning; any other offset that is gone raises."""
        if start >= first:
            return start
        raise OffsetGone(f"{self._spec.name}/{partition} starts at offset {first}; {start} is gone", hint="read from earliest")

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < self._spec.partitions:
            raise NotFound(f"topic {self._spec.name} has no partition {partition}", f"it has {self._spec.partitions}")

    def _check_alive(self) -> None:
        """Raises NotFound if the topic was deleted, also where another one was made under its name."""
        self._check_id(describe(self._settings, self._name))

    def _check_id(self, found: Described | None) -> None:
        if found is None or found.id != self.id:
            again = "; the one of that name is another" if found else ""
            raise NotFound(f"topic {self._spec.name} was deleted{again}", hint="open the topic again")
        if found.partitions != self._spec.partitions:
            self._spec = replace(self._spec, partitions=found.partitions)
            self._check = RowCheck(self._spec)

    def _now(self) -> int:
        """The append time: whole milliseconds, as Kafka keeps it, never going back in this process."""
        with self._guard:
            self._latest = max(self._latest, self._clock.now() // 1000 * 1000)
            return self._latest


def blank(base: int, count: int) -> Frame:
    """A frame of which nothing is known but its place."""
    return Frame(base, count, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER)
