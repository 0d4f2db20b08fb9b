"""Steps that aggregate: rows of one key within a stretch of time, or all of them, as one row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import pyarrow as pa

from penstock import plan
from penstock.core.expression import Expression
from penstock.core.schema import TIMESTAMP, Schema
from penstock.flow.definition import Known
from penstock.flow.place import At
from penstock.flow.steps.aggregates import Agg, output_field, resolve_all
from penstock.flow.steps.kinds import Kind, Sending
from penstock.flow.steps.rows import passed_on

CAUSE = pa.struct([pa.field("rows", pa.list_(pa.string())), pa.field("count", pa.int64())])
Aggregates = tuple[tuple[str, Agg], ...]


@dataclass(frozen=True)
class WindowDefinition:
    """The aggregates of each key and window."""

    window: Kind
    by: tuple[str, ...]
    aggregates: Aggregates
    late: plan.Late
    allowed: timedelta | None = None
    emit: plan.Emit = "final"
    early: timedelta | None = None
    on_error: plan.OnError = "dead"

    kind: ClassVar[str] = "window"
    judges: ClassVar[bool] = True
    takes_updates: ClassVar[bool] = False

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        self._check(at)
        made = _Aggregates(
            self.aggregates, self.by, above, at, lasting=self.window.lasting, doing="group the window", on_error=self.on_error
        )
        sending = Sending(self.late, self.allowed or timedelta(), self.emit, self.early)
        definition = self.window.planned(made.by, made.aggregates, sending)
        rows = [f for f in above.schema.arrow if f.name not in made.by] if self.window.gives_rows else []
        fields = [*made.keys(), *rows, *_stretch(), *made.fields(), pa.field("revision", pa.int64(), nullable=False)]
        fields += [pa.field("cause", CAUSE)] if self.late == "correct" else []
        at.new_columns(
            [f.name for f in fields],
            "aggregate",
            hint="a window adds window_start, window_end and revision; give your column another name",
        )
        updating = self.late == "correct" or self.emit == "updates" or self.early is not None
        return made.known(definition, fields, updating, ("window_start", *made.by) if self.window.keyed else ())

    def _check(self, at: At) -> None:
        kind = type(self.window).__name__
        if not self.window.keyed:
            if self.late == "correct":
                at.refuse(f"{kind} windows cannot be corrected", hint="give the stream a longer lateness instead")
            if self.emit == "updates" or self.early is not None:
                at.refuse(f"{kind} windows come once for every row", hint='leave emit="final"')
        if self.late == "correct" and self.allowed is None:
            at.refuse(
                'late="correct" needs a bound: how long after its end a window can still be corrected',
                hint='say it, e.g. allowed="1 hour"; its state is kept so long',
            )
        if self.late != "correct" and self.allowed is not None:
            what = f"allowed= says how long windows are corrected, and late={self.late!r} corrects none"
            at.refuse(what, hint='use late="correct"')
        if self.early is not None and self.emit == "updates":
            what = 'early= shows open windows now and then, and emit="updates" whenever they change'
            at.refuse(what, hint="give one of them")


@dataclass(frozen=True)
class RunningDefinition:
    """The aggregates of each key over all its rows."""

    by: tuple[str, ...]
    aggregates: Aggregates
    keep: timedelta | None
    on_error: plan.OnError = "dead"

    kind: ClassVar[str] = "group"
    takes_updates: ClassVar[bool] = True

    @property
    def judges(self) -> bool:
        """Only with `keep` does it look at time."""
        return self.keep is not None

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        made = _Aggregates(self.aggregates, self.by, above, at, lasting=False, doing="group", on_error=self.on_error)
        fields = [*made.keys(), *made.fields()]
        at.new_columns([f.name for f in fields], "aggregate", hint="give your column another name")
        if not above.step.updating:
            return made.known(plan.Running(made.by, made.aggregates, self.keep), fields, True, made.by)
        if self.keep is not None:
            at.refuse(
                f"cannot let keys of {above.label} go when they are silent: its rows stay until they are deleted",
                hint="leave keep= out",
            )
        return made.known(plan.Grouping(made.by, made.aggregates, above.view_key), fields, True, made.by)


@dataclass(frozen=True)
class LastDefinition:
    """The rows of the last so long: they come, and go as time goes on."""

    size: timedelta

    kind: ClassVar[str] = "last"
    judges: ClassVar[bool] = True
    takes_updates: ClassVar[bool] = False
    by: ClassVar[tuple[str, ...]] = ()

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        step = plan.Step(at.name, (above.name,), plan.Last(self.size), above.schema, at.origin, updating=True)
        return Known((step,), at.name, (), above.topic_key, (above,))


class _Aggregates:
    """The aggregates of a step, checked; with the hidden columns they are worked out from."""

    def __init__(
        self, given: Aggregates, by: Sequence[str], above: Known, at: At, *, lasting: bool, doing: str, on_error: plan.OnError
    ) -> None:
        if not given:
            at.refuse("cannot aggregate: no aggregate is given", hint="name one, e.g. agg(n=agg.count())")
        self.at, self.above, self.on_error = at, above, on_error
        self.by = at.columns(by, above.schema, doing)
        for name in self.by:
            at.keyable(name, above.schema, doing)
        self.aggregates, self.hidden = resolve_all(given, above.schema, at, lasting=lasting)

    def keys(self) -> list[pa.Field]:
        return [self.above.schema.arrow.field(name) for name in self.by]

    def fields(self) -> list[pa.Field]:
        return [output_field(a) for a in self.aggregates]

    def known(self, definition: plan.Aggregating, fields: list[pa.Field], updating: bool, view_key: tuple[str, ...]) -> Known:
        before = worked_out(self.at, self.above, self.hidden, self.on_error)
        source = before[-1].name if before else self.above.name
        step = plan.Step(self.at.name, (source,), definition, Schema(pa.schema(fields)), self.at.origin, updating, self.on_error)
        return Known((*before, step), self.at.name, view_key, self.by, (self.above,))


def _stretch() -> list[pa.Field]:
    return [pa.field("window_start", TIMESTAMP, nullable=False), pa.field("window_end", TIMESTAMP, nullable=False)]


def worked_out(at: At, above: Known, made: Sequence[tuple[str, Expression]], on_error: plan.OnError) -> tuple[plan.Step, ...]:
    """A select before the step that works out, in hidden columns, what it aggregates or asks."""
    if not made:
        return ()
    columns = [(name, passed_on(name, above.schema)) for name in above.schema.names]
    fields = [*above.schema.arrow, *(pa.field(name, e.type) for name, e in made)]
    definition = plan.Select((*columns, *made))
    schema = Schema(pa.schema(fields))
    return (plan.Step(f"{at.name}.input", (above.name,), definition, schema, at.origin, above.step.updating, on_error),)
