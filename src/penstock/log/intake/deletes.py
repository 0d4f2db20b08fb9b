"""Deletes as people write them: a JSON object with the key columns and `"__op": "delete"`; of a raw topic its key as `__key`.

A delete is a record of its own: it says that the row of its key is gone. Typed topics store the columns that were given, all others
null, and the system column OPS; raw topics store a record without value, under the key.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from penstock.core.columns import KEY, OP, VALUE
from penstock.log.intake.codec import why_no_json
from penstock.log.intake.text import json_row, key_text
from penstock.log.port import TopicSpec

DELETE = "delete"
_MARK = b'"' + OP.encode() + b'"'
_BASE64 = "base64:"  # before keys that are no text

Gone = Mapping[int, Mapping[str, Any]]  # which rows are deletes, and the fields of each


def marked(values: Sequence[bytes]) -> dict[int, dict[str, Any]]:
    """The lines that say they are deletes: their fields."""
    found = {}
    for i, value in enumerate(values):
        if _MARK in value:
            fields = _object(value)
            if fields and fields.get(OP) == DELETE:
                found[i] = {name: field for name, field in fields.items() if name != OP}
    return found


def named(values: Sequence[bytes], spec: TopicSpec, refused: dict[int, str]) -> dict[int, dict[str, Any]]:
    """Lines that are keys: JSON objects with the key's fields, or the value of the one column that is the key."""
    out: dict[int, dict[str, Any]] = {}
    for i, value in enumerate(values):
        try:
            found = orjson.loads(value)
        except orjson.JSONDecodeError as bad:
            refused[i] = why_no_json(value, bad)
            found = {}
        out[i] = fields_of(found, spec)
        out[i].pop(OP, None)
    return out


def fields_of(key: Any, spec: TopicSpec) -> dict[str, Any]:
    """A key as its fields: an object as it is, a single value as that of the one key column."""
    if isinstance(key, Mapping):
        return dict(key)
    if isinstance(key, bytes) and spec.schema is None:
        return {KEY: key}
    return {spec.key if spec.key and "," not in spec.key else KEY: key}


def key_of(fields: Mapping[str, Any], names: Sequence[str]) -> bytes | None:
    """The key of a delete in a raw topic, where it is not the value of the topic's key fields: as it was given, or all fields."""
    given = fields.get(KEY)
    if isinstance(given, bytes):
        return given
    if isinstance(given, str) and given.startswith(_BASE64):
        try:
            return base64.b64decode(given.removeprefix(_BASE64), validate=True)
        except binascii.Error:
            return given.encode()
    if given is not None:
        return key_text(given)
    return None if names or not fields else json_row(fields)


def delete_line(row: Mapping[str, Any]) -> bytes:
    """A delete as one line of JSON that `produce` reads back: what is known of the row, and that it is gone."""
    return orjson.dumps({name: value for name, value in row.items() if value is not None and name != VALUE} | {OP: DELETE})


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
