"""Joins of streams and of tables, as a plan has them."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

from penstock.core.expression import Expression

Late = Literal["divert", "ignore", "correct"]
How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True)
class Join:
    """l and r match iff equal `on`, lo <= r.t - l.t <= hi, and the condition holds."""

    family: ClassVar[str] = "join"

    on: tuple[str, ...]
    lo: timedelta
    hi: timedelta
    how: How
    late: Late
    right: tuple[tuple[str, str], ...]  # name in the joined row -> name on the right side, without `on`
    condition: Expression | None = None  # over the columns of the joined row


@dataclass(frozen=True)
class Pairs:
    """All pairs of a join whose condition only Spark SQL can evaluate: equal `on`, lo <= r.t - l.t <= hi."""

    family: ClassVar[str] = "join"
    how: ClassVar[How] = "inner"
    condition: ClassVar[None] = None

    on: tuple[str, ...]
    lo: timedelta
    hi: timedelta
    late: Late | Literal["none"]  # none: another step says what becomes of late rows
    right: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Matched:
    """What such a join gives that is not inner. Inputs: both sides, and the pairs for which the condition holds."""

    family: ClassVar[str] = "matched"
    condition: ClassVar[None] = None

    on: tuple[str, ...]
    lo: timedelta
    hi: timedelta
    how: How
    late: Late
    right: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class TableJoin:
    """The rows of two tables with equal `on`, as they are now."""

    family: ClassVar[str] = "table-join"
    late: ClassVar[str] = "none"

    on: tuple[str, ...]
    how: How
    right: tuple[tuple[str, str], ...]  # output name -> name on the right side, without `on`
    keys: tuple[tuple[str, ...], tuple[str, ...]]  # what names a row of either side; () = its position
    key: tuple[str, ...]  # what names a row of the output; () = its position


StreamJoin = Join | Pairs | Matched
