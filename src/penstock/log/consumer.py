"""Reads a topic: from an offset, from the earliest row, from a time, to the present, or on and on.

A time as start means event time: of every partition the rows of that time or later, from the first frame that has one, however they
are mixed with older ones. A time as stop means the rows before it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.core.columns import (
    HEADERS,
    KEY,
    SHOWN_APPEND_TIME,
    SHOWN_HEADERS,
    SHOWN_KEY,
    SHOWN_OFFSET,
    SHOWN_OP,
    SHOWN_PARTITION,
    SHOWN_TIME,
    VALUE,
)
from penstock.core.record import Record
from penstock.core.schema import TIMESTAMP
from penstock.core.time import FOREVER, NEVER, instant, micros
from penstock.errors import BadInput, OffsetGone
from penstock.log.accounting import RangeAccount
from penstock.log.intake.codec import event_times
from penstock.log.intake.deletes import DELETE
from penstock.log.intake.stored_rows import SYSTEM, deletes_of
from penstock.log.port import Chunk, End, Searching, Topic, TopicSpec

Where = Literal["earliest", "latest"] | int | datetime | Mapping[int, int]

_BESIDE = (SHOWN_PARTITION, SHOWN_OFFSET, SHOWN_KEY, SHOWN_TIME, SHOWN_APPEND_TIME, SHOWN_HEADERS, SHOWN_OP)
POLL = 0.02  # seconds between two looks at the end of a topic
_SYSTEM = {f.name for f in SYSTEM}
_HEADERS_TYPE = next(f.type for f in SYSTEM if f.name == HEADERS)


@dataclass(frozen=True)
class _Range:
    """What is wanted of one partition: offsets, and event times in [since, until)."""

    start: int
    stop: int | None
    since: int
    until: int
    due: int = 0  # how far the offsets from start on are known to be there


def read(
    topic: Topic,
    *,
    partitions: Sequence[int] | None = None,
    start: Where = "earliest",
    stop: Where | None = "latest",
    follow: bool = False,
    whole: bool = False,
    columns: Sequence[str] | None = None,
    stop_when: Callable[[], bool] = lambda: False,
) -> Iterator[pa.Table]:
    """The rows, a table a frame, partitions in turn: the topic's columns (raw: `value`), then partition, offset, key, time,
    append_time, headers and op, which is "delete" where a record says that the row of its key is gone. Where a column of the topic
    has one of these names, that one is written `_offset` and so on.

    columns: only these. follow: waits for more rows (a stop, if one is given, still ends it) until `stop_when` says so. whole: the
    offsets up to stop are known to be there. Unreachable if the log gives less than it said that it has (G29)."""
    names = _wanted(topic.spec, columns)
    ranges = _ranges(topic, partitions, start, None if follow and stop == "latest" else stop, follow)
    due = {} if follow else {n: r.stop if whole and r.stop is not None else r.due for n, r in ranges.items()}
    while True:
        found = False
        for partition in _grown(topic, ranges) if follow else list(ranges):
            for chunk in _accounted(topic, partition, ranges[partition], columns, due.get(partition, 0)):
                found = True
                table = _logical(topic.spec, partition, chunk, ranges[partition])
                ranges[partition] = replace(ranges[partition], start=max(ranges[partition].start, chunk.frame.end))
                if table.num_rows:
                    yield table.select(names)
                if stop_when():
                    return
        ranges = {p: r for p, r in ranges.items() if r.stop is None or r.start < r.stop}
        if not follow or not ranges or stop_when():
            return
        if not found:
            time.sleep(POLL)


def last_rows(topic: Topic, rows: int, partitions: Sequence[int] | None = None) -> dict[int, int]:
    """Where the last rows of each partition begin: a `start` for `read`. Looks back in growing steps, for offsets may have gaps."""
    ends = topic.ends()
    return {number: _last(topic, number, ends[number], rows) for number in (ends if partitions is None else partitions)}


def _last(topic: Topic, number: int, end: End, rows: int) -> int:
    reach = rows
    while True:
        start = max(end.first, end.next - reach)
        found = [chunk.offsets for chunk in topic.read(number, start, end.next, [])]
        offsets = np.concatenate([np.empty(0, np.int64), *found])
        offsets = offsets[(offsets >= start) & (offsets < end.next)]
        if len(offsets) >= rows:
            return int(offsets[-rows])
        if start == end.first:
            return start
        reach *= 16


def records(topic: Topic, **options: Any) -> Iterator[Record]:
    """The same, a record at a time; takes what `read` takes, but no columns."""
    for table in read(topic, **options):
        yield from as_records(topic.spec, table)


def as_records(spec: TopicSpec, table: pa.Table) -> Iterator[Record]:
    """The rows of a table that `read` gave with all its columns."""
    names = output_names(spec)
    system = [table.column(names[name]) for name in _BESIDE]
    system[3:5] = [column.cast(pa.int64()) for column in system[3:5]]
    values = table.select(spec.schema.names).to_pylist() if spec.schema else table.column(VALUE).to_pylist()
    for value, partition, offset, key, at, appended, headers, op in zip(values, *(c.to_pylist() for c in system), strict=True):
        yield Record(spec.name, partition, offset, key, value, at, appended, dict(headers or ()), op == DELETE)


def output_names(spec: TopicSpec) -> dict[str, str]:
    """How each column beside the topic's own is called in what is read."""
    own = set(spec.schema.names) if spec.schema else {VALUE}
    names = {}
    for name in _BESIDE:
        names[name] = name
        while names[name] in own:
            names[name] = "_" + names[name]
    return names


def _wanted(spec: TopicSpec, columns: Sequence[str] | None) -> list[str]:
    there = [*(spec.schema.names if spec.schema else [VALUE]), *output_names(spec).values()]
    for name in columns or ():
        if name not in there:
            raise BadInput(f"topic {spec.name} has no column {name!r}", f"there are {', '.join(there)}")
    return list(columns) if columns is not None else there


def _ranges(topic: Topic, partitions: Sequence[int] | None, start: Where, stop: Where | None, follow: bool) -> dict[int, _Range]:
    ends = topic.ends()
    for number in partitions or ():
        if number not in ends:
            raise BadInput(f"topic {topic.spec.name} has no partition {number}", f"it has 0 to {len(ends) - 1}")
    ranges = {n: _range(topic, n, ends[n], start, stop) for n in (partitions if partitions is not None else ends)}
    endless = follow and isinstance(stop, datetime)
    return {n: replace(wanted, stop=None) if endless else wanted for n, wanted in ranges.items()}


def _range(topic: Topic, number: int, end: End, start: Where, stop: Where | None) -> _Range:
    since = micros(instant(start)) if isinstance(start, datetime) else NEVER
    until = micros(instant(stop)) if isinstance(stop, datetime) else FOREVER
    first = end.first if since != NEVER else _offset(start, number, end)
    if first < end.first:
        raise OffsetGone(f"{topic.spec.name}/{number} starts at offset {end.first}; {first} is gone", hint="read from earliest")
    if since != NEVER:
        first = _reaching(topic, number, end, since)
    last = None if stop is None else end.next if isinstance(stop, datetime) else _offset(stop, number, end)
    return _Range(first, last, since, until, end.next if last is None else min(last, end.next))


def _reaching(topic: Topic, number: int, end: End, since: int) -> int:
    """Where the first frame begins that has a row of this time or later."""
    if isinstance(topic, Searching):
        found = topic.reaching(number, since)
    else:
        found = next((f.base for f in topic.frames(number, end.first) if f.count and f.greatest >= since), None)
    return end.next if found is None else max(found, end.first)


def _offset(where: Where, number: int, end: End) -> int:
    if where == "earliest":
        return end.first
    if where == "latest":
        return end.next
    if isinstance(where, Mapping):
        return where.get(number, end.first)
    if isinstance(where, int) and where >= 0:
        return where
    raise BadInput(f"{where!r} is not a position to read from or to", hint="give earliest, latest, an offset or a time")


def _grown(topic: Topic, ranges: Mapping[int, _Range]) -> list[int]:
    """The partitions that have rows not yet read."""
    ends = topic.ends()
    return [number for number, wanted in ranges.items() if wanted.start < ends[number].next]


def _accounted(topic: Topic, partition: int, wanted: _Range, columns: Sequence[str] | None, due: int) -> Iterator[Chunk]:
    """The chunks of a range, of which nothing may be missing up to the offset `due`."""
    account = RangeAccount(topic, partition, wanted.start, due)
    for chunk in _chunks(topic, partition, wanted, columns):
        account.take(chunk)
        yield chunk
    account.close()


def _chunks(topic: Topic, partition: int, wanted: _Range, columns: Sequence[str] | None) -> Iterator[Chunk]:
    if wanted.stop is not None and wanted.start >= wanted.stop:
        return
    own = topic.spec.schema.names if topic.spec.schema else [VALUE]
    needed = (
        [topic.spec.time] if topic.spec.schema else [VALUE] if columns and output_names(topic.spec)[SHOWN_OP] in columns else []
    )
    physical = None if columns is None else [name for name in own if name in columns or name in needed] or own[:1]  # rows, to count
    yield from topic.read(partition, wanted.start, wanted.stop, physical)


def _logical(spec: TopicSpec, partition: int, chunk: Chunk, wanted: _Range) -> pa.Table:
    """The rows of a frame that are wanted, with the names that people read."""
    rows, names = chunk.rows, output_names(spec)
    count, there = rows.num_rows, rows.schema.names
    times = event_times(rows, spec, chunk.appended)
    offsets = chunk.offsets
    columns = {name: rows.column(name) for name in there if name not in _SYSTEM}
    columns |= {
        names[SHOWN_PARTITION]: pa.array(np.full(count, partition, np.int32)),
        names[SHOWN_OFFSET]: pa.array(offsets),
        names[SHOWN_KEY]: rows.column(KEY) if KEY in there else pa.nulls(count, pa.binary()),
        names[SHOWN_TIME]: pa.array(times).cast(TIMESTAMP),
        names[SHOWN_APPEND_TIME]: pa.array(chunk.appended).cast(TIMESTAMP),
        names[SHOWN_HEADERS]: rows.column(HEADERS) if HEADERS in there else pa.nulls(count, _HEADERS_TYPE),
        names[SHOWN_OP]: _ops(rows, spec),
    }
    keep = (offsets >= wanted.start) & (times >= wanted.since) & (times < wanted.until)
    if wanted.stop is not None:
        keep &= offsets < wanted.stop
    table = pa.table(columns)
    return table if keep.all() else table.filter(pa.array(keep))


def _ops(rows: pa.RecordBatch, spec: TopicSpec) -> pa.Array:
    raw = spec.schema is None
    gone = None if raw and VALUE not in rows.schema.names else deletes_of(rows, raw)
    if gone is None:
        return pa.nulls(rows.num_rows, pa.string())
    return pa.array([DELETE if one else None for one in gone.tolist()], pa.string())
