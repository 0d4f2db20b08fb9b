"""PostgreSQL's text of values as JSON, by columns: for each value the JSON text that stands for it, never an error.

Numbers and booleans stand as such, days and times as ISO 8601, bytes as base64, arrays as JSON arrays, everything else as text. A
value that does not look as its type says is text too. JSON has no infinite days and times, and none outside of the years 1 to 9999:
those become the first or the last there is."""

import base64
import re
from collections.abc import Callable, Sequence

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.postgres.values.arrays import array_values
from penstock.capture.postgres.values.types import BOOL, BYTEA, DATE, FLOATS, INTEGERS, TIMESTAMP, TIMESTAMPTZ, PgType
from penstock.core.arrow import array_of, chosen, coalesced, joined, numbers_in, replaced, values_in

NULL = "null"
_INTEGER = r"\A-?(0|[1-9][0-9]*)\z"
_FLOAT = r"\A-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?\z"
_DAY = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_TIME = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\z"
_TIME_IN_ZONE = _TIME.replace(r"\z", r"\+00\z")
_AFTER = re.compile(r"infinity|[0-9]{5,}-.*", re.ASCII)
_BEFORE = re.compile(r"-infinity|[0-9]{4,}-.* BC", re.ASCII)
_FIRST_DAY, _LAST_DAY = "0001-01-01", "9999-12-31"
_FIRST_TIME, _LAST_TIME = f"{_FIRST_DAY}T00:00:00", f"{_LAST_DAY}T23:59:59.999999"


def json_values(values: pa.Array, type: PgType) -> pa.Array:
    """Each value, as PostgreSQL writes it, as JSON; the JSON null where it is null. values and result: utf8."""
    there = values.drop_null() if values.null_count else values
    words = _words(there, type.plain)
    if not values.null_count:
        return words
    places = np.cumsum(values.is_valid().to_numpy(zero_copy_only=False)) - 1
    return coalesced(words.take(array_of(places, np.asarray(values.is_null()))), pa.scalar(NULL))


def json_objects(names: Sequence[str], columns: Sequence[pa.Array], present: pa.Array | None = None) -> pa.Array:
    """One JSON object for each row, of columns that hold JSON values; null where `present` says that there is no row."""
    pieces: list[str | pa.Array] = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        pieces += [("," if i else "{") + orjson.dumps(name).decode() + ":", column]
    assert pieces, "a row without columns"
    if present is not None:
        pieces[0] = chosen(present, pa.scalar(str(pieces[0])), pa.scalar(None, pa.utf8()))
    return joined(*pieces, "}", "")


def json_texts(values: pa.Array) -> pa.Array:
    """Each text as a JSON string; null where there is none."""
    for character in _to_escape(values):
        values = replaced(values, character, by=orjson.dumps(character).decode()[1:-1])
    return joined('"', values, '"', "")


def _to_escape(values: pa.Array) -> list[str]:
    """The characters of these texts that JSON escapes, the backslash first as the others bring new ones."""
    _, ends, data = values.buffers()
    if not len(values) or data is None:
        return []
    edges = numbers_in(ends, np.int32, len(values) + 1, 4 * values.offset)
    there = numbers_in(data, np.uint8)[edges[0] : edges[-1]]
    found = there[(there < ord(" ")) | (there == ord('"')) | (there == ord("\\"))]
    return sorted(map(chr, np.unique(found)), key=lambda character: character != "\\") if len(found) else []


def _words(values: pa.Array, type: PgType) -> pa.Array:
    """Of values none of which is null."""
    element = type.element
    if element is not None:
        return array_values(values, type.delimiter, lambda elements: json_values(elements, element))
    words = _BY_TYPE.get(type.oid)
    return words(values) if words else json_texts(values)


def _booleans(values: pa.Array) -> pa.Array:
    words = chosen(pc.equal(values, pa.scalar("t")), pa.scalar("true"), pa.scalar("false"))
    return _where(pc.is_in(values, value_set=pa.array(["t", "f"])), words, values)


def _integers(values: pa.Array) -> pa.Array:
    return _where(pc.match_substring_regex(values, _INTEGER), values, values)


def _floats(values: pa.Array) -> pa.Array:
    words = chosen(pc.equal(values, pa.scalar("-0")), pa.scalar("-0.0"), values)  # as an integer it would lose its sign
    return _where(pc.match_substring_regex(values, _FLOAT), words, values)


def _days(values: pa.Array) -> pa.Array:
    return json_texts(_clamped(values, _DAY, values, _FIRST_DAY, _LAST_DAY))


def _times(values: pa.Array) -> pa.Array:
    texts = replaced(values, " ", by="T")
    return json_texts(_clamped(values, _TIME, texts, _FIRST_TIME, _LAST_TIME))


def _times_in_zone(values: pa.Array) -> pa.Array:
    texts = replaced(replaced(values, " ", by="T"), "+00", by="Z")
    return json_texts(_clamped(values, _TIME_IN_ZONE, texts, f"{_FIRST_TIME}Z", f"{_LAST_TIME}Z"))


def _clamped(values: pa.Array, usual: str, texts: pa.Array, first: str, last: str) -> pa.Array:
    """The texts of values that look as usual; the first or the last for those that lie before or after."""
    plain = pc.match_substring_regex(values, usual)
    if pc.all(plain).as_py():
        return texts
    odd = values_in(values.filter(pc.invert(plain)), str)
    found = [first if _BEFORE.fullmatch(each) else last if _AFTER.fullmatch(each) else each for each in odd]
    patched: pa.Array = pc.replace_with_mask(texts, pc.invert(plain), pa.array(found, pa.utf8()))
    return patched


def _bytes(values: pa.Array) -> pa.Array:
    return json_texts(pa.array([_base64(text) for text in values_in(values, str)], pa.utf8()))


def _base64(text: str) -> str:
    try:
        return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()
    except ValueError:
        return text


def _where(plain: pa.Array, words: pa.Array, values: pa.Array) -> pa.Array:
    """Words where the values are plain, texts where they are not."""
    return words if pc.all(plain).as_py() else chosen(plain, words, json_texts(values))


_BY_TYPE: dict[int, Callable[[pa.Array], pa.Array]] = {
    BOOL: _booleans,
    **dict.fromkeys(INTEGERS, _integers),
    **dict.fromkeys(FLOATS, _floats),
    DATE: _days,
    TIMESTAMP: _times,
    TIMESTAMPTZ: _times_in_zone,
    BYTEA: _bytes,
}
