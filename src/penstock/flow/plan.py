"""A checked flow: steps in order, every schema and expression resolved. What the engine runs and `plan` prints."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

import pyarrow as pa

from penstock.core.expression import Expression
from penstock.core.schema import Schema

Late = Literal["divert", "ignore"]


@dataclass(frozen=True)
class Origin:
    """Where in the user's program a step was written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Source:
    topic: str
    time: str | None  # None: the record's own event time
    lateness: timedelta | None
    idle: timedelta
    columns: tuple[str, ...]  # those that any step reads, and the time
    key: tuple[str, ...] = ()  # the columns of the record's key, where the flow names them


@dataclass(frozen=True)
class Where:
    condition: Expression


@dataclass(frozen=True)
class Select:
    """select and with_columns alike: all output columns in order."""

    columns: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class MapArrow:
    function: Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class Union:
    pass


@dataclass(frozen=True)
class LateRows:
    """The rows that the input step diverted from one of its inputs, with the columns of this step's schema."""

    port: int = 0  # which input of the step they came in by: a join has two


@dataclass(frozen=True)
class Aggregate:
    name: str
    function: Literal["count", "sum", "avg", "min", "max"]
    column: str | None  # None: count of rows
    type: pa.DataType  # of the result


@dataclass(frozen=True)
class Window:
    family: ClassVar[str] = "window"

    by: tuple[str, ...]
    size: timedelta
    aggregates: tuple[Aggregate, ...]
    late: Late


@dataclass(frozen=True)
class Join:
    """l and r match iff equal `on` and lo <= r.t - l.t <= hi."""

    family: ClassVar[str] = "join"

    on: tuple[str, ...]
    lo: timedelta
    hi: timedelta
    how: Literal["inner", "left"]
    late: Late
    right: tuple[tuple[str, str], ...]  # output name -> name on the right side, without `on`


# Steps with state, which judge rows; their `family` names the kernels that run them.
Keyed = Window | Join
Definition = Source | Where | Select | MapArrow | Union | LateRows | Window | Join


@dataclass(frozen=True)
class Step:
    """One step. It gives exactly the columns of its schema; what comes in may have more."""

    name: str
    inputs: tuple[str, ...]
    definition: Definition
    schema: Schema
    origin: Origin
    updating: bool = False


@dataclass(frozen=True)
class Output:
    kind: Literal["topic", "view"]
    name: str
    input: str
    key: tuple[str, ...]  # view: the columns that name a row, () = its position; topic: the columns of the record's key
    partitions: int
    origin: Origin


@dataclass(frozen=True)
class Plan:
    flow: str
    steps: tuple[Step, ...]  # every step after its inputs
    outputs: tuple[Output, ...]

    def step(self, name: str) -> Step:
        return next(s for s in self.steps if s.name == name)
