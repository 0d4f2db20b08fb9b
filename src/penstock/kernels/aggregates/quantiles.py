"""Quantiles within a relative error from little state, the same whatever order and pieces the rows come in (DDSketch)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.arrow import table_of
from penstock.kernels.aggregates.bags import LOW, Bag, Longs, codes, ends, firsts
from penstock.kernels.aggregates.function import AggregateFunction, Folded, Input, Taken
from penstock.kernels.column_names import GROUP
from penstock.kernels.columns import as_type, column, numbers

Doubles = npt.NDArray[np.float64]

BUCKET, COUNT = "bucket", "count"

# Buckets are numbered by the order of what lies in them: negative numbers, 0 itself, positive numbers, NaN.
_MIDDLE = 2**30  # number of the bucket of 1.0
_INFINITE, _NAN = 2**31 - 2, 2**31 - 1
_MANY = np.int64(2**31)  # makes their numbers positive


@dataclass(frozen=True)
class Quantile(AggregateFunction):
    """The least value that a share q of all values does not exceed; several quantiles of one column share what is kept."""

    name = "quantile"

    q: float
    error: float

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        self.numeric(inputs[0], ", 0.95")
        return pa.float64()

    def keeps(self, of: Taken) -> "Buckets":
        return Buckets(of.column, self.error)

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        bag = self.keeps(of)
        return as_type(bag.quantiles(folded.items(bag), folded.groups, self.q), of.type)


class Buckets(Bag):
    """DDSketch: how many values lie in each of ever wider buckets, so that every value of a bucket is within the relative error of
    its middle. 0, the infinities and NaN have buckets of their own."""

    def __init__(self, name: str, error: float) -> None:
        self.name, self.columns = f"__buckets{error!r}_{name}", (name,)
        self.fields = [pa.field(BUCKET, pa.int32()), pa.field(COUNT, pa.int64())]
        self._error = error * (1 - 1e-6)  # leaves room for what logarithms round
        self._width = math.log1p(self._error) - math.log1p(-self._error)

    def items(self, rows: pa.Table, groups: Longs) -> pa.Table:
        values = column(rows, self.columns[0]).cast(pa.float64(), safe=False)
        if values.null_count:
            known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            values, groups = values.take(known), groups[known]
        buckets = self._buckets(np.asarray(values.to_numpy(zero_copy_only=False)))
        return table_of({GROUP: pa.array(groups), BUCKET: buckets, COUNT: np.ones(len(buckets), np.int64)})

    def reduced(self, items: pa.Table) -> pa.Table:
        places = codes(numbers(items, GROUP), numbers(items, BUCKET).astype(np.int64) + _MANY)
        order = np.argsort(places)
        places, counts = places[order], numbers(items, COUNT)[order]
        at = np.flatnonzero(firsts(places))
        summed = np.add.reduceat(counts, at) if len(at) else counts
        buckets = ((places[at] & LOW) - _MANY).astype(np.int32)
        return table_of({GROUP: places[at] >> np.int64(32), BUCKET: buckets, COUNT: summed})

    def quantiles(self, items: pa.Table, groups: int, q: float) -> pa.Array:
        """The value that a share q of the values of each group does not exceed."""
        share = Fraction(q).limit_denominator(10**6)
        starts = ends(numbers(items, GROUP), groups).to_numpy()
        below = np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers(items, COUNT))])
        known = below[starts[1:]] - below[starts[:-1]]
        wanted = np.maximum(-(-known * share.numerator // share.denominator), 1)
        at = np.searchsorted(below[1:], below[starts[:-1]] + wanted)
        middles = self._middles(numbers(items, BUCKET)[np.where(known > 0, at, 0)]) if items.num_rows else np.zeros(groups)
        return pa.array(middles, mask=known == 0)

    def _buckets(self, values: Doubles) -> npt.NDArray[np.int32]:
        size = np.abs(values)
        regular = (size > 0) & (size < np.inf)
        logs = pl.Series(np.where(regular, size, 1.0)).log().to_numpy()  # value by value: the same wherever it stands
        buckets = np.ceil(logs / self._width).astype(np.int64) + _MIDDLE
        buckets = np.where(regular, buckets, np.where(size == 0, 0, _INFINITE))
        return np.where(np.isnan(values), _NAN, np.where(values < 0, -buckets, buckets)).astype(np.int32)

    def _middles(self, buckets: npt.NDArray[np.int32]) -> Doubles:
        size = np.abs(buckets.astype(np.int64))
        regular = (size > 0) & (size < _INFINITE)
        logs = np.where(regular, size - 1 - _MIDDLE, 0) * self._width + math.log1p(self._error)
        with np.errstate(over="ignore"):
            middles = np.minimum(np.exp(logs), np.finfo(np.float64).max)
        middles = np.where(regular, middles, np.where(size == 0, 0.0, np.where(size == _NAN, np.nan, np.inf)))
        return np.asarray(np.where(buckets < 0, -middles, middles))
