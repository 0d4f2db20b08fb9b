"""SQLite's values as JSON: numbers as such, text as text, bytes as base64. JSON has no infinite numbers: those become text."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from penstock.capture.sqlite.tables import Row
from penstock.errors import NotFollowable

_INFINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def json_rows(names: Sequence[str], rows: Sequence[Row]) -> pa.Array:
    """One JSON object for each row."""
    plain = _finite(rows)
    return pa.array([orjson.dumps(dict(zip(names, row, strict=True)), default=_base64).decode() for row in plain], pa.utf8())


def json_keys(table: str, names: Sequence[str], rows: Sequence[Row]) -> pa.Array:
    """The same for keys. NotFollowable if one is null: SQLite lets several rows of a table have such a key."""
    if any(None in row for row in rows):
        raise NotFollowable(f"table {table} has a row whose key is null: nothing tells which row a change is about")
    return json_rows(names, rows)


def _finite(rows: Sequence[Row]) -> Sequence[Row]:
    if not any(math.inf in row or -math.inf in row for row in rows):
        return rows
    return [tuple(_INFINITE.get(value, value) if isinstance(value, float) else value for value in row) for row in rows]


def _base64(value: Any) -> str:
    if not isinstance(value, bytes):
        raise TypeError(type(value))
    return base64.b64encode(value).decode()
