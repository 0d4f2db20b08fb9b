"""Records as change data capture writes them: envelopes {before, after, op, source, ts_ms}, with or without {schema, payload}.

What Debezium writes in place of a value is taken where its meaning is plain: numbers for times (nanoseconds, microseconds or
milliseconds, as the schema beside the payload says; without one by their size, the border being 10**14) and for days, 0 and 1 for
booleans.
"""

import datetime as dt
from collections.abc import Callable, Mapping
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
_NOTHING: Mapping[str, Any] = {}


class Change(NamedTuple):
    """What one envelope says."""

    op: Op
    row: Mapping[str, Any]  # of a delete: what it says of the row, often its key alone, or nothing
    time: int  # when the database did it, microseconds; NEVER where it is not said
    place: bytes | None  # where in the database's log


class Unfit(Exception):
    """The record is no change of a row; the text says why."""


class Envelopes:
    """Reads envelopes about the rows of one table. Names that are columns of the table mean these columns and nothing else, unless
    it is known that there are no records but envelopes."""

    def __init__(self, columns: Schema, only: bool = False) -> None:
        own = set() if only else set(columns.names)
        self._wraps, self._envelops = not own & {"schema", "payload"}, not own & {"op", "before", "after"}
        self._readings = {f.name: reading for f in columns if (reading := _reading(f.type))}

    def unwrapped(self, record: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """The payload of a record and the schema beside it, where it has both; else the record itself."""
        if self._wraps and len(record) == 2 and "payload" in record and "schema" in record:
            schema = record["schema"]
            return record["payload"], schema if isinstance(schema, dict) else _NOTHING
        return record, _NOTHING

    def is_envelope(self, record: Mapping[str, Any]) -> bool:
        """It has an op, and a row before or after it."""
        return self._envelops and "op" in record and ("after" in record or "before" in record)

    def change(self, envelope: Mapping[str, Any], schema: Mapping[str, Any] = _NOTHING) -> Change:
        """What an envelope says; Unfit where it is about no row."""
        source = envelope.get("source")
        source = source if isinstance(source, dict) else _NOTHING
        op = op_of(envelope.get("op"))
        row = envelope.get("before" if op is Op.DELETE else "after")
        if not isinstance(row, dict):
            if op is Op.INSERT:
                raise Unfit(f'op {envelope.get("op")!r} without a row: "after" is {"missing" if row is None else "no object"}')
            row = _NOTHING
        return Change(op, self._plain(row, schema), time_of(source, envelope), place_of(source))

    def _plain(self, row: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row with the values that the codec takes."""
        if _UNSENT in row.values():
            name = next(name for name, value in row.items() if value == _UNSENT)
            raise Unfit(f"column {name!r} is large and unchanged, and the database did not send it (set REPLICA IDENTITY FULL)")
        numbers = [name for name in self._readings if type(row.get(name)) is int]
        if not numbers:
            return row
        kinds, out = _kinds(schema), dict(row)
        for name in numbers:
            try:
                out[name] = self._readings[name](row[name], kinds.get(name, ""))
            except (OverflowError, ValueError):
                raise Unfit(f"column {name!r}: {row[name]} is no time") from None
        return out


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
            if type(time) is int and 0 < time < 2**62 // unit:
                return time * unit
    return NEVER


def place_of(source: Mapping[str, Any]) -> bytes | None:
    """Where in the log of its database a change stands: a write-ahead log's position, or a file and a place in it."""
    lsn = source.get("lsn")
    if _whole(lsn):
        return wal_place(lsn)
    file, offset, row = source.get("file"), source.get("pos"), source.get("row")
    if isinstance(file, str) and _whole(offset):
        return binlog_place(file, offset, row if _whole(row) else 0)
    return None


def _whole(number: Any) -> TypeGuard[int]:
    return type(number) is int and 0 <= number < 2**64


def _reading(t: pa.DataType) -> Callable[[int, str], Any] | None:
    """How a number of some kind is read for a column of this type; None: as it is."""
    if pa.types.is_timestamp(t):
        return lambda number, kind: moment(_micros(number, kind))
    if pa.types.is_date(t):
        return lambda number, kind: _EPOCH + dt.timedelta(days=number)
    return (lambda number, kind: bool(number) if number in (0, 1) else number) if pa.types.is_boolean(t) else None


def _micros(number: int, kind: str) -> int:
    unit = _UNITS.get(kind.rpartition(".")[2]) or (-1_000 if abs(number) < _MILLIS_BELOW else 1)
    return number // unit if unit > 0 else number * -unit


def _kinds(schema: Mapping[str, Any]) -> dict[str, str]:
    """What the schema beside a payload calls the values of the columns."""
    fields = schema.get("fields") if schema else None
    rows = [f for f in fields if isinstance(f, dict) and f.get("field") in ("after", "before")] if isinstance(fields, list) else []
    inner = [f for row in rows for f in row.get("fields") or () if isinstance(f, dict)]
    return {str(f.get("field")): str(f["name"]) for f in inner if f.get("name")}
