"""Penstock's own aggregates by name, and what is kept for several aggregates of a step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.kernels.aggregates import counts, distinct, extremes, own, quantiles, selections, sums
from penstock.kernels.aggregates.bags import Bag
from penstock.kernels.aggregates.function import AggregateFunction, Taken
from penstock.kernels.aggregates.parts import Part
from penstock.plan import Aggregate

_EVERY: tuple[type[AggregateFunction], ...] = (
    counts.Count,
    counts.CountIf,
    counts.Ratio,
    counts.Rate,
    sums.Sum,
    sums.Average,
    sums.Variance,
    sums.StandardDeviation,
    extremes.Min,
    extremes.Max,
    selections.First,
    selections.Last,
    selections.Collect,
    selections.Top,
    distinct.Distinct,
    quantiles.Quantile,
    own.Functions,
)
FUNCTIONS = {function.name: function for function in _EVERY}


def function_of(a: Aggregate) -> AggregateFunction:
    """What an aggregate does: the one that came with it from outside, else Penstock's own of that name."""
    if isinstance(a.implementation, AggregateFunction):
        return a.implementation
    return FUNCTIONS[a.function](*a.options)


def taken(a: Aggregate, schema: pa.Schema) -> Taken:
    """An aggregate over rows of this schema."""
    return Taken(a.name, a.columns, tuple(schema.field(name).type for name in a.columns), a.type)


@dataclass
class Kept:
    """What is kept for several aggregates, everything once."""

    parts: list[Part] = field(default_factory=list)
    bags: dict[str, Bag] = field(default_factory=dict)  # by name of the column in the partial table

    def fields(self) -> list[pa.Field]:
        return [f for part in self.parts for f in part.fields] + [pa.field(b.name, b.type) for b in self.bags.values()]

    def columns(self) -> list[str]:
        """The columns of the rows that are read."""
        read = [*(part.column for part in self.parts if part.column), *(c for bag in self.bags.values() for c in bag.columns)]
        return list(dict.fromkeys(read))


def kept_for(aggregates: Sequence[Aggregate], schema: pa.Schema) -> Kept:
    """What has to be kept so that all these aggregates can be told."""
    kept = Kept()
    for a in aggregates:
        keeps = function_of(a).keeps(taken(a, schema))
        if isinstance(keeps, Bag):
            kept.bags.setdefault(keeps.name, keeps)
        else:
            kept.parts += [part for part in keeps if part not in kept.parts]
    return kept
