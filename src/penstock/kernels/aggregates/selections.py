"""Rows' own values: the first, the last, all in order, the top ones."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import POSITION, TIME
from penstock.kernels.aggregates.bags import Bag, Longs, by_group, ends, ordered, ranks
from penstock.kernels.aggregates.function import AggregateFunction, Folded, Input, Taken
from penstock.kernels.column_names import GROUP, ROW
from penstock.kernels.columns import as_type, column, numbers, plain

VALUE, BY = "value", "by"

_PLACE: list[pa.Field] = [pa.field(TIME, pa.int64()), pa.field(POSITION, pa.binary())]  # where a row stands in the order of ties


class _Selection(AggregateFunction):
    @abstractmethod
    def keeps(self, of: Taken) -> "Placed": ...

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        bag = self.keeps(of)
        return bag.results(folded.items(bag), folded.groups, of.type)


@dataclass(frozen=True)
class First(_Selection):
    """The value of the row that is first by (time, position)."""

    name = "first"
    end: ClassVar[Literal["first", "last"]] = "first"

    nulls: bool = True  # whether it may be null there

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        return inputs[0].type

    def keeps(self, of: Taken) -> "Placed":
        return End(self.end, of.column, of.input, nulls=self.nulls)


class Last(First):
    """The value of the row that is last by (time, position)."""

    name = "last"
    end = "last"


class Collect(_Selection):
    """All values that are not null, in the order (time, position)."""

    name = "collect"
    nullable = False

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        return pa.list_(inputs[0].type)

    def keeps(self, of: Taken) -> "Placed":
        return Collected(of.column, of.input)


@dataclass(frozen=True)
class Top(_Selection):
    """The values of the n rows with the greatest `by`, the second column."""

    name = "top"
    nullable = False

    n: int

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        self.ordered(inputs[1])
        return pa.list_(inputs[0].type)

    def keeps(self, of: Taken) -> "Placed":
        (column, by), (t, by_type) = of.columns, of.types
        return Highest(self.n, column, t, by, by_type)


class Placed(Bag):
    """Values with the time and position of their rows."""

    needs_position = True

    def __init__(self, kind: str, name: str, t: pa.DataType, *, nulls: bool) -> None:
        self.name, self.columns, self._nulls = f"__{kind}_{name}", (name,), nulls
        self.fields = [*_PLACE, pa.field(VALUE, t)]

    def items(self, rows: pa.Table, groups: Longs) -> pa.Table:
        values = column(rows, self.columns[0])
        columns = {GROUP: pa.array(groups), TIME: column(rows, TIME), POSITION: column(rows, POSITION), VALUE: values}
        return pa.table(columns) if self._nulls else _without_nulls(columns)

    @abstractmethod
    def results(self, items: pa.Table, groups: int, t: pa.DataType) -> pa.Array:
        """Of each group, from reduced items."""


class Collected(Placed):
    """All values of a column that are not null, in the order (time, position)."""

    def __init__(self, name: str, t: pa.DataType) -> None:
        super().__init__("collect", name, t, nulls=False)

    def reduced(self, items: pa.Table) -> pa.Table:
        return by_group(items)  # brought into order when they are read

    def results(self, items: pa.Table, groups: int, t: pa.DataType) -> pa.Array:
        return _lists(ordered(items, [TIME, POSITION]), groups, t)


class End(Placed):
    """The value of the row that is first or last by (time, position)."""

    def __init__(self, which: str, name: str, t: pa.DataType, *, nulls: bool) -> None:
        super().__init__(which if nulls else f"{which}_known", name, t, nulls=nulls)
        self._last = which == "last"

    def reduced(self, items: pa.Table) -> pa.Table:
        near = ordered(_nearest(items, last=self._last), [TIME, POSITION], [TIME, POSITION] if self._last else [])
        return near.filter(pa.array(ranks(numbers(near, GROUP)) == 0))

    def results(self, items: pa.Table, groups: int, t: pa.DataType) -> pa.Array:
        at = np.full(groups, -1)
        at[numbers(items, GROUP)] = np.arange(items.num_rows)
        return as_type(column(items, VALUE).take(pa.array(at, mask=at < 0)), t)


class Highest(Placed):
    """The values of the n rows with the greatest `by`, which is not null; of equal ones those first by (time, position)."""

    def __init__(self, n: int, name: str, t: pa.DataType, by: str, by_type: pa.DataType) -> None:
        super().__init__(f"top{n}", f"{name},{by}", t, nulls=True)
        self.columns, self._n, self._by = (name, by), n, by
        self.fields = [pa.field(BY, by_type), *self.fields]

    def items(self, rows: pa.Table, groups: Longs) -> pa.Table:
        items = super().items(rows, groups).append_column(BY, plain(column(rows, self._by)))
        return items.filter(pc.is_valid(items[BY])) if items[BY].null_count else items

    def reduced(self, items: pa.Table) -> pa.Table:
        best = ordered(self._candidates(items), [BY, TIME, POSITION], [BY])
        return best.filter(pa.array(ranks(numbers(best, GROUP)) < self._n))

    def results(self, items: pa.Table, groups: int, t: pa.DataType) -> pa.Array:
        return _lists(ordered(items, [BY, TIME, POSITION], [BY]), groups, t)

    def _candidates(self, items: pa.Table) -> pa.Table:
        """Those not below the n-th greatest of their group: sorting positions costs, and few rows are near the top."""
        if items.num_rows <= self._n:
            return items
        sorted_ = ordered(items.select([GROUP, BY]).append_column(ROW, pa.array(np.arange(items.num_rows))), [BY], [BY])
        frame = pl.from_arrow(sorted_)
        assert isinstance(frame, pl.DataFrame)
        nth = pl.col(BY).slice(self._n - 1, 1).first().over(GROUP)
        wanted = frame.filter(nth.is_null() | pl.col(BY).ge(nth))[ROW]
        return items.take(wanted.to_arrow())


def _nearest(items: pa.Table, *, last: bool) -> pa.Table:
    """The items with the least (or greatest) time of their group."""
    groups, times = numbers(items, GROUP), numbers(items, TIME)
    if not len(groups):
        return items
    best = np.full(int(groups.max()) + 1, times.min() if last else times.max())
    (np.maximum if last else np.minimum).at(best, groups, times)
    return items.filter(pa.array(times == best[groups]))


def _without_nulls(columns: dict[str, pa.Array]) -> pa.Table:
    items = pa.table(columns)
    return items.filter(pc.is_valid(columns[VALUE])) if columns[VALUE].null_count else items


def _lists(items: pa.Table, groups: int, t: pa.DataType) -> pa.Array:
    assert isinstance(t, pa.ListType)
    values = as_type(column(items, VALUE), t.value_type)
    return pa.ListArray.from_arrays(ends(numbers(items, GROUP), groups), values, type=t)
