"""Types of columns in a MySQL: what is made for a column of a flow, and which of those that are there keep its values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import SinkError

_INDEXED = 3072  # bytes that InnoDB indexes of a row
_WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal")
_TEXTS = ("varchar", "char", "tinytext", "text", "mediumtext", "longtext")  # take everything, as it is written
_BYTES = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TIMES = ("datetime", "timestamp")
# What is made for a type, and what else takes its values. MySQL shows a FLOAT with six digits only, so none is made.
_KINDS: list[tuple[Callable[[pa.DataType], bool], str, tuple[str, ...]]] = [
    (pa.types.is_boolean, "BOOLEAN", (*_WHOLE, "bit")),
    (pa.types.is_int8, "TINYINT", (*_WHOLE, "float", "double")),
    (pa.types.is_int16, "SMALLINT", (*_WHOLE[1:], "float", "double")),
    (pa.types.is_int32, "INT", (*_WHOLE[3:], "double")),
    (pa.types.is_int64, "BIGINT", _WHOLE[4:]),
    (pa.types.is_float32, "DOUBLE", ("float", "double")),
    (pa.types.is_float64, "DOUBLE", ("double",)),
    (pa.types.is_binary, "LONGBLOB", _BYTES),
    (pa.types.is_date, "DATE", ("date", *_TIMES)),
    (pa.types.is_timestamp, "DATETIME(6)", _TIMES),
    (pa.types.is_decimal, "DECIMAL", ("decimal",)),
    (pa.types.is_nested, "JSON", ("json",)),
]


@dataclass(frozen=True)
class There:
    """A column of a table that is there."""

    name: str
    kind: str  # decimal
    declared: str  # decimal(10,2)
    scale: int | None  # digits behind the point
    fraction: int | None  # digits of its seconds
    collation: str | None


def declared(t: pa.DataType) -> str:
    if pa.types.is_decimal(t):
        return f"DECIMAL({t.precision}, {t.scale})"
    return next((word for fits, word, _ in _KINDS if fits(t)), "LONGTEXT")


def key_type(f: pa.Field, key: Sequence[pa.DataType]) -> str:
    """As an index over the key takes it: texts and bytes share what is left of InnoDB's limit."""
    if pa.types.is_nested(f.type):
        raise SinkError(f"column {f.name!r} tells rows apart, but is {declared(f.type)}, which MySQL does not index")
    long = [t for t in key if declared(t) in ("LONGTEXT", "LONGBLOB")]
    bytes_of_each = (_INDEXED - 20 * (len(key) - len(long))) // max(1, len(long))
    if declared(f.type) == "LONGBLOB":
        return f"VARBINARY({bytes_of_each})"
    return f"VARCHAR({bytes_of_each // 4})" if declared(f.type) == "LONGTEXT" else declared(f.type)


def takes(t: pa.DataType, there: There) -> bool:
    """Whether a column that is there keeps the values, or says so if not. A text may be for whatever the server reads: a uuid, an
    enum. What it would round without a word it does not take: decimals with fewer digits, times without microseconds."""
    if pa.types.is_decimal(t) and there.kind == "decimal":
        return bool((there.scale or 0) >= t.scale)
    if pa.types.is_timestamp(t) and there.kind in _TIMES:
        return there.fraction == 6
    if pa.types.is_floating(t) and "(" in there.declared:
        return there.kind in _TEXTS
    return there.kind in _TEXTS or next((there.kind in others for fits, _, others in _KINDS if fits(t)), True)


def tells_apart(collation: str | None) -> bool:
    """None: not a column of texts."""
    return (
        collation is None or collation == "binary" or (collation.endswith("_bin") and ("nopad" in collation or "0900" in collation))
    )
