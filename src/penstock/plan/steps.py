"""A checked flow: steps in order, every schema and expression resolved. What the engine runs and `plan` prints."""

from dataclasses import dataclass
from functools import cached_property

from penstock.core.schema import Schema
from penstock.plan.node import Meaning, Node, OnError
from penstock.plan.origin import Origin
from penstock.plan.outputs import Output
from penstock.plan.sources import Source

DEAD_LIMIT = 0.5


@dataclass(frozen=True)
class Step:
    """One step. It gives exactly the columns of its schema; what comes in may have more."""

    name: str
    inputs: tuple[str, ...]
    node: Node
    schema: Schema
    origin: Origin
    updating: bool = False
    on_error: OnError = "dead"  # no part of what the step means: state lives on when it changes

    @property
    def keyed(self) -> bool:
        """It has state, in buckets by key."""
        return self.node.family is not None

    @property
    def diverts(self) -> bool:
        """Its late rows are kept, for `.late` or for the flow's own topic."""
        judging = self.node.judging()
        return judging is not None and judging.late in ("divert", "correct")

    def meaning(self) -> Meaning:
        """What its results depend on: what it does, to what, in which columns."""
        return {"inputs": list(self.inputs), "gives": self.schema.ddl(), "does": self.node.meaning()}


@dataclass(frozen=True)
class Plan:
    flow: str
    steps: tuple[Step, ...]  # every step after its inputs
    outputs: tuple[Output, ...]
    dead_limit: float | None = DEAD_LIMIT  # the share of failing rows beyond which the flow stops; None: none

    @cached_property
    def _by_name(self) -> dict[str, Step]:
        return {step.name: step for step in self.steps}

    def step(self, name: str) -> Step:
        return self._by_name[name]

    def output(self, id: str) -> Output:
        return next(output for output in self.outputs if output.id == id)

    @property
    def sources(self) -> dict[str, Source]:
        """The steps that read topics or static rows, by name."""
        return {step.name: step.node for step in self.steps if isinstance(step.node, Source)}

    def feeds(self, step: Step) -> tuple[str, ...]:
        """The steps whose rows come into this one: its inputs; of late rows, the input of the step that judged them."""
        tap = step.node.tap
        return step.inputs if tap is None else (self.step(step.inputs[0]).inputs[tap],)
