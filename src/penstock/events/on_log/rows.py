"""Events as the rows of a topic."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.core.arrow import batch_of_rows
from penstock.core.columns import KEY
from penstock.core.position import Position
from penstock.core.record import Record
from penstock.core.schema import Schema
from penstock.errors import BadInput, BadRow
from penstock.events.event import About, Append, NewEvent, StoredEvent
from penstock.log.intake.checked import CheckedRows, RowCheck
from penstock.log.intake.stored_rows import SYSTEM, physical
from penstock.log.port import Chunk, TopicSpec

SCHEMA = Schema.of(
    "stream string not null, version long not null, event string not null, number int not null, id string not null,"
    " at timestamp not null, data string not null, who string, correlation string, causation string"
)
STREAM, VERSION, ID, AT = "stream", "version", "id", "at"
HEADS = (STREAM, VERSION, ID, AT)  # what the index is made of
_KEYED = 1 << [field.name for field in SYSTEM].index(KEY)
_STORED = pa.struct(list(physical(SCHEMA, _KEYED)))
_FIXED = 64  # bytes of a row beside its texts, at most


class Row(NamedTuple):
    """An event that has got its version."""

    stream: str
    version: int
    at: int
    event: NewEvent


def topic_spec(name: str, partitions: int = 1, compact: bool = False) -> TopicSpec:
    """The settings of the topic of a new store."""
    return TopicSpec(name, partitions, SCHEMA, time=AT, key=STREAM, events=True, compact=compact)


def check_topic(spec: TopicSpec) -> None:
    """Refuses a topic that is no store."""
    if not spec.events:
        raise BadInput(f"topic {spec.name} is no event store: it was made for other rows", hint="open a store of another name")


def check_sizes(appends: Sequence[Append], most: int) -> int:
    """Bytes of all events; BadRow if one of them is too large for a record."""
    total = 0
    for append in appends:
        for event in append.events:
            texts = (append.stream, append.stream, event.name, event.id, event.data, *event.about)
            size = _FIXED + sum(len(text.encode()) for text in texts if text)
            if size > most:
                what = f"event {event.name} for stream {append.stream!r} has about {size:,} bytes; the limit is {most:,}"
                raise BadRow(what, hint="store the large part elsewhere and its address here, or alter the topic's record limit")
            total += size
    return total


def encode(rows: Sequence[Row], check: RowCheck) -> CheckedRows:
    """The rows of one frame; their sizes were checked."""
    values = [
        (stream, version, event.name, event.number, event.id, at, event.data, *event.about, stream.encode())
        for stream, version, at, event in rows
    ]
    return check.as_stored(batch_of_rows(values, _STORED), _KEYED)


def decode(topic: str, partition: int, chunks: Sequence[Chunk], stream: str | None = None) -> Iterator[StoredEvent]:
    """The events of frames, of one stream or of all. Small frames are put together first: each costs as much as many rows do."""
    if not chunks:
        return
    offsets, table = _together(chunks)
    if stream is not None and table.num_rows:
        mine = [place for place, name in enumerate(table.column(STREAM).to_pylist()) if name == stream]
        if len(mine) < len(offsets):
            table, offsets = table.take(mine), [offsets[place] for place in mine]
    columns = {name: table.column(name) for name in SCHEMA.names}
    columns[AT] = columns[AT].cast(pa.int64())
    values = (column.to_pylist() for column in columns.values())
    for offset, (name, version, event, number, id, at, data, *about) in zip(offsets, zip(*values, strict=True), strict=True):
        yield StoredEvent(name, version, event, number, id, at, data, About(*about), Position(topic, partition, offset))


def _together(chunks: Sequence[Chunk]) -> tuple[list[int], pa.Table]:
    """The rows of frames, and the offset of each. Frames that were never rewritten have just the columns of `encode`."""
    if all(chunk.rows.num_columns == len(_STORED) for chunk in chunks):
        numbers = [offset for chunk in chunks for offset in range(chunk.frame.base, chunk.frame.base + chunk.frame.count)]
        return numbers, pa.Table.from_batches([chunk.rows for chunk in chunks]).combine_chunks()
    numbers = [offset for chunk in chunks for offset in chunk.offsets.tolist()]
    return numbers, pa.Table.from_batches([chunk.rows.select(SCHEMA.names) for chunk in chunks]).combine_chunks()


def stored_in(record: Record) -> StoredEvent:
    """The event of a record, as a consumer reads it."""
    if not isinstance(record.value, Mapping) or not set(SCHEMA.names) <= set(record.value):
        raise BadInput(f"{record.position} is no event", hint="read the topic of an event store")
    row = record.value
    about = About(row["who"], row["correlation"], row["causation"])
    known = (row["stream"], row["version"], row["event"], row["number"], row["id"], record.time, row["data"])
    return StoredEvent(*known, about, record.position)
