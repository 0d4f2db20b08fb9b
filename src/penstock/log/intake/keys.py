"""The columns of a key from the bytes of a record's key: as `text.key_bytes` wrote them, or as a JSON object with their names."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from penstock.core.schema import Schema
from penstock.log.intake.conversion import Misfit, converter, misfit_text

_WORDS = {"true": True, "false": False}


def key_row(key: bytes | None, names: Sequence[str], schema: Schema) -> dict[str, Any] | str:
    """The values of the key columns, or the reason why the key does not say them.

    One column: its text (binary as it is). Several: a JSON array in their order. Either way a JSON object that has the columns
    as fields is taken too, also inside {"schema": …, "payload": …}, as change data capture writes it."""
    if key is None:
        return "it has no key"
    values = _values(key, names, schema)
    if values is None:
        return f"its key {_shown(key)} does not hold {', '.join(names)}"
    row: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        t = schema.type(name)
        try:
            row[name] = converter(t)(_WORDS.get(value, value) if pa.types.is_boolean(t) and isinstance(value, str) else value)
        except Misfit as bad:
            return f"its key does not fit: {misfit_text(name, t, value, str(bad))}"
    return row


def _values(key: bytes, names: Sequence[str], schema: Schema) -> list[Any] | None:
    try:
        parsed = orjson.loads(key)
    except orjson.JSONDecodeError:
        parsed = None
    if isinstance(parsed, dict):
        named: Mapping[str, Any] = parsed["payload"] if isinstance(parsed.get("payload"), dict) else parsed
        if all(name in named for name in names):
            return [named[name] for name in names]
    if len(names) > 1:
        return parsed if isinstance(parsed, list) and len(parsed) == len(names) else None
    return [key if pa.types.is_binary(schema.type(names[0])) else key.decode("utf-8", "surrogateescape")]


def _shown(key: bytes) -> str:
    return ascii(key.decode("utf-8", "backslashreplace")[:60])
