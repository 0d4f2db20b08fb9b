"""Joins of two streams within a time bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import pyarrow as pa

from penstock import plan
from penstock.core import time
from penstock.core.columns import LEFT, LEFT_TIME, RIGHT, RIGHT_TIME
from penstock.core.expression import Expression
from penstock.core.schema import Schema, type_text
from penstock.errors import BadTime
from penstock.flow.definition import Known
from penstock.flow.place import At
from penstock.flow.steps.matching import joined_schema, meeting_columns, right_names
from penstock.flow.steps.table_joins import table_join

_PLACES = [(LEFT, pa.binary()), (LEFT_TIME, pa.int64()), (RIGHT, pa.binary()), (RIGHT_TIME, pa.int64())]
Within = str | timedelta | tuple[str | timedelta, str | timedelta]


@dataclass(frozen=True)
class JoinDefinition:
    """Rows with equal `on` whose times lie within the bound, lo <= right - left <= hi; without a bound, of tables as they are."""

    on: tuple[str, ...]
    within: tuple[timedelta, timedelta] | None
    how: plan.How
    late: plan.Late
    where: str | None = None  # what else must hold of a pair
    on_error: plan.OnError = "dead"  # what becomes of a pair on which that fails

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
        if self.within is not None:
            return self._within(at, left, right, self.within, doing)
        if not (left.step.updating or right.step.updating):
            at.refuse(f"cannot {doing}: no time bound", hint='say how far apart two rows may be, e.g. within="30 minutes"')
        if self.where is not None:
            at.refuse(
                f"cannot {doing} where {self.where!r}: a join of tables takes no condition", hint="use .where() after the join"
            )
        return table_join(at, left, right, self.on, self.how, doing)

    def _within(self, at: At, left: Known, right: Known, within: tuple[timedelta, timedelta], doing: str) -> Known:
        """A join of streams. A semi or anti join gives the rows of the left side themselves."""
        on = meeting_columns(self.on, left, right, at, doing)
        names = right_names(on, left, right, at)
        both = joined_schema(on, names, left.schema, right.schema, "inner")
        clash = f"select other names on one side before the join, e.g. {right.label}.select(…)"
        at.new_columns(both.names, doing, hint=clash)
        condition = None if self.where is None else _condition(self.where, both, at, doing)
        definition = plan.Join(on, *within, self.how, self.late, names, condition)
        own = self.how in ("semi", "anti")
        schema = left.schema if own else joined_schema(on, names, left.schema, right.schema, self.how)
        if condition is not None and condition.tree is None:
            steps = _by_spark(at, left, right, definition, (both, schema), self.on_error)
        else:
            steps = (plan.Step(at.name, (left.name, right.name), definition, schema, at.origin, on_error=self.on_error),)
        if own:
            return Known(steps, at.label(left), left.view_key, left.topic_key, (left, right))
        return Known(steps, at.name, topic_key=on, inputs=(left, right))


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


def _condition(sql: str, schema: Schema, at: At, doing: str) -> Expression:
    """What else must hold of a pair. One that Penstock evaluates itself is evaluated where rows meet, others behind that."""
    condition = at.expression(sql, schema)
    if not pa.types.is_boolean(condition.type):
        at.refuse(
            f"cannot {doing} where {sql!r}: it is {type_text(condition.type)}, not true or false",
            hint='write a condition over the columns of both, e.g. where="paid >= amount"',
        )
    return condition


def _by_spark(
    at: At, left: Known, right: Known, join: plan.Join, schemas: tuple[Schema, Schema], on_error: plan.OnError
) -> tuple[plan.Step, ...]:
    """A join whose condition only Spark SQL can evaluate: all pairs, then those for which it holds, then what follows from them for
    rows that come out alone or once. schemas: of a pair, and of what comes out."""
    assert join.condition
    both, schema = schemas
    sides, bound = (left.name, right.name), (join.on, join.lo, join.hi)
    if join.how == "inner":
        pairs = plan.Step(at.name, sides, plan.Pairs(*bound, join.late, join.right), both, at.origin)
        return pairs, _where(at, pairs, join.condition, on_error)
    paired = Schema(pa.schema([*both.arrow, *_PLACES]))
    pairs = plan.Step(f"{at.name}.pairs", sides, plan.Pairs(*bound, "none", join.right), paired, at.origin)
    where = _where(at, pairs, join.condition, on_error)
    matched = plan.Matched(*bound, join.how, join.late, join.right)
    return pairs, where, plan.Step(at.name, (*sides, where.name), matched, schema, at.origin)


def _where(at: At, pairs: plan.Step, condition: Expression, on_error: plan.OnError) -> plan.Step:
    return plan.Step(f"{at.name}.where", (pairs.name,), plan.Where(condition), pairs.schema, at.origin, on_error=on_error)
