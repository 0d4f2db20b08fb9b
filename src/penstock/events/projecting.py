"""Projections: the events of a store as a stream of a flow, with a column for every field that events have."""

import dataclasses
import datetime as dt
import types
import typing
from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from penstock.core.position import Position
from penstock.core.schema import TIMESTAMP, Schema
from penstock.errors import BadInput, PenstockError
from penstock.events.event import About, StoredEvent
from penstock.events.fields import written
from penstock.events.on_log.rows import SCHEMA
from penstock.events.types import EventTypes, Kinds, Unknown
from penstock.events.upcasting import Upcaster

if TYPE_CHECKING:
    from penstock.flow.graph import FlowGraph
    from penstock.flow.stream import Stream

HEAD = ("stream", "version", "event", "id", "at", "who", "correlation", "causation")
_HEAD_TYPES: tuple[pa.DataType, ...] = (
    pa.string(),
    pa.int64(),
    pa.string(),
    pa.string(),
    TIMESTAMP,
    pa.string(),
    pa.string(),
    pa.string(),
)
_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    dt.datetime: TIMESTAMP,
    dt.date: pa.date32(),
    Decimal: pa.decimal128(38, 18),
}
_NOWHERE = Position("", 0, 0)


class EventColumns:
    """Rows of a store's topic, as rows with a column for every field: of text, numbers and times as such, of others as JSON. Where
    two events have a field of one name, it is one column. Fields whose names are taken are called `data_…`."""

    def __init__(self, kinds: Sequence[type[Any]], known: EventTypes) -> None:
        self._known, self._kinds, self._columns = known, kinds, dict[str, tuple[str, pa.DataType]]()
        for kind in kinds:
            hints = typing.get_type_hints(kind)
            for field in dataclasses.fields(kind):
                self._add(kind, field.name, _type_of(hints[field.name]))

    def __repr__(self) -> str:
        return f"columns of {', '.join(kind.__name__ for kind in self._kinds)}"

    @property
    def schema(self) -> Schema:
        fields = [pa.field(name, t) for name, t in zip(HEAD, _HEAD_TYPES, strict=True)]
        return Schema.of(pa.schema(fields + [pa.field(name, t) for name, t in self._columns.values()]))

    def __call__(self, rows: pa.Table) -> pa.Table:
        """One row for each: an event that is not known raises, and is a dead letter."""
        events = [self._event(row) for row in rows.to_pylist()]
        columns = [rows.column(name) for name in HEAD]
        for field, (_, t) in self._columns.items():
            columns.append(pa.chunked_array([pa.array([_value(event, field, t) for event in events], t)]))
        return pa.table(columns, schema=self.schema.arrow)

    def _event(self, row: dict[str, Any]) -> Any:
        try:
            return self._known.decode(_stored(row))
        except PenstockError as error:
            raise ValueError(error.what) from error  # a row that fails, not a flow that cannot go on

    def _add(self, kind: type[Any], field: str, t: pa.DataType) -> None:
        known = self._columns.setdefault(field, (f"data_{field}" if field in HEAD else field, t))
        if known[1] != t:
            raise BadInput(
                f"field {field!r} of event {kind.__name__} is {t}, and {known[1]} in another event",
                hint="read these events as two streams: store.stream(flow, ItemAdded)",
            )


def _type_of(hint: Any) -> pa.DataType:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        some = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        hint = some[0] if len(some) == 1 else hint
    return _TYPES.get(hint, pa.string())


def _value(event: Any, field: str, t: pa.DataType) -> Any:
    value = getattr(event, field, None)
    if value is None or not pa.types.is_string(t) or type(value) is str:
        return value
    return orjson.dumps(value, default=written, option=orjson.OPT_NON_STR_KEYS).decode()


def _stored(row: dict[str, Any]) -> StoredEvent:
    about = About(row["who"], row["correlation"], row["causation"])
    return StoredEvent(row["stream"], row["version"], row["event"], row["number"], row["id"], 0, row["data"], about, _NOWHERE)


def project(
    flow: "FlowGraph", name: str, known: EventTypes, kinds: Iterable[type[Any]] = (), lateness: str | timedelta | None = None
) -> "Stream":
    """The events of the store of this name as a stream of a flow: see `EventStore.stream`."""
    wanted = known.chosen(kinds)
    some = len(wanted) < len(known.kinds)
    part, columns = "".join(f".{kind.__name__}" for kind in wanted) if some else "", EventColumns(wanted, known)
    rows = flow.stream(name, SCHEMA, time="at", lateness=lateness, name=f"{name}{part}" if some else None)
    if some or known.skips:
        names = ", ".join("'" + one.replace("'", "''") + "'" for one in sorted(known.names_of(wanted)))
        rows = rows.where(f"event in ({names})")
    return rows.map_arrow(columns, columns.schema, name=f"{name}{part}.events")


def stream_of(
    flow: "FlowGraph",
    name: str,
    events: Kinds,
    *kinds: type[Any],
    upcasters: Iterable[Upcaster] = (),
    unknown: Unknown = "error",
    lateness: str | timedelta | None = None,
) -> "Stream":
    """The same for the file of a flow, which opens no store: its name and the classes of its events are enough."""
    return project(flow, name, EventTypes(events, unknown, upcasters), kinds, lateness)
