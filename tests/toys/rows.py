"""A step from outside that looks at each row alone: a node, its verb, and what runs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.execute import rowwise
from penstock.engine.execute.rowwise import PerTable, RowStep
from penstock.flow.definition import Known
from penstock.flow.place import At
from penstock.plan import Facts, Meaning, Node, Step


@dataclass(frozen=True)
class Shout(Node):
    column: str

    def facts(self) -> Facts:
        yield "makes", f"{self.column} loud"

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [wanted | {self.column}]

    def meaning(self) -> Meaning:
        return {"is": "shout/1", "column": self.column}


@dataclass(frozen=True)
class ShoutDefinition:
    column: str

    kind: ClassVar[str] = "shout"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = False
    by: ClassVar[tuple[str, ...]] = ()

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        (column,) = at.columns([self.column], above.schema, "shout")
        step = Step(at.name, (above.name,), Shout(column), above.schema, at.origin)
        return Known((step,), at.name, above.view_key, above.topic_key, (above,))


def _shouting(step: Step, ordered: bool) -> RowStep:
    assert isinstance(step.node, Shout)
    name = step.node.column

    def loud(rows: pa.Table) -> pa.Table:
        return rows.set_column(rows.column_names.index(name), name, pc.utf8_upper(rows[name]))

    return PerTable(loud)


rowwise.register(Shout, _shouting)  # as a module is loaded
