"""One value of a row, as JSON or Python gives it, into what Arrow stores for a column: exactly, or refused with the reason."""

import base64
import binascii
import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.schema import type_text
from penstock.core.time import instant, micros
from penstock.errors import BadTime

Converter = Callable[[Any], Any]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,6})?", re.ASCII)
_EXACT_FLOAT = 2**53  # above it a double stands for several integers
_LONGEST_NUMBER = 400
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class Misfit(Exception):
    """A value that does not fit; the text says why, where the type alone does not."""


def converter(t: pa.DataType) -> Converter:
    """The function that turns one value into what `pa.array` takes for this type; it raises Misfit. None stays None."""
    convert = _converter(t)

    def nullable(value: Any) -> Any:
        return None if value is None else convert(value.item() if isinstance(value, np.generic) else value)

    return nullable


def misfit_text(path: str, t: pa.DataType, value: Any, why: str) -> str:
    """The reason a row is refused: the column, what it wants, what was found."""
    return f"column {path!r} wants {type_text(t)}, found {shown(value)}" + (f": {why}" if why else "")


def shown(value: Any) -> str:
    """A value for a message: its kind, and its text if that is short."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float | decimal.Decimal):
        return f"the number {_short(str(value))}"
    if isinstance(value, str):
        return f"the text {_short(ascii(value) if not value.isprintable() else repr(value))}"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return f"a Python {type(value).__name__}"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


@cache
def _converter(t: pa.DataType) -> Converter:
    if pa.types.is_integer(t):
        return _integer(t)
    if pa.types.is_floating(t):
        return _floating(t)
    if pa.types.is_decimal(t):
        return _decimal(t.precision, t.scale)
    if pa.types.is_list(t):
        return _list(t.value_type)
    if pa.types.is_map(t):
        return _map(t.key_type, t.item_type)
    if pa.types.is_struct(t):
        return _struct(list(t))
    if pa.types.is_timestamp(t):
        return _timestamp
    return {pa.bool_(): _boolean, pa.string(): _string, pa.binary(): _binary, pa.date32(): _date}[t]


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Misfit("")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Misfit("")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit("half of a surrogate pair is no text") from None
    return value


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise Misfit("")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Misfit("write bytes as base64") from None


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if isinstance(value, str) and _DAY.fullmatch(value):
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            raise Misfit("there is no such day") from None
    raise Misfit('write days as text, like "2024-01-15"')


def _timestamp(value: Any) -> int:
    if isinstance(value, str | dt.datetime):
        try:
            return micros(instant(value))
        except (BadTime, OverflowError):
            pass
    raise Misfit('write times as text, like "2024-01-15T10:30:00Z"')


def _number(value: Any) -> decimal.Decimal:
    """A number of any kind without loss: the digits that were written."""
    if isinstance(value, bool):
        raise Misfit("")
    if isinstance(value, float):
        value = repr(value)
    elif isinstance(value, str) and not (len(value) <= _LONGEST_NUMBER and _NUMBER.fullmatch(value)):
        raise Misfit("")
    try:
        number = decimal.Decimal(value)
    except (decimal.InvalidOperation, TypeError, ValueError):
        raise Misfit("") from None
    if not number.is_finite():
        raise Misfit("it is not finite")
    return number


def _integer(t: pa.DataType) -> Converter:
    limit = 1 << (t.bit_width - 1)

    def convert(value: Any) -> int:
        if isinstance(value, float) and abs(value) > _EXACT_FLOAT:
            raise Misfit("too large to be exact")
        if type(value) is not int:
            value = _whole(_number(value))
        if not -limit <= value < limit:
            raise Misfit("out of range")
        return int(value)

    return convert


def _whole(number: decimal.Decimal) -> int:
    if number.adjusted() > 40:
        raise Misfit("out of range")
    if number != number.to_integral_value():
        raise Misfit("it has a fraction")
    return int(number)


def _floating(t: pa.DataType) -> Converter:
    limit = float(np.finfo(np.float32).max) if pa.types.is_float32(t) else math.inf

    def convert(value: Any) -> float:
        given = isinstance(value, float)
        number = value if given else float(_number(value))
        if (math.isinf(number) and not given) or (math.isfinite(number) and abs(number) > limit):
            raise Misfit("out of range")
        return float(number)

    return convert


def _decimal(precision: int, scale: int) -> Converter:
    whole = precision - scale

    def convert(value: Any) -> decimal.Decimal:
        number = _number(value)
        if not number:
            return decimal.Decimal(0)
        number = _without_trailing_zeros(number)
        if number.adjusted() >= whole:
            raise Misfit("out of range")
        if -int(number.as_tuple().exponent) > scale:
            raise Misfit(f"more than {scale} digits after the point")
        return number

    return convert


def _without_trailing_zeros(number: decimal.Decimal) -> decimal.Decimal:
    """The same number, exactly: `normalize` would round to the context's precision."""
    sign, digits, exponent = number.as_tuple()
    kept = "".join(map(str, digits)).rstrip("0")
    return decimal.Decimal((sign, tuple(map(int, kept)), int(exponent) + len(digits) - len(kept)))


def _inside(convert: Converter, t: pa.DataType, value: Any, where: str) -> Any:
    try:
        return convert(value)
    except Misfit as bad:
        inner = str(bad)
        if inner.startswith("at "):  # deeper down: with the whole path
            raise Misfit(f"at {where}{inner.removeprefix('at ')}") from None
        raise Misfit(f"at {where} it wants {type_text(t)}, found {shown(value)}" + (f": {inner}" if inner else "")) from None


def _list(item_type: pa.DataType) -> Converter:
    inner = converter(item_type)

    def convert(value: Any) -> list[Any]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
            raise Misfit("")
        return [_inside(inner, item_type, item, f"[{i}]") for i, item in enumerate(value)]

    return convert


def _map(key_type: pa.DataType, item_type: pa.DataType) -> Converter:
    key_of, item_of = converter(key_type), converter(item_type)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, Mapping):
            raise Misfit("")
        if None in value:
            raise Misfit("the key of a map is never null")
        pairs = value.items()
        return [(_inside(key_of, key_type, k, f"key {k!a}"), _inside(item_of, item_type, v, f"[{k!a}]")) for k, v in pairs]

    return convert


def _struct(of: Sequence[pa.Field]) -> Converter:
    fields = [(f.name, f.type, f.nullable, converter(f.type)) for f in of]

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Misfit("")
        row = {name: _inside(inner, kind, value.get(name), f".{name}") for name, kind, _, inner in fields}
        for name, kind, nullable, _ in fields:
            if row[name] is None and not nullable:
                raise Misfit(f"at .{name} it wants {type_text(kind)}, found {'null' if name in value else 'nothing'}")
        return row

    return convert
