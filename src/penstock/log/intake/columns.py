"""Columns of rows into Arrow: whole columns at once where every value is plain, value by value where one is not."""

import datetime as dt
import decimal
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import values_in
from penstock.core.schema import TIMESTAMP, Schema, type_text
from penstock.core.time import FIRST
from penstock.log.intake.conversion import Misfit, converter, misfit_text

Reasons = dict[int, str]

_NONE = type(None)
_INTEGERS, _NUMBERS, _DECIMALS = {int, _NONE}, {int, float, _NONE}, {int, decimal.Decimal, _NONE}
_STRINGS, _BOOLEANS = {str, _NONE}, {bool, _NONE}
# The shapes of text that Arrow reads exactly as `instant` and `date.fromisoformat` do.
_PLAIN_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z?$"
_PLAIN_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"


def columns_of(rows: Sequence[Mapping[str, Any]], schema: Schema, refused: Reasons, gone: Collection[int] = ()) -> list[pa.Array]:
    """One array a column. Rows that do not fit are added to `refused` with the first reason; their values are null.
    gone: the rows that are deletes, which need no more than their key."""
    return [_column(rows, f, refused, gone) for f in schema]


def _column(rows: Sequence[Mapping[str, Any]], f: pa.Field, refused: Reasons, gone: Collection[int]) -> pa.Array:
    name = f.name
    values = [row.get(name) for row in rows]
    array = plain_column(values, f.type)
    if array is None:
        array = column_by_value(values, f, refused)
    if array.null_count and not f.nullable:
        for i in values_in(pc.indices_nonzero(array.is_null()), int):
            if i not in gone:
                refused.setdefault(i, _null_reason(rows[i], f))
    return array


def _null_reason(row: Mapping[str, Any], f: pa.Field) -> str:
    found = "null" if f.name in row else "nothing"
    return f"column {f.name!r} wants {type_text(f.type)}, found {found}: it must not be null"


def plain_column(values: list[Any], t: pa.DataType) -> pa.Array | None:
    """The array, if every value is of the one kind that Arrow takes as it is; None says: look at each value."""
    kinds = set(map(type, values))
    try:
        if pa.types.is_integer(t):
            return pa.array(values, t) if kinds <= _INTEGERS else None
        if pa.types.is_float64(t):
            return pa.array(values, t) if kinds <= _NUMBERS else None
        if pa.types.is_string(t):
            return pa.array(values, t) if kinds <= _STRINGS else None
        if pa.types.is_boolean(t):
            return pa.array(values, t) if kinds <= _BOOLEANS else None
        if pa.types.is_decimal(t):
            return pa.array(values, t) if kinds <= _DECIMALS and not _beyond_arrow(values) else None
        if pa.types.is_timestamp(t):
            return _times(values, kinds)
        if pa.types.is_date(t):
            return _days(values, kinds)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        pass
    return None


def _beyond_arrow(values: list[Any]) -> bool:
    """Whether a decimal has more places than Arrow's own type: Arrow takes some of these for 0 without a word."""
    return any(isinstance(v, decimal.Decimal) and v.is_finite() and int(v.as_tuple().exponent) < -38 for v in values)


def _times(values: list[Any], kinds: set[type]) -> pa.Array | None:
    if kinds <= {dt.datetime, _NONE}:
        return pa.array(values, TIMESTAMP)
    return times_in(pa.array(values, pa.string())) if kinds <= _STRINGS else None


def times_in(texts: pa.Array) -> pa.Array | None:
    """Texts as times; None where one of them needs a closer look."""
    if not _all_match(texts, _PLAIN_TIME):
        return None
    array = pc.utf8_rtrim(texts, "Z").cast(pa.timestamp("us")).cast(TIMESTAMP)
    least = pc.min(array.cast(pa.int64())).as_py()
    return None if least is not None and least < FIRST else array


def _days(values: list[Any], kinds: set[type]) -> pa.Array | None:
    return days_in(pa.array(values, pa.string())) if kinds <= _STRINGS else None


def days_in(texts: pa.Array) -> pa.Array | None:
    """Texts as days; None where one of them needs a closer look."""
    if not _all_match(texts, _PLAIN_DAY) or pc.any(pc.starts_with(texts, "0000")).as_py():
        return None
    return texts.cast(pa.date32())


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


def column_by_value(values: list[Any], f: pa.Field, refused: Reasons) -> pa.Array:
    """The array, each value converted by itself; what does not fit is null and its reason is kept."""
    convert, out = converter(f.type), []
    for i, value in enumerate(values):
        try:
            out.append(convert(value))
        except Misfit as bad:
            refused.setdefault(i, misfit_text(f.name, f.type, value, str(bad)))
            out.append(None)
    array: pa.Array = pa.array(out, f.type)
    return array
