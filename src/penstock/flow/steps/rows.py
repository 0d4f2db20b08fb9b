"""Steps that take one row at a time: where, select, with_columns, map_arrow, and union, which takes rows from several streams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from penstock import plan
from penstock.core.expression import Column, Expression
from penstock.core.schema import Schema, type_text
from penstock.flow.definition import Known
from penstock.flow.place import At, find

Columns = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class WhereDefinition:
    """Keeps the rows for which the condition is true."""

    condition: str
    on_error: plan.OnError = "dead"

    kind: ClassVar[str] = "where"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = True
    by: ClassVar[tuple[str, ...]] = ()

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        condition = at.expression(self.condition, above.schema)
        if not pa.types.is_boolean(condition.type):
            at.refuse(
                f"cannot keep rows where {self.condition!r}: it is {type_text(condition.type)}, not true or false",
                hint='write a condition, e.g. where("amount > 100")',
            )
        step = plan.Step(at.name, (above.name,), plan.Where(condition), above.schema, at.origin, above.step.updating, self.on_error)
        versions = _versions_where(at, above.versions, condition)
        steps = (*(versions.steps if versions else ()), step)
        return Known(steps, at.label(above), above.view_key, above.topic_key, (above,), versions)


@dataclass(frozen=True)
class SelectDefinition:
    """The named columns in order, then the expressions under their names."""

    columns: tuple[str, ...]
    named: tuple[tuple[str, str], ...]
    on_error: plan.OnError = "dead"

    kind: ClassVar[str] = "select"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = True
    by: ClassVar[tuple[str, ...]] = ()

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        plain = [_plain(name, above.schema, at) for name in self.columns]
        chosen = tuple((name, passed_on(name, above.schema)) for name in plain)
        chosen += tuple((at.new_name(name), at.expression(sql, above.schema)) for name, sql in self.named)
        if not chosen:
            at.refuse("cannot select nothing", hint='name a column, e.g. select("order_id", eur="amount * 0.9")')
        at.new_columns([name for name, _ in chosen], "select", hint="give one of them another name")
        return projected(at, above, chosen, self.on_error)


@dataclass(frozen=True)
class WithColumnsDefinition:
    """All columns; an expression under the name of a column takes its place, others follow at the end."""

    named: tuple[tuple[str, str], ...]
    on_error: plan.OnError = "dead"

    kind: ClassVar[str] = "with_columns"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = True
    by: ClassVar[tuple[str, ...]] = ()

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        if not self.named:
            at.refuse("cannot add columns: none is given", hint='name an expression, e.g. with_columns(eur="amount * 0.9")')
        for name, _ in self.named:
            other = find(name, above.schema.names)
            if other is not None and other != name:
                at.refuse(
                    f"cannot add column {name!r}: there is {other!r}, which differs in case only",
                    hint=f"write {other} to replace it, or give the new column another name",
                )
        made = {at.new_name(name): at.expression(sql, above.schema) for name, sql in self.named}
        kept = [(name, made.pop(name) if name in made else passed_on(name, above.schema)) for name in above.schema.names]
        return projected(at, above, (*kept, *made.items()), self.on_error)


@dataclass(frozen=True)
class MapArrowDefinition:
    """A function over Arrow tables that gives one row for each row, without looking at other rows."""

    function: Callable[[pa.Table], pa.Table]
    schema: Schema
    on_error: plan.OnError = "dead"

    kind: ClassVar[str] = "map"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = False
    by: ClassVar[tuple[str, ...]] = ()

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        needed = [f.name for f in self.schema if not f.nullable]
        if self.on_error == "null" and needed:
            at.refuse(
                f"on_error='null' would leave column {needed[0]!r} null, and its schema says not null",
                hint="let the column be null, or set such rows aside with on_error='dead'",
            )
        step = plan.Step(at.name, (above.name,), plan.MapArrow(self.function), self.schema, at.origin, on_error=self.on_error)
        return Known((step,), at.label(above), inputs=(above,))


@dataclass(frozen=True)
class UnionDefinition:
    """The rows of several streams with the same columns."""

    kind: ClassVar[str] = "union"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = False
    by: ClassVar[tuple[str, ...]] = ()

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        first, *others = inputs
        if not others:
            at.refuse(f"cannot unite {first.label} with nothing", hint="name the other streams, e.g. a.union(b, c)")
        for other in others:
            mine, theirs = (first.label, other.label) if first.label != other.label else (first.name, other.name)
            differs = _difference(first.schema, other.schema, mine, theirs)
            if differs:
                at.refuse(
                    f"cannot unite {mine} with {theirs}: {differs}",
                    hint="bring both to the same columns with select first",
                )
        nullable = [any(known.schema.arrow.field(i).nullable for known in inputs) for i in range(len(first.schema.names))]
        schema = Schema(pa.schema([f.with_nullable(n) for f, n in zip(first.schema, nullable, strict=True)]))
        step = plan.Step(at.name, tuple(known.name for known in inputs), plan.Union(), schema, at.origin)
        same = all(known.topic_key == first.topic_key for known in others)
        return Known((step,), at.name, topic_key=first.topic_key if same else (), inputs=tuple(inputs))


def passed_on(name: str, schema: Schema) -> Expression:
    """A column as it is."""
    return Expression(f"`{name}`", schema.type(name), (name,), Column(name, schema.type(name)))


def projected(at: At, above: Known, columns: Columns, on_error: plan.OnError = "dead") -> Known:
    """A select step; keys live on under their new names while all their columns do."""
    if above.step.updating and above.view_key and not _renamed(above.view_key, columns):
        lost = next(name for name in above.view_key if not _renamed((name,), columns))
        at.refuse(
            f"cannot select without {lost!r}: rows of {above.label} change, and are told apart by {', '.join(above.view_key)}",
            hint=f"select {lost!r} too",
        )
    schema = Schema(pa.schema([_field(name, e, above.schema) for name, e in columns]))
    step = plan.Step(at.name, (above.name,), plan.Select(columns), schema, at.origin, above.step.updating, on_error)
    view_key, topic_key = _renamed(above.view_key, columns), _renamed(above.topic_key, columns)
    versions = _versions_selected(at, above.versions, columns, schema)
    steps = (*(versions.steps if versions else ()), step)
    return Known(steps, at.label(above), view_key, topic_key, (above,), versions)


def _versions_where(at: At, above: Known | None, condition: Expression) -> Known | None:
    """Versions of a table under a condition; None where only Spark SQL could tell which of them it holds for."""
    if above is None or condition.tree is None:
        return None
    step = plan.Step(f"{at.name}.versions", (above.name,), plan.Hidden(condition), above.schema, at.origin)
    return replace(above, steps=(step,), label=at.label(above), inputs=(above,))


def _versions_selected(at: At, above: Known | None, columns: Columns, schema: Schema) -> Known | None:
    if above is None or any(e.tree is None for _, e in columns):
        return None
    step = plan.Step(f"{at.name}.versions", (above.name,), plan.Select(columns), schema, at.origin)
    return Known((step,), at.label(above), _renamed(above.view_key, columns), inputs=(above,))


def _plain(name: str, schema: Schema, at: At) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        at.refuse(f"cannot select {name!r}: it has no name", hint=f'only columns go without; write select(total="{name}")')
    return at.column(name, schema, f"select {name!r}")


def _field(name: str, e: Expression, schema: Schema) -> pa.Field:
    nullable = schema.arrow.field(e.tree.name).nullable if isinstance(e.tree, Column) else True
    return pa.field(name, e.type, nullable)


def _renamed(key: tuple[str, ...], columns: Columns) -> tuple[str, ...]:
    new = {e.tree.name: name for name, e in reversed(columns) if isinstance(e.tree, Column)}
    return tuple(new[name] for name in key) if all(name in new for name in key) else ()


def _difference(first: Schema, other: Schema, mine: str, theirs: str) -> str | None:
    for name in first.names:
        if name not in other:
            return f"{theirs} has no column {name!r}"
        if first.type(name) != other.type(name):
            return f"column {name!r} is {type_text(first.type(name))} in {mine} and {type_text(other.type(name))} in {theirs}"
    extra = [name for name in other.names if name not in first]
    if extra:
        return f"{mine} has no column {extra[0]!r}"
    return None if first.names == other.names else "their columns stand in another order"
