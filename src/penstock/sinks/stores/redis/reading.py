"""Rows from the keys of a Redis: what stands there under a prefix, as columns again."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import POSITION
from penstock.core.schema import Schema
from penstock.sinks.stores.reading import UNREADABLE, rows_read
from penstock.sinks.stores.redis.resp import Connection, ReplyError, command, pairs
from penstock.sinks.stores.redis.rows import RowFormat

_SCANNED, _FETCHED = 1_000, 5_000  # keys that one SCAN looks at; rows that are read at one time
_SPECIAL = b"\\*?["


def stored_rows(connection: Connection, rows: RowFormat, schema: Schema) -> Iterator[pa.Table]:
    """A key that is none of ours, or holds something else, is left out; so is one that goes while it is read."""
    keys = sorted(set(_keys(connection, rows.prefix.encode() + b":")))  # SCAN may give a key twice
    for start in range(0, len(keys), _FETCHED):
        part = keys[start : start + _FETCHED]
        read = b"HGETALL" if rows.value == "hash" else b"GET"
        connection.send(b"".join(command(read, key) for key in part))
        answers = [connection.reply() for _ in part]
        found = [_row(key, answer, rows) for key, answer in zip(part, answers, strict=True)]
        lines = [line for line in found if line is not None]
        try:
            yield _table(lines, rows, schema)
        except UNREADABLE:  # one of them is none of ours
            yield _table([line for line in lines if _fits(line, rows, schema)], rows, schema)


def alone(rows: pa.Table, column: str, others: Sequence[str]) -> pa.Table:
    """Rows as a string under their key keeps them: without those that have none, and nothing of the other columns."""
    rows = rows.filter(pc.is_valid(rows[column]))
    for name in others:
        rows = rows.set_column(rows.column_names.index(name), name, pa.nulls(rows.num_rows, rows[name].type))
    return rows


def finite(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows as JSON keeps them: NaN and infinity are null."""
    for name in names:
        if pa.types.is_floating(rows[name].type):
            known = pc.if_else(pc.is_finite(rows[name]), rows[name], pa.scalar(None, rows[name].type))
            rows = rows.set_column(rows.column_names.index(name), name, known)
    return rows


def _keys(connection: Connection, prefix: bytes) -> Iterator[bytes]:
    pattern = b"".join(b"\\" + bytes([byte]) if byte in _SPECIAL else bytes([byte]) for byte in prefix) + b"*"
    cursor = b"0"
    while True:
        cursor, found = connection.ask("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
        yield from found
        if cursor == b"0":
            return


def _fits(line: dict[str, Any], rows: RowFormat, schema: Schema) -> bool:
    try:
        _table([line], rows, schema)
    except UNREADABLE:
        return False
    return True


def _row(key: bytes, answer: Any, rows: RowFormat) -> dict[str, Any] | None:
    """The key's columns and the others; None if it cannot be a row of ours."""
    named = _key_values(key[len(rows.prefix.encode()) + 1 :], rows.key)
    if named is None or answer is None or answer == [] or isinstance(answer, ReplyError):
        return None
    if rows.value == "hash":
        others: dict[str, Any] = dict(pairs(answer))
    elif rows.value == "json":
        others = _json(answer)
    else:
        others = {rows.column or "": answer}
    return named | {name: others.get(name, named.get(name)) for name in rows.columns}


def _key_values(word: bytes, key: Sequence[str]) -> dict[str, Any] | None:
    """What `keys_of` was given."""
    if not key:
        try:
            return {POSITION: bytes.fromhex(word.decode())}
        except ValueError:
            return None
    words = word.split(b":") if len(key) > 1 else [word]
    if len(words) != len(key):
        return None
    values = (None if each == b"%" else each.replace(b"%3A", b":").replace(b"%25", b"%") for each in words)
    return dict(zip(key, values, strict=True))


def _json(text: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _table(lines: Sequence[dict[str, Any]], rows: RowFormat, schema: Schema) -> pa.Table:
    kept: Iterable[str] = rows.columns if rows.value != "string" else dict.fromkeys([*rows.key, rows.column or ""])
    table = rows_read({name: [line.get(name) for line in lines] for name in kept}, schema)
    if rows.key:
        return table
    return table.append_column(POSITION, pa.array([line[POSITION] for line in lines], pa.binary()))
