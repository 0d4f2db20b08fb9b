"""Values that stores give back, as columns again."""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from penstock.core.schema import TIMESTAMP, Schema

UNREADABLE = (ValueError, TypeError, ArithmeticError)  # what a value raises that is none of its column's type
_TRUE = (True, 1, b"1", "1", "true", b"true", "t", b"\x01")
_FALSE = (False, 0, b"0", "0", "false", b"false", "f", b"\x00")
_CONVERTED: list[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = [
    (pa.types.is_boolean, lambda value: _boolean(value)),
    (pa.types.is_integer, lambda value: _whole(value)),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, lambda value: Decimal(_text(value))),
    (pa.types.is_binary, lambda value: b64decode(value) if isinstance(value, str) else bytes(value)),
    (pa.types.is_date, lambda value: _date(value)),
    (pa.types.is_nested, lambda value: _json(value)),
    (pa.types.is_string, lambda value: _text(value)),
]


def rows_read(columns: Mapping[str, Sequence[Any]], schema: Schema) -> pa.Table:
    """Rows from the values of their columns, as clients of stores give them: Python's own types, or texts as Penstock writes them.
    Bytes may be in base 64, and nested values are texts of JSON."""
    return pa.table({name: column_read(values, schema.type(name)) for name, values in columns.items()})


def readable_rows(columns: Mapping[str, Sequence[Any]], schema: Schema) -> pa.Table:
    """The same, without the rows that hold what no row of these types can: those count as missing."""
    try:
        return rows_read(columns, schema)
    except UNREADABLE:
        lines = [line for line in zip(*columns.values(), strict=True) if _fits(dict(zip(columns, line, strict=True)), schema)]
        return rows_read({name: [line[n] for line in lines] for n, name in enumerate(columns)}, schema)


def _fits(line: Mapping[str, Any], schema: Schema) -> bool:
    try:
        rows_read({name: [value] for name, value in line.items()}, schema)
    except UNREADABLE:
        return False
    return True


def column_read(values: Sequence[Any], t: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(t):
        return _moments(values)
    convert = next(convert for fits, convert in _CONVERTED if fits(t))
    kept = pa.string() if pa.types.is_nested(t) else t
    return pa.array([None if value is None else convert(value) for value in values], kept)


def _moments(values: Sequence[Any]) -> pa.Array:
    texts = [_text(value) if isinstance(value, str | bytes) else None for value in values]
    if all(text is not None or value is None for text, value in zip(texts, values, strict=True)):
        return pa.array(texts, pa.string()).cast(TIMESTAMP)
    return pa.array([None if value is None else _moment(value) for value in values], TIMESTAMP)


def _moment(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        if value != value.replace(hour=0, minute=0, second=0, microsecond=0):
            raise ValueError(f"{value} is no date")
        return value.date()
    return value if isinstance(value, date) else date.fromisoformat(_text(value))


def _whole(value: Any) -> int:
    """Columns of other numbers may hold more than whole ones."""
    found = int(value)
    if not isinstance(value, str | bytes) and found != value:
        raise ValueError(f"{value} is no whole number")
    return found


def _boolean(value: Any) -> bool:
    if value not in _TRUE and value not in _FALSE:
        raise ValueError(f"{value!r} is neither true nor false")
    return value in _TRUE


def _json(value: Any) -> str:
    if not isinstance(value, str | bytes):
        return orjson.dumps(value).decode()
    orjson.loads(value)
    return _text(value)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
