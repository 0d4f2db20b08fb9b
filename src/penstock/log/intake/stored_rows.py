"""Rows on their way into a topic: the physical columns, checked, with their event times."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.change import Op
from penstock.core.schema import TIMESTAMP, Schema, type_text
from penstock.core.time import FIRST, FOREVER, LAST, NEVER, duration_text, micros, text
from penstock.errors import BadInput, BadRow, BadSchema, BadTime
from penstock.log.intake.sizes import row_sizes
from penstock.log.port import APPENDED, BEFORE, EVENT_TIME, HEADERS, KEY, OFFSET, OPS, ORIGIN, VALUE, WATERMARK, TopicSpec

# Their order is their order in a stored batch and that of the bits in a frame's header.
SYSTEM = (
    pa.field(KEY, pa.binary()),
    pa.field(HEADERS, pa.map_(pa.string(), pa.binary())),
    pa.field(EVENT_TIME, TIMESTAMP),
    pa.field(ORIGIN, pa.binary()),
    pa.field(WATERMARK, pa.int64()),
    pa.field(OPS, pa.int8()),
    pa.field(OFFSET, pa.int64()),
    pa.field(APPENDED, pa.int64()),
    pa.field(BEFORE, pa.int64()),
)
_GIVEN_BY_THE_LOG = (OFFSET, APPENDED, BEFORE)
_SYSTEM_NAMES = tuple(f.name for f in SYSTEM)
_RAW = pa.schema([pa.field(VALUE, pa.binary())])
_LEFT_OUT_IF_NULL = (KEY, HEADERS, OPS)
_DELETES = 1 << _SYSTEM_NAMES.index(OPS)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Checked rows. `times` is None where the append time is their event time, and has NEVER where it is that of a row."""

    batch: pa.RecordBatch
    system: int  # a bit for each of SYSTEM
    times: npt.NDArray[np.int64] | None
    least: int
    greatest: int
    untimed: bool = False  # some rows, deletes, have no time of their own


def physical(schema: Schema | None, system: int = 0) -> pa.Schema:
    """The columns of a stored batch. Where it has deletes any column may be null: they hold the key, and often nothing else."""
    fields = list(schema.arrow if schema else _RAW)
    if system & _DELETES:
        fields = [f.with_nullable(True) for f in fields]
    return pa.schema(fields + [f for bit, f in enumerate(SYSTEM) if system >> bit & 1])


def deletes_of(rows: pa.RecordBatch | pa.Table, raw: bool) -> Mask | None:
    """Which stored rows are deletes; None where none is."""
    if raw:
        values = rows.column(VALUE)
        return np.asarray(values.is_null().to_numpy(zero_copy_only=False)) if values.null_count else None
    if OPS not in rows.schema.names:
        return None
    gone = pc.equal(rows.column(OPS), int(Op.DELETE)).fill_null(False)
    return np.asarray(gone.to_numpy(zero_copy_only=False)) if pc.any(gone).as_py() else None


class RowCheck:
    """Checks rows for one topic. Made once for a schema: most batches have just its columns, and those pass quickly."""

    def __init__(self, spec: TopicSpec) -> None:
        self._spec = spec
        self._user = physical(spec.schema)
        self._needed = [f.name for f in self._user if not f.nullable or f.name == spec.time]
        self._stored = {0: self._user}

    def checked(self, batch: pa.RecordBatch) -> Rows:
        """The rows as they will be stored; BadSchema or BadRow if they do not fit the topic."""
        stored, system = self._conformed(batch)
        times = _times(self._spec, stored)
        known = times if times is None else times[times > NEVER]
        if times is None or known is None or not len(known):
            return Rows(stored, system, None, NEVER, NEVER)
        least, greatest = int(known.min()), int(known.max())
        if least < FIRST or greatest > LAST:
            wrong = text(least if least < FIRST else greatest)
            raise BadRow(f"a row for topic {self._spec.name} has a time outside the years 1 to 9999", wrong)
        return Rows(stored, system, times, least, greatest, len(known) < len(times))

    def _conformed(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        if batch.schema.equals(self._user) and not any(batch.column(name).null_count for name in self._needed):
            return batch, 0
        _refuse_unknown(self._spec, batch, self._user)
        gone = deletes_of(batch, self._spec.schema is None)
        columns = [_column(self._spec, batch, field, gone) for field in self._user]
        system = 0
        for bit, field in enumerate(SYSTEM):
            if field.name in batch.schema.names and not _empty(batch.column(field.name), field.name):
                system |= 1 << bit
                columns.append(_column(self._spec, batch, field, gone))
        if system not in self._stored:
            self._stored[system] = physical(self._spec.schema, system)
        return pa.RecordBatch.from_arrays(columns, schema=self._stored[system]), system


def plausible_time(spec: TopicSpec, rows: Rows, appended: int) -> int:
    """The greatest event time of its own that is not more than `future` beyond the append time."""
    limit = appended + micros(spec.future)
    if spec.writer or rows.times is None or rows.greatest <= limit:
        return rows.greatest
    below = rows.times[rows.times <= limit]
    return int(below.max()) if len(below) else NEVER


def check_mark(spec: TopicSpec, mark: int, appended: int) -> None:
    """Refuses a mark that says more than its producer can know."""
    if not NEVER <= mark <= FOREVER:
        raise BadTime(f"{mark} is no time for a mark")
    if mark == FOREVER or spec.writer or mark <= appended + micros(spec.future):
        return
    raise BadTime(
        f"the mark {text(mark)} lies more than {duration_text(spec.future)} beyond the present",
        f"topic {spec.name}, now {text(appended)}",
        hint="marks promise that no earlier row will come; the end of input is `end`",
    )


def check_something(batch: pa.RecordBatch | None, mark: int) -> None:
    if batch is None and mark == NEVER:
        raise BadInput("there is nothing to append: neither rows nor a mark")


def check_sizes(spec: TopicSpec, batch: pa.RecordBatch) -> None:
    """Refuses a row over the limit. Slow: only for batches that are over it as a whole."""
    sizes = row_sizes(batch, spec.max_record)
    row = int(sizes.argmax())
    if sizes[row] > spec.max_record:
        raise BadRow(
            f"row {row} of a batch for topic {spec.name} has {sizes[row]:,} bytes; the limit is {spec.max_record:,}",
            hint="make the topic with a larger record limit, or store the large part elsewhere and its address here",
        )


def check_spec(spec: TopicSpec) -> None:
    """Refuses settings that no topic can have."""
    if not 1 <= spec.partitions <= 10_000:
        raise BadInput(f"topic {spec.name} cannot have {spec.partitions} partitions", hint="choose 1 to 10000")
    if spec.durability not in ("fsync", "os", "memory"):
        raise BadInput(f"topic {spec.name} cannot have the durability {spec.durability!r}", hint="choose fsync, os or memory")
    if spec.max_record < 1 or micros(spec.future) < 0:
        raise BadInput(f"topic {spec.name} needs a positive record limit and a future that is not negative")
    if min(map(micros, (spec.retain or spec.hold, spec.hold, spec.tombstones))) < 0 or (spec.retain_bytes or 1) < 1:
        raise BadInput(f"topic {spec.name} cannot be retained for less than nothing", hint="durations and bytes are positive")
    if spec.schema and spec.time:
        if spec.time not in spec.schema:
            raise BadSchema(f"topic {spec.name} has no column {spec.time!r} to take the time from", spec.schema.ddl())
        if spec.schema.type(spec.time) != TIMESTAMP:
            raise BadSchema(f"the time column {spec.time!r} of topic {spec.name} must be a timestamp", spec.schema.ddl())


def _refuse_unknown(spec: TopicSpec, batch: pa.RecordBatch, user: pa.Schema) -> None:
    names = batch.schema.names
    if len(set(names)) < len(names):
        raise BadSchema(f"a batch for topic {spec.name} has a column twice", ", ".join(names))
    for name in names:
        if name not in user.names and name not in _SYSTEM_NAMES:
            raise BadSchema(f"topic {spec.name} has no column {name!r}", f"its columns are {', '.join(user.names)}")
        if name in _GIVEN_BY_THE_LOG:
            raise BadSchema(f"the column {name!r} is the log's own: no producer can give it", f"topic {spec.name}")
        if name in (ORIGIN, WATERMARK) and not spec.writer:
            raise BadSchema(f"only a topic written by a flow has the column {name!r}", f"topic {spec.name}")
    if OPS in names:
        _refuse_ops(spec, batch.column(OPS))
    if EVENT_TIME in names and spec.time in user.names:
        raise BadSchema(f"topic {spec.name} takes its time from column {spec.time!r}, not from {EVENT_TIME!r}")


def _refuse_ops(spec: TopicSpec, ops: pa.Array) -> None:
    if spec.schema is None and ops.null_count < len(ops):
        raise BadSchema(f"topic {spec.name} is raw: there a record without value is a delete", f"it takes no column {OPS!r}")
    if pa.types.is_null(ops.type):
        return
    strange = pc.unique(ops.filter(pc.invert(pc.is_in(ops, pa.array([None, Op.INSERT, Op.DELETE], ops.type)))))
    if len(strange):
        what = f"a row for topic {spec.name} is neither put in nor taken out"
        raise BadRow(what, f"its {OPS!r} is {strange[0].as_py()}, not {Op.INSERT:d}, {Op.DELETE:d} or null")


def _column(spec: TopicSpec, batch: pa.RecordBatch, field: pa.Field, gone: Mask | None) -> pa.Array:
    if field.name not in batch.schema.names:
        column = pa.nulls(batch.num_rows, field.type)
    else:
        column = batch.column(field.name)
    if pa.types.is_null(column.type):
        column = pa.nulls(batch.num_rows, field.type)
    if column.type != field.type:
        column = _same_but_for_names(spec, column, field)
    if column.null_count and (not field.nullable or field.name in (EVENT_TIME, spec.time)):
        missing = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
        rows = np.flatnonzero(missing if gone is None else missing & ~gone)
        if len(rows):
            raise BadRow(f"row {rows[0]} of a batch for topic {spec.name} has no value in column {field.name!r}")
    return column


def _same_but_for_names(spec: TopicSpec, column: pa.Array, field: pa.Field) -> pa.Array:
    """Nested types may differ in the names and nullability of their inner fields, which mean nothing."""
    if pa.types.is_nested(field.type) and pa.types.is_nested(column.type):
        try:
            if type_text(column.type) == type_text(field.type):
                return column.cast(field.type)
        except (pa.ArrowException, BadSchema):
            pass
    raise BadSchema(f"column {field.name!r} of topic {spec.name} is {field.type}, not {column.type}")


def _empty(column: pa.Array, name: str) -> bool:
    return name in _LEFT_OUT_IF_NULL and column.null_count == len(column)


def _times(spec: TopicSpec, batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
    names = batch.schema.names
    name = spec.time if spec.schema and spec.time else EVENT_TIME
    if name not in names:
        return None
    times = batch.column(name).view(pa.int64())
    return np.asarray((times.fill_null(NEVER) if times.null_count else times).to_numpy(), np.int64)
