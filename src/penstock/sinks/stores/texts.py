"""Columns as texts that databases read: exact numbers, ISO times in UTC, JSON for nested values."""

from collections.abc import Iterator

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import Column, joined, one_array, replaced, values_in
from penstock.log.intake.text import iso_times, json_values

_ESCAPED = r"[\\\t\n\r]"  # what stands differently in COPY's lines
_ESCAPES = (("\\", r"\\"), ("\t", r"\t"), ("\n", r"\n"), ("\r", r"\r"))
_SLICE = 50_000  # rows that are text at one time


def texts_of(column: Column) -> pa.Array:
    """Each value as text, null where it is; bytes are hexadecimal behind \\x, as PostgreSQL writes them."""
    array, t = one_array(column), column.type
    if pa.types.is_string(t):
        return array
    if pa.types.is_timestamp(t):
        return iso_times(array)
    if pa.types.is_binary(t):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in array.to_pylist()], pa.string())
    return json_texts(array) if pa.types.is_nested(t) else array.cast(pa.string())


def json_texts(column: Column) -> pa.Array:
    """Each value as JSON, as topics show it."""
    values = json_values(one_array(column))
    return pa.array([None if value is None else orjson.dumps(value).decode() for value in values], pa.string())


def copy_lines(table: pa.Table) -> Iterator[bytes]:
    """The rows in the text format of COPY, many at a time: columns between tabs, \\N for null."""
    for start in range(0, table.num_rows, _SLICE):
        columns = [_escaped(texts_of(column)).fill_null(r"\N") for column in table.slice(start, _SLICE).columns]
        pieces = [piece for column in columns for piece in (column, "\t")]
        yield b"".join(values_in(joined(*pieces[:-1], "\n", "").cast(pa.binary()), bytes))


def _escaped(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return texts
    for plain, escaped in _ESCAPES:
        texts = replaced(texts, plain, escaped)
    return texts
