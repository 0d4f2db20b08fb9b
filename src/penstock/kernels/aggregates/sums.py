"""Sums, means and variances; those of integers and decimals are exact until they are read off."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa

from penstock.core.arrow import chosen
from penstock.kernels.aggregates import exact
from penstock.kernels.aggregates.function import AggregateFunction, Folded, Input, Taken
from penstock.kernels.aggregates.parts import Numbers, Part, Spread, Squares, Total, Values
from penstock.kernels.columns import as_type


class Sum(AggregateFunction):
    """Of integers a long, of floats a double, of decimals one with ten more digits; null where it does not fit."""

    name = "sum"

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        self.numeric(inputs[0])
        t = inputs[0].type
        if pa.types.is_decimal(t):
            return pa.decimal128(min(38, t.precision + 10), t.scale)
        return pa.int64() if pa.types.is_integer(t) else pa.float64()

    def keeps(self, of: Taken) -> Sequence[Part]:
        return [Total(of.column, of.input), Values(of.column, of.input)]

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        total, values = self.keeps(of)
        limbs, empty = folded.limbs(total), folded.numbers(values) == 0
        if total.floating:
            return as_type(pa.array(limbs[0] + 0.0, mask=empty), of.type)  # -0.0 alone adds up to 0.0, too
        if pa.types.is_decimal(of.type):
            return _nulled(exact.decimals(limbs, of.type), empty)
        return as_type(_nulled(exact.longs(limbs), empty), of.type)


class Average(AggregateFunction):
    """A double; of decimals a decimal with four more digits after the point."""

    name = "avg"

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        self.numeric(inputs[0])
        t = inputs[0].type
        if pa.types.is_decimal(t):
            return pa.decimal128(min(38, t.precision + 4), min(38, t.scale + 4))
        return pa.float64()

    def keeps(self, of: Taken) -> Sequence[Part]:
        return [Total(of.column, of.input), Values(of.column, of.input)]

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        total, values = self.keeps(of)
        limbs, counts = folded.limbs(total), folded.numbers(values)
        empty, n = counts == 0, np.maximum(counts, 1)
        if total.floating:
            return as_type(pa.array((limbs[0] + 0.0) / n, mask=empty), of.type)
        if pa.types.is_decimal(of.input):
            return _decimal_average(exact.integers(limbs), counts, of.input.scale, of.type)
        low, high = exact.carried(limbs)
        means = (high.astype(np.float64) * 2.0**32 + low) / n
        for i in np.flatnonzero((high < -(2**20)) | (high >= 2**20)):  # a double does not hold the sum: divide the integers
            means[i] = ((int(high[i]) << 32) + int(low[i])) / int(n[i])
        return as_type(pa.array(means, mask=empty), of.type)


@dataclass(frozen=True)
class Variance(AggregateFunction):
    """Of a sample (off=1: divided by n - 1) or of the whole population (off=0)."""

    name = "var"

    off: int = 1  # what is taken off the number of values to divide by

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        self.numeric(inputs[0])
        return pa.float64()

    def keeps(self, of: Taken) -> Sequence[Part]:
        of_it = (of.column, of.input)
        return [Total(*of_it), Squares(*of_it), Values(*of_it)] if _squared(of.input) else [Spread(*of_it), Values(*of_it)]

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        *sums, values = self.keeps(of)
        counts = folded.numbers(values)
        if _squared(of.input):
            scale = of.input.scale if pa.types.is_decimal(of.input) else 0
            found = exact.variances(counts, folded.limbs(sums[0]), folded.limbs(sums[1]), self.off, scale)
        else:
            mean, apart = folded.limbs(sums[0])
            found = self.spread(mean, apart, counts)
        return as_type(pa.array(self.from_variances(found), mask=counts <= self.off), of.type)

    def spread(self, mean: Numbers, apart: Numbers, counts: Numbers) -> Numbers:
        """Of so many values whose squared distances from the mean add up to `apart`."""
        known = np.isfinite(mean)  # of one value the distance from itself would be 0, of infinities and NaN there is none
        return np.asarray(np.where(known, apart, np.nan) / np.maximum(counts - self.off, 1))

    def from_variances(self, variances: Numbers) -> Numbers:
        return variances


class StandardDeviation(Variance):
    """The square root of the variance."""

    name = "stddev"

    def from_variances(self, variances: Numbers) -> Numbers:
        return np.asarray(np.sqrt(variances))


def _squared(t: pa.DataType) -> bool:
    """Whether sums of squares are kept exactly."""
    return bool(pa.types.is_integer(t) or (pa.types.is_decimal(t) and exact.fits_a_long(t)))


def _decimal_average(sums: list[int], counts: Numbers, scale: int, t: pa.DataType) -> pa.Array:
    """Null where there is none, and where it does not fit its type."""
    if not pa.types.is_decimal(t):
        return pa.array([s / (int(n) * 10**scale) if n else None for s, n in zip(sums, counts, strict=True)], t)
    units = [exact.divided(s, int(n), scale, t.scale) if n else None for s, n in zip(sums, counts, strict=True)]
    fitting = [None if unit is None or abs(unit) >= 10**t.precision else unit for unit in units]
    with localcontext() as context:
        context.prec = 80
        return pa.array([None if unit is None else Decimal(unit).scaleb(-t.scale) for unit in fitting], t)


def _nulled(values: pa.Array, empty: Numbers) -> pa.Array:
    return chosen(pa.array(~empty), values, pa.scalar(None, values.type))
