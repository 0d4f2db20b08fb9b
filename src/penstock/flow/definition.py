"""What a step of the graph is, before and after it is checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from penstock.core.schema import Schema
from penstock.plan import Origin, Step

if TYPE_CHECKING:
    from penstock.flow.place import At


@dataclass(frozen=True)
class Known:
    """A checked step: the steps it became (the last one gives its rows) and what the steps below it may rely on."""

    steps: tuple[Step, ...]
    label: str  # what a message or a column prefix calls it
    view_key: tuple[str, ...] = ()  # the columns that name a row; () = its position
    topic_key: tuple[str, ...] = ()  # the columns of a record's key
    inputs: "tuple[Known, ...]" = ()
    versions: "Known | None" = None  # of a table: the step that gives its versions, for joins as of a time
    judges: bool = True  # False: it looks at no time here, although its definition may

    @property
    def step(self) -> Step:
        return self.steps[-1]

    @property
    def judging(self) -> Step:
        """The step that says which rows are late; its own, where none does."""
        return next((step for step in reversed(self.steps) if step.keyed), self.step)

    @property
    def name(self) -> str:
        return self.step.name

    @property
    def schema(self) -> Schema:
        return self.step.schema


class Definition(Protocol):
    """A verb as a value. One for each kind of step; it lives in its family's file."""

    kind: ClassVar[str]  # the first word of the step's name

    @property
    def takes_updates(self) -> bool:
        """It may stand below an updating step."""
        ...

    @property
    def judges(self) -> bool:
        """It calls rows late, or lets them go as time goes on: it needs their time and lateness."""
        ...

    @property
    def by(self) -> tuple[str, ...]:
        """The columns that belong in the step's name."""
        ...

    def resolve(self, at: "At", inputs: Sequence[Known]) -> Known:
        """The checked step; raises BadFlow where it cannot be."""
        ...


@dataclass(frozen=True, eq=False)
class Node:
    """A definition in its place in the graph."""

    definition: Definition
    inputs: "tuple[Node, ...]" = field(repr=False)
    origin: Origin
