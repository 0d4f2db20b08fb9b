"""Rows of a topic as people read them: JSON values by their fields, keys and headers as text, position and times beside them."""

import base64
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from penstock.core.arrow import Column, table_of
from penstock.core.columns import (
    SHOWN_APPEND_TIME,
    SHOWN_HEADERS,
    SHOWN_KEY,
    SHOWN_OFFSET,
    SHOWN_OP,
    SHOWN_PARTITION,
    SHOWN_TIME,
    VALUE,
)
from penstock.log.consumer import output_names
from penstock.log.port import TopicSpec

META = (SHOWN_PARTITION, SHOWN_OFFSET, SHOWN_KEY, SHOWN_TIME, SHOWN_APPEND_TIME, SHOWN_HEADERS, SHOWN_OP)


@dataclass(frozen=True)
class Rows:
    """Some rows: all columns, the names of the topic's own, and the stored values where the topic is raw."""

    table: pa.Table
    own: tuple[str, ...]
    values: pa.ChunkedArray | None = None

    def meta(self, name: str) -> pa.ChunkedArray:
        """A column that stands beside the topic's own."""
        return self.table.column(len(self.own) + META.index(name))

    @property
    def op(self) -> str:
        """The column that tells deletes from rows, by its name here."""
        return str(self.table.schema.names[len(self.own) + META.index(SHOWN_OP)])

    @property
    def gone(self) -> list[int]:
        """The rows that are deletes."""
        ops = self.meta(SHOWN_OP)
        return [] if ops.null_count == len(ops) else [i for i, op in enumerate(ops.to_pylist()) if op is not None]

    @property
    def count(self) -> int:
        return int(self.table.num_rows)

    def take(self, places: pa.Array) -> "Rows":
        return Rows(self.table.take(places), self.own, None if self.values is None else self.values.take(places))

    def first(self, count: int | None) -> "Rows":
        if count is None or count >= self.count:
            return self
        return Rows(self.table.slice(0, count), self.own, None if self.values is None else self.values.slice(0, count))


def rows_of(table: pa.Table, spec: TopicSpec) -> Rows:
    """What was read, as it is shown and as conditions see it."""
    names = output_names(spec)
    meta: dict[str, Column] = {name: _meta(table.column(names[name]), name) for name in META}
    if spec.schema:
        own: dict[str, Column] = {name: table.column(name) for name in spec.schema.names}
        return Rows(table_of(own | {names[name]: column for name, column in meta.items()}), tuple(own))
    fields: dict[str, Column] = _fields(table.column(VALUE).to_pylist())
    return Rows(
        table_of(fields | {free_name(name, fields): column for name, column in meta.items()}), tuple(fields), table.column(VALUE)
    )


def free_name(name: str, taken: Any) -> str:
    """The name, with `_` before it as long as a field has it already."""
    while name in taken:
        name = "_" + name
    return name


def _meta(column: pa.ChunkedArray, name: str) -> pa.Array | pa.ChunkedArray:
    if name == SHOWN_KEY:
        return pa.array([readable(key) for key in column.to_pylist()], pa.string())
    if name == SHOWN_HEADERS:
        shown = [h and [(k, readable(v)) for k, v in h] for h in column.to_pylist()]
        return pa.array(shown, pa.map_(pa.string(), pa.string()))
    return column


def readable(data: bytes | None) -> str | None:
    """Bytes as text; base64, and said so, where they are none."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def parsed(value: bytes | None) -> dict[str, Any] | None:
    """A stored value as a JSON object, if it is one."""
    try:
        found = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def as_object(value: bytes | None) -> dict[str, Any]:
    """The same; a value that is no JSON object is one with the field `value`."""
    found = parsed(value)
    return {VALUE: readable(value)} if found is None else found


def _fields(values: list[bytes | None]) -> dict[str, Column]:
    rows = [{} if value is None else as_object(value) for value in values]  # a delete has no fields
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _field([row.get(name) for row in rows]) for name in names}


def _field(values: list[Any]) -> pa.Array:
    """A column of one type, if the values have one; else each as JSON text."""
    try:
        column: pa.Array = pa.array(values)
        return column
    except (pa.ArrowException, OverflowError):
        return pa.array([None if v is None else v if isinstance(v, str) else orjson.dumps(v).decode() for v in values], pa.string())
