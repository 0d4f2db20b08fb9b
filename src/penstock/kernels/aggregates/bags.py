"""Bags: parts of a partial result that hold several items for a group, such as the different values of a column.

A bag is a column of lists of structs. To fold bags, their items are laid side by side with the number of the group they belong
to (GROUP), brought down to what still matters in one go over all groups, and put into lists again.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.column_names import GROUP
from penstock.kernels.columns import column, numbers

Longs = npt.NDArray[np.int64]

LOW = np.int64(0xFFFFFFFF)


class Bag(ABC):
    """What a group keeps: items with these fields, and GROUP while they are worked on."""

    name: str  # of the column in the partial table; says all that the items depend on
    columns: tuple[str, ...]  # of the rows
    fields: Sequence[pa.Field]  # of an item
    needs_position = False  # whether it reads TIME and POSITION of the rows

    @property
    def type(self) -> pa.DataType:
        return pa.list_(pa.struct(list(self.fields)))

    @abstractmethod
    def items(self, rows: pa.Table, groups: Longs) -> pa.Table:
        """The items of rows, in any order; groups: the number of the group of each row."""

    @abstractmethod
    def reduced(self, items: pa.Table) -> pa.Table:
        """What matters of the items of each group, in the order of the groups."""

    def partial(self, rows: pa.Table, groups: Longs, count: int) -> pa.Array:
        return self.packed(self.reduced(self.items(rows, groups)), count)

    def fold(self, bags: pa.Array, groups: Longs, count: int) -> pa.Array:
        """groups: the number of the group of each bag."""
        return self.packed(self.reduced(self.unpacked(bags, groups)), count)

    def packed(self, items: pa.Table, count: int) -> pa.Array:
        values = pa.StructArray.from_arrays([column(items, f.name) for f in self.fields], fields=list(self.fields))
        return pa.ListArray.from_arrays(ends(numbers(items, GROUP), count), values, type=self.type)

    def unpacked(self, bags: pa.Array, groups: Longs | None = None) -> pa.Table:
        """The items of bags; groups: the number of the group of each bag, else every bag is one."""
        lengths = pc.list_value_length(bags).fill_null(0).to_numpy()
        owners = np.repeat(np.arange(len(bags)) if groups is None else groups, lengths)
        assert isinstance(bags, pa.ListArray)
        items = bags.flatten()
        assert isinstance(items, pa.StructArray)
        return pa.table([pa.array(owners, pa.int64()), *items.flatten()], names=[GROUP, *(f.name for f in self.fields)])


def ends(groups: Longs, count: int) -> pa.Int32Array:
    """Where the items of each group begin, and where the last ones end; groups in order."""
    return pa.array(np.searchsorted(groups, np.arange(count + 1)), pa.int32())


def by_group(items: pa.Table) -> pa.Table:
    """The items in the order of the groups; within one they stay as they are."""
    groups = numbers(items, GROUP)
    if len(groups) < 2 or bool(np.all(groups[:-1] <= groups[1:])):
        return items
    return items.take(order_of(groups))


def order_of(groups: Longs) -> Longs:
    """The order in which the groups are in order and each stays as it is; longs are sorted faster than they are argsorted."""
    return np.sort(codes(groups, np.arange(len(groups)))) & LOW


def codes(groups: Longs, numbers: Longs) -> Longs:
    """Group and number (below 2**32) as one long, in the order of both."""
    return (groups << np.int64(32)) | numbers


def firsts(sorted_: Longs) -> npt.NDArray[np.bool_]:
    """Which are unlike the one before."""
    return np.concatenate([np.ones(min(len(sorted_), 1), np.bool_), sorted_[1:] != sorted_[:-1]])


def ranks(groups: Longs) -> Longs:
    """How many items of the same group stand before each; groups in order."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)


def ordered(items: pa.Table, by: Sequence[str], descending: Sequence[str] = ()) -> pa.Table:
    """The items by group, then by these columns; NaN is the greatest number."""
    keys = [GROUP, *by]
    frame = pl.from_arrow(items.select(keys))
    assert isinstance(frame, pl.DataFrame)
    order = frame.select(pl.arg_sort_by(keys, descending=[key in descending for key in keys]))
    return items.take(order.to_series().to_arrow())
