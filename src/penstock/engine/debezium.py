"""Records as change data capture writes them: envelopes {before, after, op, source, ts_ms}, with or without {schema, payload}.

What Debezium writes in place of a value is taken where its meaning is plain: numbers for times (nanoseconds, microseconds or
milliseconds, as the schema beside the payload says; without one by their size, the border being 10**14) and for days, 0 and 1 for
booleans.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

import pyarrow as pa

from penstock.core.change import Op
from penstock.core.position import binlog_place, wal_place
from penstock.core.schema import Schema
from penstock.core.time import NEVER, moment

FIELDS = ("before", "after", "op", "source", "ts_us", "ts_ms")  # of an envelope, as far as they are looked at
OPS = {"c": Op.INSERT, "r": Op.INSERT, "u": Op.INSERT, "d": Op.DELETE}
NO_ROWS = {
    "t": "a truncate: which rows it takes out stands nowhere; a table cannot follow it",
    "m": "a message of the database's log, and no row",
}
NO_ENVELOPE = 'is no envelope: it has no "op" with "before" or "after"'
_UNSENT = "__debezium_unavailable_value"
_UNITS = {"NanoTimestamp": 1_000, "MicroTimestamp": 1, "Timestamp": -1_000}  # nanoseconds are divided, milliseconds multiplied
_MILLIS_BELOW = 10**14
_EPOCH = dt.date(1970, 1, 1)


class Change(NamedTuple):
    """What one envelope says."""

    op: Op
    row: Mapping[str, Any]  # of a delete: what it says of the row, often its key alone, or nothing
    time: int  # when the database did it, microseconds; NEVER where it is not said
    place: bytes | None  # where in the database's log


class Unfit(Exception):
    """The record is no change of a row; the text says why."""


def unwrapped(record: Mapping[str, Any], declared: Iterable[str]) -> tuple[Any, Mapping[str, Any]]:
    """The payload of a record and the schema beside it, where it has both; else the record itself."""
    if len(record) == 2 and "payload" in record and "schema" in record and not {"payload", "schema"} & set(declared):
        schema = record["schema"]
        return record["payload"], schema if isinstance(schema, Mapping) else {}
    return record, {}


def is_envelope(record: Mapping[str, Any], declared: Iterable[str]) -> bool:
    """It has an op, and a row before or after it; and none of these is a column of the table."""
    return "op" in record and ("after" in record or "before" in record) and not {"op", "before", "after"} & set(declared)


def change_of(envelope: Mapping[str, Any], schema: Mapping[str, Any], columns: Schema) -> Change:
    """What an envelope says; Unfit where it is about no row."""
    source = envelope.get("source")
    source = source if isinstance(source, Mapping) else {}
    op = op_of(envelope.get("op"))
    row = envelope.get("before" if op is Op.DELETE else "after")
    if op is Op.INSERT and not isinstance(row, Mapping):
        raise Unfit(f'op {envelope.get("op")!r} without a row: "after" is {"missing" if row is None else "no object"}')
    row = _plain(row, columns, _kinds(schema)) if isinstance(row, Mapping) else {}
    return Change(op, row, time_of(source, envelope), place_of(source))


def op_of(word: Any) -> Op:
    """Put in or taken out; Unfit for everything else."""
    if isinstance(word, str) and word in OPS:
        return OPS[word]
    raise Unfit(f"op {word!r}: {NO_ROWS.get(word, 'neither c, r, u nor d') if isinstance(word, str) else 'neither c, r, u nor d'}")


def time_of(source: Mapping[str, Any], envelope: Mapping[str, Any]) -> int:
    """When the database did it, else when it was captured; NEVER where neither is said."""
    for said in (source, envelope):
        for name, unit in (("ts_us", 1), ("ts_ms", 1_000)):
            time = said.get(name)
            if isinstance(time, int) and not isinstance(time, bool) and 0 < time < 2**62 // unit:
                return time * unit
    return NEVER


def place_of(source: Mapping[str, Any]) -> bytes | None:
    """Where in the log of its database a change stands: a write-ahead log's position, or a file and a place in it."""
    lsn, file, offset, row = (source.get(name) for name in ("lsn", "file", "pos", "row"))
    if _whole(lsn):
        return wal_place(lsn)
    if isinstance(file, str) and _whole(offset):
        return binlog_place(file, offset, row if _whole(row) else 0)
    return None


def _whole(number: Any) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**64


def _plain(row: Mapping[str, Any], columns: Schema, kinds: Mapping[str, str]) -> dict[str, Any]:
    """The row with the values that the codec takes."""
    out = dict(row)
    for f in columns:
        value = row.get(f.name)
        if value == _UNSENT:
            raise Unfit(f"column {f.name!r} is large and unchanged, and the database did not send it (set REPLICA IDENTITY FULL)")
        reading = _reading(f.type, kinds.get(f.name, ""))
        if reading and type(value) is int:
            try:
                out[f.name] = reading(value)
            except (OverflowError, ValueError):
                raise Unfit(f"column {f.name!r}: {value} is no time") from None
    return out


def _reading(t: pa.DataType, kind: str) -> Callable[[int], Any] | None:
    """How a number is read for a column of this type; None: as it is."""
    if pa.types.is_timestamp(t):
        return lambda number: moment(_micros(number, kind))
    if pa.types.is_date(t):
        return lambda number: _EPOCH + dt.timedelta(days=number)
    return (lambda number: bool(number) if number in (0, 1) else number) if pa.types.is_boolean(t) else None


def _micros(number: int, kind: str) -> int:
    unit = _UNITS.get(kind.rpartition(".")[2]) or (-1_000 if abs(number) < _MILLIS_BELOW else 1)
    return number // unit if unit > 0 else number * -unit


def _kinds(schema: Mapping[str, Any]) -> dict[str, str]:
    """What the schema beside a payload calls the values of the columns."""
    fields = schema.get("fields")
    rows = (
        [f for f in fields if isinstance(f, Mapping) and f.get("field") in ("after", "before")] if isinstance(fields, list) else []
    )
    inner = [f for row in rows for f in row.get("fields") or () if isinstance(f, Mapping)]
    return {str(f.get("field")): str(f["name"]) for f in inner if f.get("name")}
