"""The rows that a step diverted because they came too late."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock import plan
from penstock.core.expression import Expression, Literal
from penstock.core.schema import Schema, type_text
from penstock.flow.definition import Known
from penstock.flow.place import At
from penstock.flow.steps.matching import joined_schema
from penstock.flow.steps.rows import Columns, passed_on


@dataclass(frozen=True)
class LateDefinition:
    """Late rows as they came in. Of a join: the columns of both sides, those of the other one null."""

    kind: ClassVar[str] = "late"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = True
    by: ClassVar[tuple[str, ...]] = ()

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (judged,) = inputs
        node = judged.judging.node
        judging = node.judging()
        if judging is None:
            at.refuse(f"cannot read the late rows of {judged.label}: it calls none late", hint="take those of a window or a join")
        if judging.late == "ignore":
            at.refuse(f"cannot read the late rows of {judged.label}: it ignores them", hint='use late="divert" there')
        sides = node.sides()
        if sides:
            return _of_join(at, judged, sides)
        above = judged.inputs[0]
        step = plan.Step(at.name, (judged.judging.name,), plan.LateRows(), above.schema, at.origin)
        return Known((step,), at.name, above.view_key, above.topic_key, (judged,))


def _of_join(at: At, judged: Known, join: plan.Sides) -> Known:
    """Both sides, each brought to the columns of the joined row, then put together."""
    left, right = judged.inputs
    from_right = dict(join.right) | {n: n for n in join.on}
    from_left = {n: n for n in left.schema.names}
    schema = joined_schema(join.on, join.right, left.schema, right.schema, "full")
    steps: list[plan.Step] = []
    for port, (side, own) in enumerate(((left, from_left), (right, from_right))):
        rows = f"{at.name}.{('left', 'right')[port]}"
        columns: Columns = tuple((f.name, _side(f, side.schema, own)) for f in schema)
        steps.append(plan.Step(rows, (judged.judging.name,), plan.LateRows(port), side.schema, at.origin))
        steps.append(plan.Step(f"{rows}.columns", (rows,), plan.Select(columns), schema, at.origin))
    inputs = (steps[1].name, steps[3].name)
    steps.append(plan.Step(at.name, inputs, plan.Union(), schema, at.origin))
    return Known(tuple(steps), at.name, topic_key=join.on, inputs=(judged,))


def _side(field: pa.Field, schema: Schema, own: dict[str, str]) -> Expression:
    if field.name in own:
        return passed_on(own[field.name], schema)
    return Expression(f"cast(null as {type_text(field.type)})", field.type, (), Literal(None, field.type))
