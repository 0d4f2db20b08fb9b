"""The verb for alerts: one outage is one message."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import pyarrow as pa

from penstock import plan
from penstock.core.columns import HIDDEN
from penstock.core.expression import Expression
from penstock.core.schema import TIMESTAMP, Schema, type_text
from penstock.flow.definition import Known
from penstock.flow.place import At
from penstock.flow.steps.windows import worked_out

WHEN, RESOLVE = f"{HIDDEN}_when", f"{HIDDEN}_resolve"


@dataclass(frozen=True)
class AlertDefinition:
    """The rows with which each key begins and ends to fire; over rows that change its newest row, and whether it does."""

    when: str
    ends: str | None  # None: the rows for which `when` is false
    by: tuple[str, ...]
    every: timedelta | None
    late: plan.Late
    on_error: plan.OnError = "dead"

    kind: ClassVar[str] = "alert"
    judges: ClassVar[bool] = True
    takes_updates: ClassVar[bool] = True

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        by = at.columns(self.by, above.schema, "group alerts")
        for name in by:
            at.keyable(name, above.schema, "group alerts")
        changing = above.step.updating
        made = [pa.field("alert", pa.string(), nullable=changing), pa.field("since", TIMESTAMP, nullable=changing)]
        fields = [*above.schema.arrow, *made]
        at.new_columns(
            [f.name for f in fields], "alert", hint="an alert adds alert and since; select your column under another name"
        )
        before, schema = worked_out(at, above, self._conditions(at, above), self.on_error), Schema(pa.schema(fields))
        if changing:
            table = plan.AlertTable(by, WHEN, RESOLVE, above.view_key, settled_behind(above))
            step = plan.Step(at.name, (before[-1].name,), table, schema, at.origin, True, self.on_error)
            return Known((*before, step), at.name, by, by, (above,), judges=False)
        node = plan.Alert(by, WHEN, RESOLVE, self.every, self.late)
        step = plan.Step(at.name, (before[-1].name,), node, schema, at.origin, False, self.on_error)
        return Known((*before, step), at.name, (), by, (above,))

    def told(self, alert: Known) -> Known:
        """What an action is told of alerts over rows that change."""
        step = alert.step
        assert isinstance(step.node, plan.AlertTable)
        node = plan.Told(step.node.by, self.every)
        return Known(
            (plan.Step(f"{step.name}.told", (step.name,), node, step.schema, step.origin),), alert.label, (), node.by, (alert,)
        )

    def _conditions(self, at: At, above: Known) -> list[tuple[str, Expression]]:
        when = _condition(at, above, "when", self.when)
        ends = f"not ({self.when})" if self.ends is None else self.ends
        return [(WHEN, when), (RESOLVE, _condition(at, above, "resolve", ends))]


def _condition(at: At, above: Known, what: str, text: str) -> Expression:
    found = at.expression(text, above.schema)
    if not pa.types.is_boolean(found.type):
        at.refuse(f"cannot alert {what} {text!r}: it is {type_text(found.type)}, not true or false", hint=f'{what}="value > 90"')
    return found


def settled_behind(known: Known) -> timedelta | None:
    """How long behind their time rows can change, also where steps stand between that look at each row alone; None: for ever."""
    if known.step.keyed:
        return known.step.node.settles()
    return settled_behind(known.inputs[0]) if len(known.inputs) == 1 else None
