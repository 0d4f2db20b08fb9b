"""Values as stores give them, made into what a column of an answer takes: times of UTC, JSON as what it says, texts of numbers."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa

from penstock.core.schema import Schema

Shape = Callable[[Any], Any]
_YES_AND_NO: dict[Any, bool] = {"true": True, "1": True, 1: True, "\x01": True, "false": False, "0": False, 0: False, "\x00": False}


def shaped(answers: Schema) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What makes an answer of a store fit for these columns, where that is possible without loss."""
    shapes = {f.name: _shape(f.type) for f in answers}
    return lambda row: {name: None if value is None else shapes[name](value) for name, value in row.items()}


def zoned(value: Any) -> Any:
    """A time without a zone is of UTC: sessions are."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _shape(t: pa.DataType) -> Shape:
    if pa.types.is_nested(t):
        return _parsed
    if pa.types.is_boolean(t):
        return lambda value: _YES_AND_NO.get(_text(value), value) if isinstance(value, str | bytes | int) else value
    if pa.types.is_binary(t):
        return lambda value: value
    if pa.types.is_floating(t):
        return lambda value: _float(_text(value))
    if pa.types.is_string(t):
        return lambda value: str(value) if isinstance(value, UUID) else _text(value)
    return lambda value: zoned(_text(value))


def _text(value: Any) -> Any:
    """Bytes are text where bytes are not asked for."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _float(value: Any) -> Any:
    return float(value) if value in ("NaN", "nan", "inf", "-inf", "Infinity", "-Infinity") else value


def _parsed(value: Any) -> Any:
    if not isinstance(value, str | bytes):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
