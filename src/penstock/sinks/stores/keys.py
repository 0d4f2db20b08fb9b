"""The keys of rows, as stores have them that know no columns: bytes, and different ones for different keys."""

from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import Column, chosen, filled, joined, one_array, replaced, values_in
from penstock.core.columns import POSITION
from penstock.log.intake.text import iso_times, json_values
from penstock.sinks.stores.texts import json_texts

_NULL = b"%"  # no value looks like that


def keys_of(rows: pa.Table, key: tuple[str, ...]) -> pa.Array:
    """`value`, of several columns `value:value`; without columns the position of the row, in hexadecimal. Keys that differ stay
    different: % is %25, : where there are several columns is %3A, and null is a lone %."""
    if not key:
        return pa.array([position.hex().encode() for position in values_in(rows[POSITION], bytes)], pa.binary())
    words = [_key_word(plain_bytes(_without_sign(rows[name])), len(key) > 1) for name in key]
    return joined(*words, b":") if len(words) > 1 else words[0]


def digests_of(rows: pa.Table, key: tuple[str, ...]) -> list[str]:
    """The same, short: for stores whose keys are texts of a limited length."""
    return [sha256(each).hexdigest() for each in values_in(keys_of(rows, key), bytes)]


def plain_bytes(column: Column) -> pa.Array:
    """Each value as bytes, null where it is: text as UTF-8 and binary as it is, numbers with all digits, ISO times, JSON for nested
    values."""
    array, t = one_array(column), column.type
    if pa.types.is_binary(t):
        return array
    if pa.types.is_timestamp(t):
        array = iso_times(array)
    elif pa.types.is_decimal(t):
        array = pa.array(json_values(array), pa.string())
    elif pa.types.is_nested(t):
        array = json_texts(array)
    return array.cast(pa.string()).cast(pa.binary())


def _key_word(values: pa.Array, several: bool) -> pa.Array:
    values = replaced(values, "%", "%25")
    return filled(replaced(values, ":", "%3A") if several else values, _NULL)


def _without_sign(column: Column) -> Column:
    """Zero and minus zero are one key."""
    if not pa.types.is_floating(column.type):
        return column
    return chosen(pc.equal(one_array(column), pa.scalar(0.0, column.type)), pa.scalar(0.0, column.type), one_array(column))
