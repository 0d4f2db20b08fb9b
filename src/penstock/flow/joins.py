"""Joins of two streams within a time bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

import pyarrow as pa

from penstock.core import time
from penstock.core.schema import Schema
from penstock.errors import BadTime
from penstock.flow import plan
from penstock.flow.definition import Known
from penstock.flow.matching import meeting_columns, right_names
from penstock.flow.place import At
from penstock.flow.table_joins import table_join

How = Literal["inner", "left"]
Within = str | timedelta | tuple[str | timedelta, str | timedelta]


@dataclass(frozen=True)
class JoinDefinition:
    """Pairs of rows with equal `on` whose times lie within the bound: lo <= right - left <= hi."""

    on: tuple[str, ...]
    within: tuple[timedelta, timedelta] | None
    how: How
    late: plan.Late

    kind: ClassVar[str] = "join"

    @property
    def judges(self) -> bool:
        """Tables are joined as they are now, whatever the time."""
        return self.within is not None

    @property
    def takes_updates(self) -> bool:
        return self.within is None

    @property
    def by(self) -> tuple[str, ...]:
        return self.on

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        left, right = inputs
        doing = f"join {left.label} with {right.label}"
        if self.within is None and (left.step.updating or right.step.updating):
            return table_join(at, left, right, self.on, self.how, doing)
        if self.within is None:
            at.refuse(f"cannot {doing}: no time bound", hint='say how far apart two rows may be, e.g. within="30 minutes"')
        on = meeting_columns(self.on, left, right, at, doing)
        names = right_names(on, left, right, at)
        left_names = [n for n in left.schema.names if n not in on]
        clash = f"select other names on one side before the join, e.g. {right.label}.select(…)"
        at.new_columns([*on, *left_names, *(new for new, _ in names)], doing, hint=clash)
        schema = _schema([*on, *left_names], names, left.schema, right.schema, self.how)
        definition = plan.Join(on, *self.within, self.how, self.late, names)
        step = plan.Step(at.name, (left.name, right.name), definition, schema, at.origin)
        return Known((step,), at.name, topic_key=on, inputs=(left, right))


def bounds(within: Within | None) -> tuple[timedelta, timedelta] | None:
    """The bound as (lo, hi): one duration reaches both ways; a pair says how far the right row may lie from the left."""
    if within is None:
        return None
    if not isinstance(within, tuple):
        if isinstance(within, str) and within.strip().startswith("-"):
            raise BadTime(
                f"within must not be negative: {within!r}",
                hint='for one direction give both bounds: within=("-5 minutes", "0 seconds")',
            )
        reach = time.duration(within, "within")
        return -reach, reach
    if len(within) != 2:
        raise BadTime(f"within has two bounds, not {len(within)}", hint='write it like within=("-5 minutes", "30 minutes")')
    lo, hi = (time.signed_duration(bound, "within") for bound in within)
    if lo > hi:
        raise BadTime(
            f"within={within!r} matches nothing: its first bound lies behind its second",
            hint='write it like ("-5 minutes", "30 minutes")',
        )
    return lo, hi


def _schema(first: Sequence[str], names: Sequence[tuple[str, str]], left: Schema, right: Schema, how: How) -> Schema:
    fields = [left.arrow.field(n) for n in first]
    for new, own in names:
        field = right.arrow.field(own).with_name(new)
        fields.append(field.with_nullable(True) if how == "left" else field)
    return Schema(pa.schema(fields))
