"""Rows out of Arrow as text: JSON objects, and the keys of records.

Times are ISO 8601 ending in Z, days ISO 8601, decimals text with all their digits, binary base64, the keys of maps text. JSON
has no word for NaN and infinity: they become null.
"""

import base64
import decimal
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import joined, one_array, replaced, values_in
from penstock.core.time import micros, text

Shape = Callable[[Any], Any]

_ESCAPED = r'["\\\x00-\x1f]'  # what stands differently in JSON's texts
_PYTHON = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z | orjson.OPT_SERIALIZE_NUMPY


def encode_json(table: pa.Table | pa.RecordBatch) -> list[bytes]:
    """Each row as a JSON object, columns in their order."""
    return values_in(json_objects(table), bytes)


def json_objects(table: pa.Table | pa.RecordBatch) -> pa.Array:
    """The same as an array of binary, made a column at a time."""
    names = table.schema.names
    if not names:
        return pa.array([b"{}"] * table.num_rows, pa.binary())
    pieces: list[str | pa.Array] = []
    for i, name in enumerate(names):
        pieces += [("{" if i == 0 else ",") + orjson.dumps(name).decode() + ":", _words(flat(table.column(i)))]
    return joined(*pieces, "}", "").cast(pa.binary())


def _words(array: pa.Array) -> pa.Array:
    """Each value of a column as JSON writes it."""
    t = array.type
    if pa.types.is_integer(t) or pa.types.is_boolean(t):
        words = array.cast(pa.string())
    elif pa.types.is_floating(t):
        words = _split(orjson.dumps(array.cast(pa.float64()).to_numpy(zero_copy_only=False), option=orjson.OPT_SERIALIZE_NUMPY))
    elif pa.types.is_timestamp(t) or pa.types.is_date(t):
        words = _quoted(iso_times(array) if pa.types.is_timestamp(t) else array.cast(pa.string()))
    elif pa.types.is_string(t) and not pc.any(pc.match_substring_regex(array, _ESCAPED)).as_py():
        words = _quoted(array)
    else:
        return pa.array([orjson.dumps(value).decode() for value in json_values(array)], pa.string())
    return words.fill_null("null") if words.null_count else words


def _quoted(texts: pa.Array) -> pa.Array:
    return joined('"', texts, '"', "")


def _split(numbers: bytes) -> pa.Array:
    """`[1.5,null,2.0]` as its words."""
    inside = numbers[1:-1].decode()
    return pc.split_pattern(pa.array([inside], pa.string()), ",").flatten() if inside else pa.array([], pa.string())


def key_bytes(table: pa.Table | pa.RecordBatch, columns: str | Sequence[str]) -> pa.Array:
    """The key of each row: the text of its key column as UTF-8 (binary as it is), a JSON array where there are several.
    Null where the column is, or all of them are."""
    names = [columns] if isinstance(columns, str) else list(columns)
    if len(names) == 1:
        return _key_text(flat(table.column(names[0])))
    values = [json_values(table.column(name)) for name in names]
    rows = zip(*values, strict=True)
    return pa.array([None if all(v is None for v in row) else orjson.dumps(row) for row in rows], pa.binary())


def json_row(row: Mapping[str, Any]) -> bytes:
    """A Python row as JSON text; TypeError if JSON has no form for something in it."""
    return orjson.dumps(dict(row), default=_python_value, option=_PYTHON)[:-1]


def key_text(value: Any) -> bytes | None:
    """A JSON value as a key: text as it is, anything else as JSON writes it; None where there is none."""
    if value is None or isinstance(value, str):
        return value if value is None else value.encode()
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)[:-1]


def _python_value(value: Any) -> Any:
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"JSON has no form for a {type(value).__name__}")


def json_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as orjson writes them."""
    array = flat(column)
    t = array.type
    if pa.types.is_timestamp(t):
        array = iso_times(array)
    elif pa.types.is_date(t):
        array = array.cast(pa.string())
    shape = _shape(array.type)
    values: list[Any] = array.to_pylist()
    return values if shape is None else [None if v is None else shape(v) for v in values]


def flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one array of plain values."""
    array = one_array(column)
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def iso_times(array: pa.Array) -> pa.Array:
    """`core.time.text` for a whole column."""
    plain = array.cast(pa.timestamp("us", tz="UTC")).cast(pa.timestamp("us"))  # with a zone Arrow is thirty times slower
    texts = joined(plain.cast(pa.string()), "Z", "")
    return replaced(replaced(texts, " ", by="T"), ".000000Z", by="Z")


def _key_text(array: pa.Array) -> pa.Array:
    t = array.type
    if pa.types.is_binary(t) or pa.types.is_large_binary(t):
        return array.cast(pa.binary())
    if pa.types.is_timestamp(t):
        return iso_times(array).cast(pa.binary())
    if pa.types.is_string(t) or pa.types.is_integer(t) or pa.types.is_boolean(t) or pa.types.is_date(t):
        return array.cast(pa.string()).cast(pa.binary())
    return pa.array([None if v is None else _word(v).encode() for v in json_values(array)], pa.binary())


@cache
def _shape(t: pa.DataType) -> Shape | None:
    """How a value of this type is turned into what JSON has; None where it is that already."""
    if pa.types.is_decimal(t):
        return lambda value: format(value, "f")
    if pa.types.is_binary(t) or pa.types.is_large_binary(t):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_timestamp(t):
        return lambda value: text(micros(value))
    if pa.types.is_date(t):
        return lambda value: str(value.isoformat())
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return _list(_shape(t.value_type))
    if pa.types.is_map(t):
        return _map(_shape(t.key_type), _shape(t.item_type))
    return _struct({f.name: _shape(f.type) for f in t}) if pa.types.is_struct(t) else None


def _shaped(shape: Shape | None, value: Any) -> Any:
    return value if value is None or shape is None else shape(value)


def _list(inner: Shape | None) -> Shape | None:
    return None if inner is None else lambda values: [_shaped(inner, value) for value in values]


def _map(key: Shape | None, item: Shape | None) -> Shape:
    return lambda pairs: {_word(_shaped(key, k)): _shaped(item, v) for k, v in pairs}


def _word(key: Any) -> str:
    return key if isinstance(key, str) else orjson.dumps(key).decode()


def _struct(shapes: dict[str, Shape | None]) -> Shape:
    return lambda row: {name: _shaped(shapes[name], value) for name, value in row.items()}
