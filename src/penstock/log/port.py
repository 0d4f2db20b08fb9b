"""What a log is: topics, partitions, frames of rows, marks, idempotent producers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import APPENDED, OFFSET
from penstock.core.schema import Schema
from penstock.core.time import NEVER

if TYPE_CHECKING:
    from penstock.log.groups.port import Groups
    from penstock.log.intake.checked import CheckedRows

Durability = Literal["fsync", "os", "memory"]


@dataclass(frozen=True)
class TopicSpec:
    """The settings of a topic. `future` cannot change: frame headers depend on it."""

    name: str
    partitions: int = 1
    schema: Schema | None = None  # None: a raw topic
    time: str | None = None  # the column (typed) or JSON field (raw) that holds the event time; None: the append time
    key: str | None = None  # the column or JSON field that producers take the key from
    partition_by: str | None = None  # an expression such as "user_id % 3"; None: murmur2 of the key
    durability: Durability = "fsync"
    future: timedelta = timedelta(days=1)
    max_record: int = 1 << 20
    writer: str | None = None  # the flow that writes it; its rows bring time, position and watermark along
    changelog: bool = False
    ordered: bool = False  # of a flow: rows stand as the records do that they were made from, and the last of a key holds
    codec: str | None = None  # how Kafka's records hold rows: json, avro, avro+registry, raw; None: as the log does by itself
    retain: timedelta | None = None  # records are removed when they are older; None: never
    retain_bytes: int | None = None  # of a partition: the oldest records are removed when it holds more
    hold: timedelta = timedelta(days=7)  # how long beyond that a reader that has not read them keeps them
    compact: bool = False  # only the latest record of every key is kept
    tombstones: timedelta = timedelta(days=1)  # how long a delete is kept after it was compacted first
    capture: str | None = None  # the capture that writes it: changes of a table of a database
    events: bool = False  # an event store: rows are appended by its judge alone, and frames stay small enough to read one row


class Sender(NamedTuple):
    """An idempotent producer's stamp. A lower epoch than the last one seen is fenced."""

    id: str
    epoch: int
    sequence: int
    gaps: bool = False  # numbers may be skipped, and no epoch begins with a lower one than the last (a flow's sink: its epochs)


class Appended(NamedTuple):
    base: int  # offset of the first row
    rows: int
    duplicate: bool  # the log had this (producer, sequence) already


@dataclass(frozen=True)
class Frame:
    """What a frame's header says. Times are microseconds; NEVER where there are none."""

    base: int
    count: int
    appended: int
    least: int  # event times of its rows
    greatest: int
    plausible: int  # greatest event time of its rows, also of those compacted away, that is not beyond appended + future
    mark: int  # the mark that stands behind its rows, NEVER if none
    time_before: int  # greatest plausible event time of all rows before it in the partition
    mark_before: int  # greatest mark before it
    sender: Sender | None = None
    where: tuple[int, int, int] = field(default=(0, 0, 0), compare=False)  # segment, position, length: the adapter's own
    gap: int = 0  # offsets between base and end that hold no row: compacted away, or used by the broker itself

    @property
    def end(self) -> int:
        return self.base + self.count + self.gap

    def touches(self, start: int, stop: int | None) -> bool:
        """It holds an offset in [start, stop); or, without rows, it stands at start, at stop or between."""
        if not self.count:
            return self.base >= start and (stop is None or self.base <= stop)
        return self.end > start and (stop is None or self.base < stop)

    @property
    def time_after(self) -> int:
        return max(self.time_before, self.plausible)

    @property
    def mark_after(self) -> int:
        return max(self.mark_before, self.mark)


class Chunk(NamedTuple):
    """The rows of one whole frame, with the columns it stores (core/columns.py)."""

    frame: Frame
    rows: pa.RecordBatch

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each row."""
        if OFFSET in self.rows.schema.names:
            return np.asarray(self.rows.column(OFFSET).to_numpy(), np.int64)
        return np.arange(self.frame.base, self.frame.base + self.frame.count, dtype=np.int64)

    @property
    def appended(self) -> npt.NDArray[np.int64]:
        """The append time of each row."""
        if APPENDED in self.rows.schema.names:
            return np.asarray(self.rows.column(APPENDED).to_numpy(), np.int64)
        return np.full(self.frame.count, self.frame.appended, np.int64)


class End(NamedTuple):
    """One partition now."""

    first: int  # the oldest offset still there
    next: int  # the offset the next row will get
    appended: int = NEVER  # append time of the last frame, NEVER if there is none
    time: int = NEVER  # greatest plausible event time
    mark: int = NEVER  # greatest mark


class Topic(Protocol):
    """One topic. Safe to use from several processes at once; readers see whole frames only."""

    @property
    def spec(self) -> TopicSpec: ...

    @property
    def id(self) -> str:
        """Made when the topic was created: delete and create gives another one."""
        ...

    @property
    def headers(self) -> bool:
        """Whether `frames` knows times and marks without reading the rows. Where not, it only cuts ranges into pieces whose times
        are NEVER, and the chunks of `read` know them: a chunk ends where a mark stands, and knows the marks read before it."""
        ...

    def append(
        self, partition: int, rows: "pa.RecordBatch | CheckedRows | None", *, mark: int = NEVER, sender: Sender | None = None
    ) -> Appended:
        """Adds one frame of rows and, behind them, a mark: all or nothing. Returns once it is as durable as the topic says.

        Rows have the columns that a topic stores (core/columns.py) and are checked; those that `Intake` checked are taken as
        they are (`RowCheck.checked` tells them apart). None (with a mark): a mark alone. A sender's sequence that is there
        already returns the first offset and adds nothing; a gap raises SequenceGap, an old epoch Fenced."""
        ...

    def frames(self, partition: int, start: int = 0, stop: int | None = None) -> Sequence[Frame]:
        """The headers of the frames that hold any offset in [start, stop) (None: to the end), and of the frames without rows
        (marks) that stand at start, at stop or between. OffsetGone where start was removed."""
        ...

    def read(
        self, partition: int, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        """The whole frames that hold offsets from start to stop, checked against their CRC. Frames without rows are left
        out. columns: only these (and system columns, where they are there). Columns added to the schema later are null.
        OffsetGone where start was removed. Offsets may have gaps: ask the chunk for them. Chunks follow each other: an offset that
        holds no row is inside a frame, in its gap, or lies where the topic says that it has compacted (`Compacted`)."""
        ...

    def ends(self) -> dict[int, End]:
        """First and next offset of every partition."""
        ...

    def senders(self, partition: int) -> Mapping[str, Sender]:
        """The last stamp of every producer that the partition remembers, by its id."""
        ...


@runtime_checkable
class Searching(Protocol):
    """A topic that finds a time without a look at every frame."""

    def reaching(self, partition: int, since: int) -> int | None:
        """The first offset of the first frame that has a row of this event time or later; None if there is none."""
        ...


class Judge(Protocol):
    """Says what is appended to a partition, while nobody else can append to it."""

    def __call__(self, end: "End", since: "Callable[[int], Iterator[Chunk]]") -> "pa.RecordBatch | CheckedRows | None":
        """Called in the partition's writer, under its lock. end: the partition now; since: the acknowledged rows from an offset on,
        in whole frames, as far as they are still there. None: nothing is appended. What it raises the caller gets."""
        ...


@runtime_checkable
class Judged(Protocol):
    """A topic whose writer asks a judge, under the lock of the partition: a compare-and-append."""

    def append_judged(self, partition: int, judge: Judge) -> Appended | None:
        """Appends, as one frame, the rows that the judge gives; None if it gives none. Whatever the judge has read, nothing was
        appended behind it when its rows are. Returns once they are as durable as the topic says."""
        ...

    def end(self, partition: int) -> End:
        """One partition now, as `ends` says it of all."""
        ...

    def read_at(self, partition: int, offsets: Sequence[int], columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        """The whole frames that hold these offsets, which ascend; each once. What it costs does not grow with the topic. Offsets
        that were removed are left out."""
        ...


class JudgedTopic(Topic, Judged, Protocol):
    """A topic that asks a judge."""


class Part(NamedTuple):
    """What goes to one partition: rows, a mark behind them, or both."""

    partition: int
    rows: "pa.RecordBatch | CheckedRows | None"
    mark: int = NEVER


@runtime_checkable
class Together(Protocol):
    """A topic that takes frames for several partitions at once, because its broker has transactions."""

    def append_together(self, parts: Sequence[Part], sender: Sender) -> None:
        """Adds a frame to each of the partitions: all of them or none, under one stamp. Partitions that have the stamp already
        get nothing; Fenced and SequenceGap as in `append`."""
        ...


class Removed(Protocol):
    """Records that are gone although a reader had not read them."""

    @property
    def reader(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def at(self) -> int: ...


@runtime_checkable
class Counting(Protocol):
    """A topic that knows how many rows are left, and what went unread."""

    def rows(self, partition: int) -> int:
        """How many rows there are: fewer than offsets where some were compacted away."""
        ...

    def lost(self, partition: int) -> Sequence[Removed]:
        """What retention removed lately although a reader had not read it."""
        ...


@runtime_checkable
class Compacted(Protocol):
    """A topic whose chunks need not follow each other, because records between them were compacted away."""

    def compacted_to(self, partition: int) -> int:
        """Up to here the log has compacted; from here on every offset holds a row."""
        ...


@runtime_checkable
class Adopting(Protocol):
    """A log whose topics may have been made by others."""

    def adopt(self, spec: TopicSpec) -> Topic:
        """Gives settings to a topic that is there and has none; AlreadyThere if it has."""
        ...


class Log(Protocol):
    """A broker's topics."""

    def create(self, spec: TopicSpec) -> Topic:
        """Makes a topic; AlreadyThere if there is one of that name."""
        ...

    def topic(self, name: str) -> Topic:
        """Opens a topic; NotFound (with the names that are close) if it is not there."""
        ...

    def topics(self) -> list[str]:
        """Names of all topics, sorted."""
        ...

    def delete(self, name: str) -> None:
        """Removes a topic with all its records; NotFound if it is not there."""
        ...

    def groups(self) -> "Groups":
        """Where the readers of this log keep how far they have come: beside its records, and as durable. BadInput where it has no
        place for them."""
        ...

    def evolve(self, name: str, schema: Schema) -> Topic:
        """Adds nullable columns at the end of a topic's schema; BadSchema with the reason for any other change."""
        ...
