"""Clock correction: event times from when a device says it happened, when it says it sent it, and when that was received."""

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa

from penstock.core.schema import TIMESTAMP, Schema, type_text
from penstock.core.time import duration
from penstock.flow.place import At, Place, find
from penstock.plan import ClockFix

APPEND = "append"  # in place of a column: the time at which the log took the record


def given(
    happened: str,
    sent: str,
    received: str,
    by: tuple[str, ...],
    span: str | timedelta,
    past: str | timedelta,
    corrected: str,
    uncertainty: str,
) -> ClockFix:
    """A correction as a user writes it."""
    theirs = None if received == APPEND else received
    return ClockFix(happened, sent, theirs, by, duration(span, "span"), duration(past, "past"), corrected, uncertainty)


def refuse_ambiguous(what: str, schema: Schema, place: Place) -> None:
    """`append` must not be a column too."""
    if find(APPEND, schema.names):
        place.refuse(
            f"cannot tell what {what}={APPEND!r} means: there is a column of that name",
            hint=f"{APPEND!r} stands for the time at which the log took a record; give the column another name",
        )


def checked(fix: ClockFix, topic: str, schema: Schema, at: At) -> ClockFix:
    """The columns as they are declared, all of the right kind."""
    doing = f"set the clocks of {topic} right"
    if not fix.by:
        at.refuse(f"cannot {doing}: nothing names a device", hint='say whose clock it is, e.g. by="device_id"')
    if not fix.span:
        at.refuse(f"cannot {doing}: span is empty", hint='say how long a quick row counts for its device, e.g. span="1 hour"')
    by = at.columns(fix.by, schema, doing)
    for name in by:
        at.keyable(name, schema, doing)
    if fix.received is None:
        refuse_ambiguous("received", schema, at)
    received = None if fix.received is None else _timestamp(fix.received, schema, doing, at)
    at.new_columns(
        [*schema.names, at.new_name(fix.corrected), at.new_name(fix.uncertainty)],
        doing,
        hint='give the columns that are added other names: clock_fix(…, corrected="…", uncertainty="…")',
    )
    happened, sent = (_timestamp(name, schema, doing, at) for name in (fix.happened, fix.sent))
    return replace(fix, happened=happened, sent=sent, received=received, by=by)


def _timestamp(name: str, schema: Schema, doing: str, at: At) -> str:
    column = at.column(name, schema, doing)
    if not pa.types.is_timestamp(schema.type(column)):
        at.refuse(
            f"cannot {doing} by {column!r}: it is {type_text(schema.type(column))}, not timestamp",
            hint=f'declare the column as a timestamp: "{column} timestamp"',
        )
    return column


def fields(fix: ClockFix) -> list[pa.Field]:
    """The columns that are added: the corrected time, and how much longer than the quickest a row took, in seconds."""
    return [pa.field(fix.corrected, TIMESTAMP, nullable=False), pa.field(fix.uncertainty, pa.float64())]
