"""Windows: rows of one key within a stretch of time, as one row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import pyarrow as pa

from penstock.core import time
from penstock.core.expression import Column, Expression
from penstock.core.schema import TIMESTAMP, Schema
from penstock.errors import BadTime
from penstock.flow import plan
from penstock.flow.aggregates import Agg, result_type
from penstock.flow.definition import Known
from penstock.flow.origin import origin
from penstock.flow.place import At
from penstock.flow.rows import passed_on

HIDDEN = "__in_"  # columns made for an aggregate over an expression


@dataclass(frozen=True, init=False)
class Tumbling:
    """Windows of one size, side by side, aligned to 1970 in UTC: `Tumbling("1 minute")`."""

    size: timedelta

    def __init__(self, size: str | timedelta) -> None:
        try:
            object.__setattr__(self, "size", time.duration(size, "window size"))
        except BadTime as error:
            raise BadTime(error.what, str(origin()), hint=error.hint) from None
        if not self.size:
            raise BadTime("a window needs a size greater than zero", str(origin()), hint='write it like Tumbling("1 minute")')


@dataclass(frozen=True)
class WindowDefinition:
    """The aggregates of each key and window."""

    window: Tumbling
    by: tuple[str, ...]
    aggregates: tuple[tuple[str, Agg], ...]
    late: plan.Late

    kind: ClassVar[str] = "window"
    judges: ClassVar[bool] = True
    takes_updates: ClassVar[bool] = False

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        by = _by(self.by, above.schema, at)
        if not self.aggregates:
            at.refuse("cannot aggregate: no aggregate is given", hint="name one, e.g. agg(n=agg.count())")
        inner = [(name, given, _input(name, given, above.schema, at)) for name, given in self.aggregates]
        aggregates = tuple(_aggregate(name, given, e, at) for name, given, e in inner)
        names = [*by, "window_start", "window_end", *(a.name for a in aggregates), "revision"]
        at.new_columns(
            names, "aggregate", hint="a window adds window_start, window_end and revision; give your column another name"
        )
        schema = Schema(pa.schema([*(above.schema.arrow.field(n) for n in by), *_made(aggregates)]))
        hidden = _hidden(at, above, [(name, e) for name, _, e in inner if e and not isinstance(e.tree, Column)])
        definition = plan.Window(by, self.window.size, aggregates, self.late)
        step = plan.Step(at.name, ((*hidden, above.step)[0].name,), definition, schema, at.origin)
        return Known((*hidden, step), at.name, ("window_start", *by), by, (above,))


def _by(names: Sequence[str], schema: Schema, at: At) -> tuple[str, ...]:
    by = at.columns(names, schema, "group the window")
    for name in by:
        at.keyable(name, schema, "group the window")
    return by


def _input(name: str, given: Agg, schema: Schema, at: At) -> Expression | None:
    return None if given.column is None else at.expression(given.column, schema)


def _aggregate(name: str, given: Agg, e: Expression | None, at: At) -> plan.Aggregate:
    if e is None:
        return plan.Aggregate(at.new_name(name), given.function, None, pa.int64())
    column = e.tree.name if isinstance(e.tree, Column) else HIDDEN + name
    return plan.Aggregate(at.new_name(name), given.function, column, result_type(given, e.type, at))


def _made(aggregates: Sequence[plan.Aggregate]) -> list[pa.Field]:
    stretch = [pa.field("window_start", TIMESTAMP, nullable=False), pa.field("window_end", TIMESTAMP, nullable=False)]
    values = [pa.field(a.name, a.type, nullable=a.function != "count") for a in aggregates]
    return [*stretch, *values, pa.field("revision", pa.int64(), nullable=False)]


def _hidden(at: At, above: Known, made: Sequence[tuple[str, Expression]]) -> tuple[plan.Step, ...]:
    """A select before the window that works out what is aggregated."""
    if not made:
        return ()
    columns = [(name, passed_on(name, above.schema)) for name in above.schema.names]
    columns += [(HIDDEN + name, e) for name, e in made]
    fields = [*above.schema.arrow, *(pa.field(HIDDEN + name, e.type) for name, e in made)]
    definition = plan.Select(tuple(columns))
    return (plan.Step(f"{at.name}.input", (above.name,), definition, Schema(pa.schema(fields)), at.origin),)
