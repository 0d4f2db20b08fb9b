"""Fetched records as the chunks that readers of a log get: rows in columns, marks taken out, misfits with their reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import array_of, one_array
from penstock.core.change import Op
from penstock.core.columns import APPENDED, BAD, KEY, OFFSET, OP, RAW, VALUE
from penstock.core.schema import Schema
from penstock.core.time import NEVER, micros
from penstock.log.intake.codec import Decoded, event_times
from penstock.log.intake.stored_rows import SYSTEM
from penstock.log.kafka.headers import deletes_in, marks_of, system_columns
from penstock.log.kafka.read.fetching import Fetched, Headers, Numbers
from penstock.log.kafka.values.codecs import Codec
from penstock.log.port import Chunk, Frame, TopicSpec

_ORDER = [field.name for field in SYSTEM]


@dataclass
class Reading:
    """One read of one partition: what its chunks have shown so far."""

    spec: TopicSpec
    codec: Codec | None
    columns: Sequence[str] | None
    mark: int = NEVER
    time: int = NEVER
    appended: int = NEVER

    def chunks(self, found: Fetched) -> Iterator[Chunk]:
        """A chunk ends where a mark stands, and the next one begins there: offsets that hold nothing are in their gaps. One without
        rows tells of a mark that has none before it, or of such offsets alone."""
        marks = marks_of(found.headers)
        begin, base = 0, found.since
        rows = self._rows(found, marks)
        taken = 0
        for i in [*sorted(marks), len(found)]:
            count, mark = i - begin, marks.get(i, NEVER)
            end = int(found.offsets[i + 1]) if i + 1 < len(found) else found.upto
            if end > base:
                yield self._chunk(rows.slice(taken, count), found, begin, i, base, end, mark)
            taken, begin, base = taken + count, i + 1, end

    def _rows(self, found: Fetched, marks: dict[int, int]) -> pa.RecordBatch:
        if marks:
            keep = np.ones(len(found), bool)
            keep[list(marks)] = False
            places = np.cumsum(keep) - 1
            headers = found.headers.where(keep[found.headers.rows])
            headers = Headers(places[headers.rows], headers.names, headers.values)
            mask = pa.array(keep)
            found = Fetched(found.offsets[keep], found.times[keep], found.keys.filter(mask), found.values.filter(mask), headers)
        return _batch(self.spec, self.codec, found)

    def _chunk(self, rows: pa.RecordBatch, found: Fetched, start: int, stop: int, base: int, end: int, mark: int) -> Chunk:
        offsets, appended = found.offsets[start:stop], found.times[start:stop] * 1000
        count = len(offsets)
        if len(found):
            self.appended = max(self.appended, int(found.times[min(stop, len(found) - 1)]) * 1000)
        least = greatest = plausible = NEVER
        if count:
            least, greatest, plausible = _times(self.spec, rows, appended)
            rows = _with_places(_selected(rows, self.columns), offsets, appended, base, self.appended)
        frame = Frame(base, count, self.appended, least, greatest, plausible, mark, self.time, self.mark, gap=end - base - count)
        self.mark, self.time = frame.mark_after, frame.time_after
        return Chunk(frame, rows)


def says_nothing(chunk: Chunk) -> bool:
    """Neither row nor mark, only offsets that hold none."""
    return not chunk.frame.count and chunk.frame.mark == NEVER


def _times(spec: TopicSpec, rows: pa.RecordBatch, appended: Numbers) -> tuple[int, int, int]:
    """Least, greatest and greatest plausible event time of the rows that could be read."""
    times = event_times(rows, spec, appended)
    if BAD in rows.schema.names:
        fine = rows.column(BAD).is_null().to_numpy(zero_copy_only=False)
        times, appended = times[fine], appended[fine]
    if not len(times):
        return NEVER, NEVER, NEVER
    below = times if spec.writer else times[times <= appended + micros(spec.future)]
    return int(times.min()), int(times.max()), int(below.max()) if len(below) else NEVER


def _selected(rows: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """The columns asked for and the system columns; where that is nothing at all, the keys, which are null."""
    names = [name for name in rows.schema.names if columns is None or name in columns or name.startswith("__")]
    return rows.select(names) if names else pa.record_batch({KEY: pa.nulls(rows.num_rows, pa.binary())})


def _with_places(rows: pa.RecordBatch, offsets: Numbers, appended: Numbers, base: int, latest: int) -> pa.RecordBatch:
    count = len(offsets)
    if offsets[-1] - base != count - 1:
        rows = rows.append_column(OFFSET, pa.array(offsets))
    if appended.min() != latest:
        rows = rows.append_column(APPENDED, pa.array(appended))
    return rows


def _batch(spec: TopicSpec, codec: Codec | None, found: Fetched) -> pa.RecordBatch:
    """The columns of the topic and the system columns."""
    count = len(found)
    system = system_columns(found.headers, count, flow=spec.writer is not None, timed=spec.schema is None or not spec.time)
    if found.keys.null_count < count:
        system[KEY] = found.keys
    if codec is None or spec.schema is None:
        user, loose = {VALUE: found.values}, False
    else:
        gone = deletes_in(found.headers) | set(np.flatnonzero(found.values.is_null().to_numpy(zero_copy_only=False)).tolist())
        user = _decoded(codec.decode(found.values, spec.schema, gone), spec.schema, count)
        if found.values.null_count and spec.key:
            user |= _keyed(user, found, spec)
        bad = {i for i, reason in enumerate(user[BAD].to_pylist()) if reason is not None} if BAD in user else set()
        if gone - bad:
            system[OP] = pa.array([int(Op.DELETE) if i in gone - bad else None for i in range(count)], pa.int8())
        if bad:
            system[BAD], system[RAW] = user.pop(BAD), found.values
        loose = bool(gone or bad)
    fields = [_field(spec.schema, name, array, loose) for name, array in user.items()]
    ordered = [name for name in (*_ORDER, BAD, RAW) if name in system]
    fields += [pa.field(name, system[name].type) for name in ordered]
    return pa.RecordBatch.from_arrays([*user.values(), *(system[name] for name in ordered)], schema=pa.schema(fields))


def _keyed(user: dict[str, pa.Array], found: Fetched, spec: TopicSpec) -> dict[str, pa.Array]:
    """Records without value: their key column says which row is gone, where its text is a value of the column."""
    key = spec.key or ""
    if spec.schema is None or key not in spec.schema:
        return {}
    try:
        named = found.keys.cast(pa.string()).cast(spec.schema.type(key))
    except pa.ArrowException:
        return {}
    return {key: pc.if_else(found.values.is_null(), named, user[key])}


def _field(schema: Schema | None, name: str, column: pa.Array, loose: bool) -> pa.Field:
    found: pa.Field = schema.arrow.field(name) if schema else pa.field(name, column.type)
    return found.with_nullable(True) if loose else found


def _decoded(decoded: Decoded, schema: Schema, count: int) -> dict[str, pa.Array]:
    """One array a column, of all records; where some were refused, null in their place and the reasons beside them."""
    table = decoded.table.combine_chunks()
    arrays = {name: one_array(table.column(name)) for name in schema.names}
    if not decoded.rejected:
        return arrays
    places, missing = np.zeros(count, np.int64), np.ones(count, bool)
    places[decoded.kept], missing[decoded.kept] = np.arange(len(decoded.kept)), False
    at = array_of(places, absent=missing)
    arrays = {name: array.take(at) for name, array in arrays.items()}
    reasons = {r.index: r.reason for r in decoded.rejected}
    return arrays | {BAD: pa.array([reasons.get(i) for i in range(count)], pa.string())}
