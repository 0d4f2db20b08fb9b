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
    """The rows with which each key begins and ends to fire."""

    when: str
    ends: str | None  # None: the rows for which `when` is false
    by: tuple[str, ...]
    every: timedelta | None
    late: plan.Late
    on_error: plan.OnError = "dead"

    kind: ClassVar[str] = "alert"
    judges: ClassVar[bool] = True
    takes_updates: ClassVar[bool] = False

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        by = at.columns(self.by, above.schema, "group alerts")
        for name in by:
            at.keyable(name, above.schema, "group alerts")
        fields = [*above.schema.arrow, pa.field("alert", pa.string(), nullable=False), pa.field("since", TIMESTAMP, nullable=False)]
        at.new_columns(
            [f.name for f in fields], "alert", hint="an alert adds alert and since; select your column under another name"
        )
        before = worked_out(at, above, self._conditions(at, above), self.on_error)
        node = plan.Alert(by, WHEN, RESOLVE, self.every, self.late)
        step = plan.Step(at.name, (before[-1].name,), node, Schema(pa.schema(fields)), at.origin, False, self.on_error)
        return Known((*before, step), at.name, (), by, (above,))

    def _conditions(self, at: At, above: Known) -> list[tuple[str, Expression]]:
        when = _condition(at, above, "when", self.when)
        ends = f"not ({self.when})" if self.ends is None else self.ends
        return [(WHEN, when), (RESOLVE, _condition(at, above, "resolve", ends))]


def _condition(at: At, above: Known, what: str, text: str) -> Expression:
    found = at.expression(text, above.schema)
    if not pa.types.is_boolean(found.type):
        at.refuse(f"cannot alert {what} {text!r}: it is {type_text(found.type)}, not true or false", hint=f'{what}="value > 90"')
    return found
