"""Values that stores give back, as columns again."""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from penstock.core.schema import TIMESTAMP, Schema

_TRUE = (True, 1, b"1", "1", "true", b"true", "t")
_CONVERTED: list[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = [
    (pa.types.is_boolean, lambda value: value in _TRUE),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, lambda value: Decimal(_text(value))),
    (pa.types.is_binary, lambda value: b64decode(value) if isinstance(value, str) else bytes(value)),
    (pa.types.is_date, lambda value: _moment(value).date() if isinstance(value, datetime) else _date(value)),
    (pa.types.is_nested, lambda value: _text(value) if isinstance(value, str | bytes) else orjson.dumps(value).decode()),
    (pa.types.is_string, lambda value: _text(value)),
]


def rows_read(columns: Mapping[str, Sequence[Any]], schema: Schema) -> pa.Table:
    """Rows from the values of their columns, as clients of stores give them: Python's own types, or texts as Penstock writes them.
    Bytes may be in base 64, and nested values are texts of JSON."""
    return pa.table({name: column_read(values, schema.type(name)) for name, values in columns.items()})


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
    return value if isinstance(value, date) else date.fromisoformat(_text(value))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
