"""Two aggregates from outside: one keeps a part of its own, one a bag. Each is one class, given to `agg.of`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.kernels.aggregates.bags import Bag, Longs, ends, ordered, ranks
from penstock.kernels.aggregates.function import AggregateFunction, Folded, Input, Taken
from penstock.kernels.aggregates.parts import Made, Part
from penstock.kernels.column_names import GROUP
from penstock.kernels.columns import as_type, column, numbers


class Factors(Part):
    """All values multiplied; 1.0 without any."""

    kind = "toy_factors"

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.at(0), pa.float64())]

    def made(self, rows: pa.Table) -> Made:
        return Made([pl.col(self.column).cast(pl.Float64).fill_null(1.0).product().alias(self.at(0))])

    def folding(self) -> Sequence[pl.Expr]:
        return [pl.col(self.at(0)).product()]


class Product(AggregateFunction):
    """All values multiplied."""

    name = "toy_product"
    nullable = False

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        self.numeric(inputs[0])
        return pa.float64()

    def keeps(self, of: Taken) -> Sequence[Part]:
        return [Factors(of.column, of.input)]

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        (factors,) = self.keeps(of)
        return folded.array(factors)


VALUE, TIMES = "value", "times"


class Tally(Bag):
    """Each value, and how often it came."""

    def __init__(self, name: str, t: pa.DataType) -> None:
        self.name, self.columns = f"__toy_tally_{name}", (name,)
        self.fields = [pa.field(VALUE, t), pa.field(TIMES, pa.int64())]

    def items(self, rows: pa.Table, groups: Longs) -> pa.Table:
        values = column(rows, self.columns[0])
        known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        ones = np.ones(len(known), np.int64)
        return pa.table({GROUP: groups[known], VALUE: values.take(pa.array(known)), TIMES: ones})

    def reduced(self, items: pa.Table) -> pa.Table:
        summed = items.group_by([GROUP, VALUE]).aggregate([(TIMES, "sum")]).rename_columns([GROUP, VALUE, TIMES])
        return ordered(summed.combine_chunks(), [TIMES, VALUE], [TIMES])


@dataclass(frozen=True)
class Frequent(AggregateFunction):
    """The n most frequent values, the most frequent first; of equally frequent ones the least."""

    name = "toy_frequent"
    nullable = False

    n: int

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        self.ordered(inputs[0])
        return pa.list_(inputs[0].type)

    def keeps(self, of: Taken) -> Tally:
        return Tally(of.column, of.input)

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        items = ordered(folded.items(self.keeps(of)), [TIMES, VALUE], [TIMES])
        best = items.filter(pa.array(ranks(numbers(items, GROUP)) < self.n))
        values = as_type(column(best, VALUE), of.type.value_type)
        return pa.ListArray.from_arrays(ends(numbers(best, GROUP), folded.groups), values, type=of.type)
