"""2. Read: rows of the log, decoded, with W(r) stamped on each; the dead and the implausible are taken out."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import array_of, buffer_of, filled, table_of
from penstock.core.columns import ADDRESS, APPEND_TIME, BAD, BEFORE, EVENT_TIME, KEY, OP, POSITION, RAW, TIME, VALUE, WATERMARK
from penstock.core.position import database_positions, source_positions
from penstock.core.schema import TIMESTAMP
from penstock.core.time import FIRST, FOREVER, LAST, NEVER
from penstock.engine.source.clocks import DeviceClocks, times_of
from penstock.engine.source.spec import SourceSpec
from penstock.engine.source.table_changes import versions_of
from penstock.kernels.judging import watermarks
from penstock.kernels.port import Fates
from penstock.log.accounting import Account, RangeAccount
from penstock.log.intake.codec import decode_json
from penstock.log.intake.stored_rows import deletes_of
from penstock.log.port import Chunk, Frame, Topic

_SHIFT = 44
_IMPLAUSIBLE = "its time lies too far beyond its append time, or outside the years 1 to 9999"
_CLOCK = "its time, set right, lies too far from its append time: the clock of its device cannot be explained"
_DELETE = "a delete: a stream takes rows that stay; flow.table reads the topic with its deletes"
_BACK = 1_000  # offsets within which the record before another is looked for
PIECE = 1_000_000  # rows that are taken through the first level at once

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Range(NamedTuple):
    """What one task reads of one partition."""

    step: str
    partition: int
    start: int
    stop: int
    floor: int  # the engine's own marks up to here
    time: int  # greatest plausible time before start; only where headers cannot say


class Dead(NamedTuple):
    """A row that goes no further."""

    offset: int
    reason: str
    value: bytes
    appended: int


@dataclass
class Read:
    """Rows of one partition, ready for the first step."""

    rows: pa.Table | None  # None: there was nothing but marks
    fates: Fates
    dead: list[Dead]
    time: int  # greatest plausible event time up to the end
    mark: int = NEVER  # greatest mark up to the end, as far as it was read; only where headers cannot say
    account: Account = field(default_factory=dict)  # of the whole range, with its last piece


def read(topic: Topic, spec: SourceSpec, span: Range, clocks: DeviceClocks | None = None) -> Iterator[Read]:
    """The rows of a range, a large piece at a time; the last one says what became of every offset. clocks: what the epochs before
    have learned; None: begin anew."""
    chunks: list[Chunk] = []
    clocks = clocks or (DeviceClocks(spec.clock) if spec.clock else None)
    held, carry, before, mark = 0, span.time, None, NEVER
    account = RangeAccount(topic, span.partition, span.start, span.stop)
    for chunk in topic.read(span.partition, span.start, span.stop, _physical(spec)):
        account.take(chunk)
        mark = max(mark, chunk.frame.mark_after) if spec.blind else NEVER
        if not chunk.frame.count:
            continue
        if not chunks and before is None and spec.placed:
            before = _record_before(topic, spec, span, chunk)
        chunks.append(chunk)
        held += chunk.frame.count
        if held >= PIECE:
            piece = replace(_read_piece(spec, span, chunks, carry, clocks, before), mark=mark)
            carry, before, chunks, held = piece.time, _last_record(chunk), [], 0
            yield piece
    counts = account.close()
    if chunks:
        yield replace(_read_piece(spec, span, chunks, carry, clocks, before), mark=mark, account=counts)
    else:
        yield Read(None, Counter(), [], carry, mark, counts)


def _physical(spec: SourceSpec) -> list[str]:
    if spec.raw:
        return [VALUE]
    if spec.envelope:
        return list(spec.envelope)
    return list(dict.fromkeys([*spec.reads, *([spec.time] if spec.time else [])]))


def _record_before(topic: Topic, spec: SourceSpec, span: Range, chunk: Chunk) -> pa.Table | None:
    """The record before a range, where what the first of its records means depends on it."""
    base = chunk.frame.base
    if not spec.raw or base <= topic.ends()[span.partition].first or chunk.rows.column(VALUE)[0].as_py() is not None:
        return None
    start = max(topic.ends()[span.partition].first, base - _BACK)  # what lies between may be compacted away
    before = [c for c in topic.read(span.partition, start, base, _physical(spec)) if c.frame.count and c.offsets[0] < base]
    return _last_record(before[-1]) if before else None


def _last_record(chunk: Chunk) -> pa.Table:
    return pa.Table.from_batches([chunk.rows.slice(chunk.rows.num_rows - 1)])


@dataclass
class _Rows:
    """Consecutive rows of one partition: whole frames where headers know W, else just those of the range."""

    table: pa.Table
    offsets: Times
    appended: Times
    times: Times
    alive: Mask  # False: cannot be decoded, or has no time
    reasons: dict[int, str]  # of those
    explained: Mask | None = None  # False: the clock of its device cannot be explained
    made: Mapping[str, pa.Array] = field(default_factory=dict)  # columns that are not in the topic
    ops: npt.NDArray[np.int8] | None = None  # of versions of a table: put in or taken out
    places: pa.Array | None = None  # in the database they come from


def _read_piece(
    spec: SourceSpec, span: Range, chunks: list[Chunk], carry: int, clocks: DeviceClocks | None, before: pa.Table | None
) -> Read:
    frames = [c.frame for c in chunks]
    table, offsets, appended = _gathered(chunks)
    if not spec.headers:  # rows before the range are in the carry already
        first, stop = np.searchsorted(offsets, [span.start, span.stop])
        table, offsets, appended = table.slice(first, stop - first), offsets[first:stop], appended[first:stop]
    values = table.column(VALUE) if spec.raw else None
    if spec.versions:
        rows = _versions(spec, table, offsets, appended, before)
    else:
        rows = _decoded(spec, table, offsets, appended) if spec.raw else _typed(spec, table, offsets, appended)
    if BAD in table.column_names:
        rows = _without_unreadable(rows, table)
    if clocks:
        fixed = clocks.fix(rows.table, rows.times, rows.alive, appended)
        rows = replace(rows, times=fixed.times, explained=fixed.plausible, made=fixed.columns)
    stamps, plausible = _stamped(spec, span, frames, rows, carry)
    if BEFORE in table.column_names and spec.headers and spec.lateness is not None:
        stamps = np.maximum(stamps, _moved_by_what_is_gone(table, spec.lateness))
    inside = (offsets >= span.start) & (offsets < span.stop)
    implausible = inside & rows.alive & ~plausible
    kept = inside & rows.alive & plausible
    masks = {"in": inside, "dead": inside & ~rows.alive, "implausible": implausible, "passed": kept}
    fates: Fates = Counter({fate: int(mask.sum()) for fate, mask in masks.items()})
    reasons = rows.reasons | dict.fromkeys(np.flatnonzero(implausible).tolist(), _CLOCK if clocks else _IMPLAUSIBLE)
    dead = [
        Dead(int(offsets[i]), reason, _value(values, table, i), int(appended[i]))
        for i, reason in sorted(reasons.items())
        if inside[i]
    ]
    out = _logical(spec, rows, table, stamps, span.partition)
    seen = rows.times[plausible & (rows.alive | spec.ahead)]
    return Read(out if kept.all() else out.filter(pa.array(kept)), fates, dead, max(carry, int(seen.max())) if len(seen) else carry)


def _gathered(chunks: list[Chunk]) -> tuple[pa.Table, Times, Times]:
    """The chunks as one table, with the offset and append time of every row."""
    alike = all(c.rows.schema == chunks[0].rows.schema for c in chunks)
    batches = [c.rows for c in chunks]
    table = pa.Table.from_batches(batches) if alike else _promoted(batches)
    return table, np.concatenate([c.offsets for c in chunks]), np.concatenate([c.appended for c in chunks])


def _promoted(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="default")


def _without_unreadable(rows: _Rows, table: pa.Table) -> _Rows:
    """Records that their topic's codec could not read are dead, with its reason."""
    reasons = {i: reason for i, reason in enumerate(table.column(BAD).to_pylist()) if reason is not None}
    alive = rows.alive.copy()
    alive[list(reasons)] = False
    return replace(rows, alive=alive, reasons=rows.reasons | reasons)


def _versions(spec: SourceSpec, table: pa.Table, offsets: Times, appended: Times, before: pa.Table | None) -> _Rows:
    """Records of a table: every one says what becomes of the row that its key names."""
    said, times, alive = versions_of(spec, table, appended, before)
    return _Rows(said.table, offsets, appended, times, alive, said.reasons, ops=said.ops, places=said.places)


def _typed(spec: SourceSpec, table: pa.Table, offsets: Times, appended: Times) -> _Rows:
    name = spec.time if spec.time and spec.time in table.column_names else EVENT_TIME
    times, alive = _times(table, "" if spec.append else name, appended)
    reasons = {int(i): f"no event time in column {name!r}" for i in np.flatnonzero(~alive)}
    gone = deletes_of(table, raw=False)
    if gone is not None:
        times = np.where(alive, times, appended)  # as frame headers have it: only a delete may be without
        alive, reasons = alive & ~gone, reasons | {int(i): _DELETE for i in np.flatnonzero(gone)}
    return _Rows(table, offsets, appended, times, alive, reasons)


def _decoded(spec: SourceSpec, table: pa.Table, offsets: Times, appended: Times) -> _Rows:
    """JSON values as columns; a value that does not fit is dead, with its reason."""
    decoded = decode_json(table.column(VALUE), spec.schema)
    n, kept = table.num_rows, decoded.kept
    alive = np.zeros(n, bool)
    alive[kept] = True
    reasons = {r.index: r.reason for r in decoded.rejected}
    rows = decoded.table
    if len(kept) < n:
        places = np.zeros(n, np.int64)
        places[kept] = np.arange(len(kept))
        rows = rows.take(array_of(places, absent=~alive))
    if spec.headers:  # the producer took the time out; W must not depend on what else is wrong with a row
        times, timed = _times(table, EVENT_TIME, appended)
        times = np.where(timed, times, appended)  # as frame headers have it: only a delete may be without
    else:
        times, timed = _times(rows, spec.time or "", appended)
    reasons |= {int(i): f"no event time in field {spec.time!r}" for i in np.flatnonzero(alive & ~timed)}
    gone = deletes_of(table, raw=True)
    if gone is not None:
        reasons |= {int(i): _DELETE for i in np.flatnonzero(gone)}
    return _Rows(rows, offsets, appended, times, alive & timed, reasons)


def _times(table: pa.Table, name: str, appended: Times) -> tuple[Times, Mask]:
    """Event times, and which rows have one; without such a column it is the append time."""
    if name not in table.column_names:
        return appended, np.ones(len(appended), bool)
    return times_of(table, name)


def _stamped(spec: SourceSpec, span: Range, frames: Sequence[Frame], rows: _Rows, carry: int) -> tuple[Times, Mask]:
    """W of every row: from frame headers where they know it, else from what was read before."""
    before = frames[0].time_before if spec.headers else carry
    start = max(span.floor, frames[0].mark_before)
    if spec.lateness is not None and before > NEVER:
        start = max(start, before - spec.lateness)
    marks = [(int(np.searchsorted(rows.offsets, f.base)), f.mark_before) for f in frames[1:] if f.mark_before > start]
    if spec.headers and spec.lateness is not None:
        marks += _behind_gaps(rows.offsets, frames, spec.lateness)
    counts = rows.alive if rows.explained is None else rows.alive & rows.explained
    times = rows.times if spec.ahead else np.where(counts, rows.times, NEVER)
    stamps, plausible, _ = watermarks(times, rows.appended, start, LAST if spec.written else spec.future, spec.lateness, marks)
    plausible &= (rows.times >= FIRST) & (rows.times <= LAST)
    return stamps, plausible if rows.explained is None else plausible & rows.explained


def _behind_gaps(offsets: Times, frames: Sequence[Frame], lateness: int) -> list[tuple[int, int]]:
    """(row, W) where a frame does not follow the one before it: rows between them that were compacted away have moved time."""
    return [
        (int(np.searchsorted(offsets, after.base)), after.time_before - lateness)
        for before, after in pairwise(frames)
        if (before.gap or after.base != before.end) and after.time_before > NEVER
    ]


def _moved_by_what_is_gone(table: pa.Table, lateness: int) -> Times:
    """The least W of each row by the times of rows before it that were compacted away."""
    known = np.asarray(filled(table.column(BEFORE), NEVER).to_numpy(), np.int64)
    return np.where(known > NEVER, known - lateness, NEVER)


def _logical(spec: SourceSpec, rows: _Rows, stored: pa.Table, stamps: Times, partition: int) -> pa.Table:
    """The columns that steps read, and the system columns."""
    made = dict(rows.made)
    if spec.append_time:
        made[spec.append_time] = pa.array(rows.appended).cast(TIMESTAMP)
    columns = {name: pa.chunked_array([made[name]]) if name in made else rows.table.column(name) for name in spec.columns}
    columns[TIME] = pa.chunked_array([pa.array(rows.times)])
    columns[WATERMARK] = pa.chunked_array([pa.array(stamps)])
    if spec.written and not spec.changelog:
        columns[POSITION] = stored.column(POSITION)
        columns[ADDRESS] = addresses(partition, rows.offsets)
        if not spec.versions:
            own = filled(stored.column(WATERMARK), NEVER)
            columns[WATERMARK] = pc.if_else(pa.array(stamps >= FOREVER), FOREVER, own)  # behind an end derived rows are late, too
    elif rows.places is not None:
        in_the_log = source_positions(spec.topic, partition, rows.offsets)
        columns[POSITION] = pa.chunked_array([database_positions(rows.places, in_the_log)])
    else:
        columns[ADDRESS] = addresses(partition, rows.offsets)
    if rows.ops is not None:
        columns[OP] = pa.chunked_array([pa.array(rows.ops)])
    if spec.appended:
        columns[APPEND_TIME] = pa.chunked_array([pa.array(rows.appended)])
    return table_of(columns)


def addresses(partition: int, offsets: Times) -> pa.ChunkedArray:
    """ADDRESS of records of one partition."""
    return pa.chunked_array([pa.array(offsets + (np.int64(partition) << _SHIFT))])


def _value(values: pa.ChunkedArray | None, table: pa.Table, index: int) -> bytes:
    """The record as a letter shows it; of a raw one its text, and where it has none its key."""
    if RAW in table.column_names and table.column(BAD)[index].is_valid:
        return table.column(RAW)[index].as_py() or b""
    if values is not None and values[index].is_valid:
        raw: bytes = values[index].as_py()
        return raw
    if values is not None:
        key = table.column(KEY)[index].as_py() if KEY in table.column_names else None
        return key or b""
    return repr(table.slice(index, 1).to_pylist()[0]).encode()


def positioned(rows: pa.Table, topic: str | None) -> pa.Table:
    """The rows with POSITION, made from their ADDRESS in the topic where it is not there yet."""
    if POSITION in rows.column_names or topic is None:
        return rows
    return rows.append_column(POSITION, _positions(rows, topic))


def _positions(rows: pa.Table, topic: str) -> pa.Array:
    at = rows.column(ADDRESS).to_numpy()
    return source_positions(topic, at >> _SHIFT, at & ((np.int64(1) << _SHIFT) - 1))


def late_positioned(rows: pa.Table, topic: str | None) -> pa.Table:
    """The rows with the POSITION of those behind their watermark, empty for all others: few are, and each costs some bytes."""
    if POSITION in rows.column_names or topic is None:
        return rows
    behind = rows.column(TIME).to_numpy() < rows.column(WATERMARK).to_numpy()
    made = _positions(rows.select([ADDRESS]).filter(pa.array(behind)), topic)
    width = len(made[0].as_py()) if len(made) else 0
    ends = np.zeros(rows.num_rows + 1, np.int32)
    np.cumsum(behind, out=ends[1:])
    data = made.buffers()[2] if len(made) else pa.py_buffer(b"")
    positions = pa.Array.from_buffers(pa.binary(), rows.num_rows, [None, buffer_of(ends * np.int32(width)), data])
    return rows.append_column(POSITION, positions)
