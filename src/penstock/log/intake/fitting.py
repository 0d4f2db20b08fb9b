"""An unchecked batch, converted to the columns that its topic stores, or refused."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.change import Op
from penstock.core.columns import APPENDED, BEFORE, EVENT_TIME, OFFSET, OP, POSITION, WATERMARK
from penstock.core.schema import type_text
from penstock.errors import BadRow, BadSchema
from penstock.log.intake.stored_rows import LEFT_OUT_IF_NULL, SYSTEM, Mask, deletes_of
from penstock.log.port import TopicSpec

_GIVEN_BY_THE_LOG = (OFFSET, APPENDED, BEFORE)
_SYSTEM_NAMES = tuple(f.name for f in SYSTEM)


def conformed(spec: TopicSpec, batch: pa.RecordBatch, user: pa.Schema) -> dict[str, pa.Array]:
    """The columns of `user`, and the system columns that the batch has; BadSchema or BadRow if it does not fit the topic."""
    _refuse_unknown(spec, batch, user)
    gone, names = deletes_of(batch, spec.schema is None), batch.schema.names
    system = [field for field in SYSTEM if field.name in names and not _empty(batch.column(field.name), field.name)]
    return {field.name: _column(spec, batch, field, gone) for field in [*user, *system]}


def _refuse_unknown(spec: TopicSpec, batch: pa.RecordBatch, user: pa.Schema) -> None:
    names = batch.schema.names
    if len(set(names)) < len(names):
        raise BadSchema(f"a batch for topic {spec.name} has a column twice", ", ".join(names))
    for name in names:
        if name not in user.names and name not in _SYSTEM_NAMES:
            raise BadSchema(f"topic {spec.name} has no column {name!r}", f"its columns are {', '.join(user.names)}")
        if name in _GIVEN_BY_THE_LOG:
            raise BadSchema(f"the column {name!r} is the log's own: no producer can give it", f"topic {spec.name}")
        if name in (POSITION, WATERMARK) and not spec.writer:
            raise BadSchema(f"only a topic written by a flow has the column {name!r}", f"topic {spec.name}")
    if OP in names:
        _refuse_ops(spec, batch.column(OP))
    if EVENT_TIME in names and spec.time in user.names:
        raise BadSchema(f"topic {spec.name} takes its time from column {spec.time!r}, not from {EVENT_TIME!r}")


def _refuse_ops(spec: TopicSpec, ops: pa.Array) -> None:
    if spec.schema is None and ops.null_count < len(ops):
        raise BadSchema(f"topic {spec.name} is raw: there a record without value is a delete", f"it takes no column {OP!r}")
    if pa.types.is_null(ops.type):
        return
    strange = pc.unique(ops.filter(pc.invert(pc.is_in(ops, pa.array([None, Op.INSERT, Op.DELETE], ops.type)))))
    if len(strange):
        what = f"a row for topic {spec.name} is neither an insert nor a delete"
        raise BadRow(what, f"its {OP!r} is {strange[0].as_py()}, not {Op.INSERT:d}, {Op.DELETE:d} or null")


def _column(spec: TopicSpec, batch: pa.RecordBatch, field: pa.Field, gone: Mask | None) -> pa.Array:
    column: pa.Array
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
    return name in LEFT_OUT_IF_NULL and column.null_count == len(column)
