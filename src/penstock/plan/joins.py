"""Joins of two streams."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, Literal, Self

from penstock.core.expression import Expression
from penstock.core.time import duration_text, micros
from penstock.plan.node import Facts, How, Judging, Late, Meaning, Node, Sides, expression, runs_on, span


class StreamJoin(Node):
    """Two streams of which rows match if equal `on` and lo <= r.t - l.t <= hi."""

    on: tuple[str, ...]
    lo: timedelta
    hi: timedelta
    right: tuple[tuple[str, str], ...]  # name in the joined row -> name on the right side, without `on`

    def _facts(self, how: How, condition: Expression | None = None) -> Facts:
        yield "on", f"{', '.join(self.on)}, {how}"
        yield "within", f"{duration_text(self.lo)} to {duration_text(self.hi)}"
        if condition:
            yield "where", f"{condition.text}  [{runs_on(condition)}]"
        judging = self.judging()
        if judging:
            yield "judges", f"time ≥ watermark; late rows: {judging.late}"

    def always(self, given: Sequence[str]) -> set[str]:
        return set(self.on)

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        own, read = dict(self.right), wanted | self.compared()
        sides = [{*self.on, *(n for n in read if n not in own)}, {*self.on, *(own[n] for n in read if n in own)}]
        return [*sides, *(set[str]() for _ in above[2:])]

    def narrowed(self, given: Sequence[str]) -> Self:
        read = {*given, *self.compared()}
        return replace(self, right=tuple(r for r in self.right if r[0] in read))  # type: ignore[type-var]

    def compared(self) -> set[str]:
        """The columns of the joined row that its condition reads, whether or not they come out."""
        return set()

    def closed(self, newest: Sequence[int], end: int) -> int:
        return end + max(abs(micros(self.lo)), abs(micros(self.hi)))

    def sides(self) -> Sides:
        return Sides(self.on, self.right)

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [self.on]

    def _matching(self) -> Meaning:
        """What every meaning says of which rows match."""
        return {"on": list(self.on), "within": [span(self.lo), span(self.hi)], "right": [list(pair) for pair in self.right]}


@dataclass(frozen=True)
class Join(StreamJoin):
    """All kinds of joins whose condition, if there is one, Polars evaluates."""

    family: ClassVar[str] = "join"

    on: tuple[str, ...]
    lo: timedelta
    hi: timedelta
    how: How
    late: Late
    right: tuple[tuple[str, str], ...]
    condition: Expression | None = None  # over the columns of the joined row

    def facts(self) -> Facts:
        yield from self._facts(self.how, self.condition)

    def compared(self) -> set[str]:
        return set(self.condition.columns) if self.condition else set()

    def judging(self) -> Judging:
        return Judging(self.late)

    def meaning(self) -> Meaning:
        return {"is": "join/1", **self._matching(), "how": self.how, "late": self.late, "condition": expression(self.condition)}


@dataclass(frozen=True)
class Pairs(StreamJoin):
    """All pairs of a join whose condition only Spark SQL can evaluate."""

    family: ClassVar[str] = "join"
    how: ClassVar[How] = "inner"
    condition: ClassVar[None] = None

    on: tuple[str, ...]
    lo: timedelta
    hi: timedelta
    late: Late | Literal["none"]  # none: another step says what becomes of late rows
    right: tuple[tuple[str, str], ...]

    def facts(self) -> Facts:
        yield from self._facts(self.how)

    def always(self, given: Sequence[str]) -> set[str]:
        return set(given)  # of a pair whose condition fails, everything is told

    def judging(self) -> Judging | None:
        return None if self.late == "none" else Judging(self.late)

    def meaning(self) -> Meaning:
        return {"is": "pairs/1", **self._matching(), "late": self.late}


@dataclass(frozen=True)
class Matched(StreamJoin):
    """What such a join gives that is not inner. Inputs: both sides, and the pairs for which the condition holds."""

    family: ClassVar[str] = "matched"
    condition: ClassVar[None] = None

    on: tuple[str, ...]
    lo: timedelta
    hi: timedelta
    how: How
    late: Late
    right: tuple[tuple[str, str], ...]

    @property
    def kind(self) -> str:
        return "join"

    def facts(self) -> Facts:
        yield from self._facts(self.how)

    def judging(self) -> Judging:
        return Judging(self.late)

    def meaning(self) -> Meaning:
        return {"is": "matched/1", **self._matching(), "how": self.how, "late": self.late}
