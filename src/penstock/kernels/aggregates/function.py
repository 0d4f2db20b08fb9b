"""What an aggregate answers for itself: the type of its result, what is kept of a group's rows, how the result is read off that."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.schema import type_text
from penstock.errors import BadFlow
from penstock.kernels.aggregates.bags import Bag
from penstock.kernels.aggregates.parts import Numbers, Part
from penstock.kernels.columns import column

Seconds = npt.NDArray[np.float64]


class Input(NamedTuple):
    """What an aggregate is to be taken of: an expression as it was written, and its type."""

    text: str
    type: pa.DataType


@dataclass(frozen=True)
class Taken:
    """An aggregate in its place: what its result is called, the columns it is taken of, and the types of both."""

    name: str
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]  # of the columns
    type: pa.DataType  # of the result

    @property
    def column(self) -> str:
        return self.columns[0]

    @property
    def input(self) -> pa.DataType:
        """The type of the first column."""
        return self.types[0]


@dataclass(frozen=True)
class Folded:
    """Folded partial results, one row a group. seconds: how long the stretch of time of each is, where there is one."""

    table: pa.Table
    seconds: Seconds | None = None

    @property
    def groups(self) -> int:
        return int(self.table.num_rows)

    def array(self, part: Part) -> pa.Array:
        return column(self.table, part.at(0))

    def numbers(self, part: Part) -> Numbers:
        return np.asarray(self.array(part).to_numpy(zero_copy_only=False))

    def limbs(self, part: Part) -> list[Numbers]:
        return [column(self.table, f.name).to_numpy(zero_copy_only=False) for f in part.fields]

    def items(self, bag: Bag) -> pa.Table:
        """The items of all groups, with GROUP."""
        return bag.unpacked(column(self.table, bag.name))


class AggregateFunction(ABC):
    """One aggregate. An instance is a frozen value: its fields are what it was given beside columns, and identify its state
    together with its name. It goes to tasks pickled."""

    name: ClassVar[str]
    nullable: ClassVar[bool] = True  # whether the result can be null; a group has at least one row
    per_time: ClassVar[bool] = False  # it is told per stretch of time, and refused where there is none

    @property
    def options(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in fields(self)) if is_dataclass(self) else ()

    @abstractmethod
    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        """The type of the result; BadFlow, or `refuse`, where it cannot be taken of these."""

    @abstractmethod
    def keeps(self, of: Taken) -> Sequence[Part] | Bag:
        """What is kept of a group's rows: parts, or one bag. Aggregates of a step share what is equal."""

    @abstractmethod
    def result(self, of: Taken, folded: Folded) -> pa.Array:
        """The aggregate of each group, read off what was kept."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, AggregateFunction) and other.options == self.options

    def __hash__(self) -> int:
        return hash((type(self), self.options))

    def refuse(self, given: Input, why: str, hint: str) -> NoReturn:
        raise BadFlow(f"cannot take {self.name} of {given.text!r}, which is {type_text(given.type)}: {why}", hint=hint)

    def numeric(self, given: Input, more: str = "") -> None:
        """Refuses what is no number. more: what else the verb is given."""
        t = given.type
        if not (pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t)):
            hint = f'make numbers of it first, e.g. agg.{self.name}("cast({given.text} as double)"{more})'
            self.refuse(given, "it takes numbers", hint)

    def ordered(self, given: Input) -> None:
        """Refuses values without an order."""
        if pa.types.is_nested(given.type):
            self.refuse(given, "its values have no order", "take a part that has one")
