"""Tables: the current row of every key, from a topic, from a file, or from the rows of a stream."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa

from penstock import plan
from penstock.core.names import check_name
from penstock.core.schema import Schema, type_text
from penstock.flow.definition import Known
from penstock.flow.place import At
from penstock.flow.steps.captured import completed
from penstock.flow.steps.sources import time_column
from penstock.plan.origin import directory

Form = Literal["detect", "rows", "debezium"]


@dataclass(frozen=True)
class TableDefinition:
    """A topic of changes, with the key that names the rows and the time from which a version is valid."""

    topic: str
    schema: Schema | None  # None: as the capture of the topic knows it
    key: tuple[str, ...]  # (): the same
    time: str | None  # a column, or APPEND
    form: Form = "detect"
    op: str | None = None
    taken: bool = False  # schema or key were taken from a capture

    kind: ClassVar[str] = "table"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = True
    by: ClassVar[tuple[str, ...]] = ()

    @property
    def called(self) -> str:
        return self.topic

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        return _resolved(*completed(self, at), at)

    def form_over(self, schema: Schema) -> Form:
        """How records say it. Rows with such columns of their own cannot be taken for envelopes, whoever reads these columns."""
        own = any(name in schema for name in ("op", "before", "after"))
        return "rows" if own and self.form == "detect" else self.form


def _resolved(table: TableDefinition, schema: Schema, at: At) -> Known:
    key = _key(table.key, table.topic, schema, at)
    time = time_column(table.time, table.topic, schema, at)
    op = at.column(table.op, schema, f"tell what becomes of the rows of {table.topic}") if table.op else None
    if op and not pa.types.is_string(schema.type(op)):
        at.refuse(
            f"cannot tell from {op!r} what becomes of a row: it is {type_text(schema.type(op))}, not string",
            hint="an op column says insert, update or delete, or c, u, d",
        )
    versions = plan.Versions(key, table.form_over(schema), op, taken=schema.ddl() if table.taken else None)
    columns = tuple(schema.names)
    source = plan.Source(table.topic, time, None, timedelta(), columns, key, append=time is None, versions=versions)
    return _table(at, source, schema, by_position=table.form == "debezium" and time is not None)


@dataclass(frozen=True)
class StaticDefinition:
    """Rows of a file, or rows written in the flow: a table that never changes."""

    name: str
    static: plan.Static
    schema: Schema
    key: tuple[str, ...]

    kind: ClassVar[str] = "static"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = True
    by: ClassVar[tuple[str, ...]] = ()

    @property
    def called(self) -> str:
        return self.name

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        key = _key(self.key, self.name, self.schema, at)
        versions = plan.Versions(key, "rows", static=self.static)
        source = plan.Source(self.name, None, None, timedelta(), tuple(self.schema.names), key, versions=versions)
        return _table(at, source, self.schema)


@dataclass(frozen=True)
class LatestDefinition:
    """Of the rows of each key the newest."""

    by: tuple[str, ...]
    order: str | None

    kind: ClassVar[str] = "latest"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = False

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        by = _key(self.by, above.label, above.schema, at)
        order = at.column(self.order, above.schema, f"order the rows of {above.label}") if self.order else None
        if order:
            at.keyable(order, above.schema, "order rows by it")
        step = plan.Step(at.name, (above.name,), plan.Latest(by, order), above.schema, at.origin, updating=True)
        versions = None if order else replace(above, steps=above.steps[-1:], view_key=by)
        return Known((step,), at.name, by, by, (above,), versions)


def static_of(given: "str | Path | Iterable[Mapping[str, Any]]", schema: Schema) -> plan.Static:
    """Where the rows of a static table are; a file is not looked at before the flow runs."""
    if isinstance(given, str | Path):
        return plan.Static(str(given), beside=directory())
    return plan.Static(None, tuple(tuple(row.get(name) for name in schema.names) for row in given), tuple(schema.names))


def static_name(given: object, name: str | None) -> str:
    """What to call a static table: as it was named, else as its file is."""
    if name is None:
        name = Path(given).stem if isinstance(given, str | Path) else "static"
    return check_name(name, "table")


def _key(given: Sequence[str], whose: str, schema: Schema, at: At) -> tuple[str, ...]:
    if not given:
        at.refuse(f"cannot tell the rows of {whose} apart: no key", hint='name its columns, e.g. key="user_id"')
    key = at.columns(given, schema, f"tell the rows of {whose} apart")
    for name in key:
        at.keyable(name, schema, f"tell the rows of {whose} apart")
    return key


def _table(at: At, source: plan.Source, schema: Schema, *, by_position: bool = False) -> Known:
    """The source of versions, and the step that keeps the current row of each key."""
    name, key = at.step or source.topic, source.key
    versions = plan.Step(name, (), source, schema, at.origin)
    current = plan.Step(f"{name}.table", (name,), plan.Latest(key, by_position=by_position), schema, at.origin, updating=True)
    return Known((versions, current), name, key, key, versions=Known((versions,), name, key, key))


def refuse_append_only(known: Known, at: At, doing: str) -> None:
    """Refuses rows that are no table: named by nothing but their place in the log."""
    if not known.step.updating and not known.view_key:
        at.refuse(
            f"cannot {doing}: {known.label} is a stream, and its rows stay as they are",
            hint=f'give a time bound (within="30 minutes") to join events; use enrich() to look a table up; '
            f'or make a table of it: {known.label}.latest(by="…")',
        )
