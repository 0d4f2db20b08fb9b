"""Arrow columns as SQLite values and back, exactly.

Times are microseconds, dates days, booleans 0 and 1, decimals text, nested values JSON text. Two values have no place in SQLite
and get one: NaN (which it would turn into NULL) is the text 'NaN'; a null in a key column (which a primary key forbids) is an empty
value of a kind the column otherwise never holds.
"""

import base64
import decimal
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NAN = "NaN"
Value = Any  # int, float, str, bytes, bytearray or None


def affinity(t: pa.DataType) -> str:
    """What the column is declared as. Doubles are declared as nothing: REAL would turn -0.0 into 0.0."""
    if pa.types.is_floating(t):
        return ""
    if pa.types.is_boolean(t) or pa.types.is_integer(t) or pa.types.is_temporal(t):
        return "INTEGER"
    return "BLOB" if pa.types.is_binary(t) else "TEXT"


def to_sqlite(column: pa.Array, key: bool = False) -> list[Value]:
    """The values of a column as they are bound to a statement."""
    t = column.type
    if pa.types.is_floating(t):
        values: list[Value] = column.to_pylist()
        if pc.any(pc.is_nan(column)).as_py():
            values = [NAN if v != v else v for v in values]
    elif pa.types.is_binary(t):
        # sqlite3 takes a bytearray as it is, but asks its adapters about every bytes: twice the time.
        values = [v and bytearray(v) for v in column.to_pylist()]
    elif pa.types.is_boolean(t):
        values = column.cast(pa.int8()).to_pylist()
    elif pa.types.is_temporal(t):
        values = column.cast(pa.int32() if pa.types.is_date32(t) else pa.int64()).to_pylist()
    elif pa.types.is_decimal(t):
        values = [None if v is None else format(v, "f") for v in column.to_pylist()]
    elif pa.types.is_nested(t):
        plain = _plain(t)
        values = [None if v is None else json.dumps(plain(v), ensure_ascii=False) for v in column.to_pylist()]
    else:
        values = column.to_pylist()
    if key and column.null_count:
        values = [_no_value(t) if v is None else v for v in values]
    return values


def stored(column: pa.Array, values: Sequence[Value], key: bool = False) -> pa.Array:
    """What SQLite holds of a column, as numbers, text or bytes; values: what `to_sqlite` made of it."""
    if pa.types.is_nested(column.type):
        return as_stored(values, column.type, key)
    if pa.types.is_date32(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.int32())
    return column if pa.types.is_decimal(column.type) else column.cast(_kind(column.type))


def as_stored(values: Sequence[Value], t: pa.DataType, key: bool = False) -> pa.Array:
    """The same of values that SQLite gave back."""
    kind, nothing = _kind(t), _no_value(t)
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        if key and nothing in values:
            values = [None if v == nothing else v for v in values]
        array = pa.array(values, kind)
        return array.cast(t) if pa.types.is_decimal(t) else array
    try:
        return pa.array(values, kind)
    except (TypeError, pa.ArrowException):  # is it one of the two that are not numbers?
        nan = NAN if pa.types.is_floating(kind) else None
        restored = (None if key and v == nothing else math.nan if v is not None and v == nan else v for v in values)
        return pa.array(list(restored), kind)


def from_stored(array: pa.Array, t: pa.DataType) -> pa.Array:
    """The column that `to_sqlite` was given."""
    if pa.types.is_nested(t):
        arrow = _arrow(t)
        return pa.array([None if v is None else arrow(json.loads(v)) for v in array.to_pylist()], t)
    if pa.types.is_date32(t):
        array = array.cast(pa.int32())
    return array if array.type == t else array.cast(t)


def from_sqlite(values: Sequence[Value], t: pa.DataType, key: bool = False) -> pa.Array:
    """The column that `to_sqlite` was given."""
    return from_stored(as_stored(values, t, key), t)


def _kind(t: pa.DataType) -> pa.DataType:
    """The storage class that values of a column have: numbers, text or bytes."""
    if pa.types.is_floating(t):
        return pa.float64()
    if pa.types.is_boolean(t) or pa.types.is_integer(t) or pa.types.is_temporal(t):
        return pa.int64()
    return pa.binary() if pa.types.is_binary(t) else pa.string()


def _no_value(t: pa.DataType) -> str | bytes:
    return "" if pa.types.is_binary(t) else b""


def _plain(t: pa.DataType) -> Callable[[Any], Any]:
    """How a Python value of this type becomes what JSON can say."""
    if pa.types.is_struct(t):
        parts = {f.name: _plain(f.type) for f in t}
        return _nullable(lambda v: {name: part(v[name]) for name, part in parts.items()})
    if pa.types.is_map(t):
        key, item = _plain(t.key_type), _plain(t.item_type)
        return _nullable(lambda v: [[key(k), item(i)] for k, i in v])
    if pa.types.is_list(t):
        inner = _plain(t.value_type)
        return _nullable(lambda v: [inner(i) for i in v])
    if pa.types.is_binary(t):
        return _nullable(lambda v: base64.b64encode(v).decode())
    if pa.types.is_decimal(t):
        return _nullable(lambda v: format(v, "f"))
    if pa.types.is_temporal(t):
        width = pa.int32() if pa.types.is_date32(t) else pa.int64()
        return _nullable(lambda v: pa.scalar(v, t).cast(width).as_py())
    if pa.types.is_floating(t):
        return _nullable(lambda v: v if math.isfinite(v) else str(v))
    return lambda v: v


def _arrow(t: pa.DataType) -> Callable[[Any], Any]:
    """How what JSON said becomes a Python value of this type again."""
    if pa.types.is_struct(t):
        parts = {f.name: _arrow(f.type) for f in t}
        return _nullable(lambda v: {name: part(v.get(name)) for name, part in parts.items()})
    if pa.types.is_map(t):
        key, item = _arrow(t.key_type), _arrow(t.item_type)
        return _nullable(lambda v: [(key(k), item(i)) for k, i in v])
    if pa.types.is_list(t):
        inner = _arrow(t.value_type)
        return _nullable(lambda v: [inner(i) for i in v])
    if pa.types.is_binary(t):
        return _nullable(base64.b64decode)
    if pa.types.is_decimal(t):
        return _nullable(decimal.Decimal)
    if pa.types.is_temporal(t):
        width = pa.int32() if pa.types.is_date32(t) else pa.int64()
        return _nullable(lambda v: pa.scalar(v, width).cast(t).as_py())
    return _nullable(float) if pa.types.is_floating(t) else lambda v: v


def _nullable(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda v: None if v is None else f(v)
