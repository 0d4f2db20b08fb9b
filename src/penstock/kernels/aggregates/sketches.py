"""Sketches: answers within a stated error from little state, the same whatever order and pieces the rows come in.

Registers (HyperLogLog) estimate how many different values there are; buckets (DDSketch) estimate quantiles.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.hashing import hash64
from penstock.kernels.aggregates.bags import GROUP, LOW, Bag, Longs, codes, ends, firsts
from penstock.kernels.columns import as_type, column, numbers

Doubles = npt.NDArray[np.float64]

REGISTER, RANK = "register", "rank"
BUCKET, COUNT = "bucket", "count"

_BLOCK = 2**14

# Buckets are numbered by the order of what lies in them: negative numbers, 0 itself, positive numbers, NaN.
_MIDDLE = 2**30  # number of the bucket of 1.0
_INFINITE, _NAN = 2**31 - 2, 2**31 - 1
_MANY = np.int64(2**31)  # makes their numbers positive


class Registers(Bag):
    """HyperLogLog with 2**precision registers: in each the longest run of zeros that any hash began with. The standard error of
    the estimate is 1.04 / sqrt(2**precision)."""

    def __init__(self, name: str, error: float) -> None:
        self._precision = precision_for(error)
        self.name, self.columns = f"__registers{self._precision}_{name}", (name,)
        self.fields = [pa.field(REGISTER, pa.int32()), pa.field(RANK, pa.int8())]

    def items(self, rows: pa.Table, groups: Longs) -> pa.Table:
        values = column(rows, self.columns[0])
        if values.null_count:
            known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            values, groups = values.take(pa.array(known)), groups[known]
        hashes, rest = hash64(_hashed(values), len(values)), 64 - self._precision
        low = (hashes & np.uint64(2**rest - 1)).astype(np.float64)  # at most 53 bits: exact
        lengths = np.frexp(low)[1]
        registers = (hashes >> np.uint64(rest)).astype(np.int32)
        return pa.table({GROUP: pa.array(groups), REGISTER: registers, RANK: (rest + 1 - lengths).astype(np.int8)})

    def reduced(self, items: pa.Table) -> pa.Table:
        highest = (numbers(items, REGISTER).astype(np.int64) << np.int64(8)) | numbers(items, RANK)
        found = np.sort(codes(numbers(items, GROUP), highest))
        found = found[firsts(found[::-1] >> np.int64(8))[::-1]]  # the last of each register
        registers = (found & LOW) >> np.int64(8)
        return pa.table(
            {GROUP: found >> np.int64(32), REGISTER: registers.astype(np.int32), RANK: (found & np.int64(0xFF)).astype(np.int8)}
        )

    def result(self, items: pa.Table, groups: int, t: pa.DataType, options: tuple[Any, ...]) -> pa.Array:
        starts = ends(numbers(items, GROUP), groups).to_numpy()
        blocks = range(0, groups, _BLOCK)  # every group takes a row of counts: not all at once
        found = [self._estimates(items.slice(starts[i], starts[min(i + _BLOCK, groups)] - starts[i]), i, groups) for i in blocks]
        return as_type(pa.array(np.concatenate([np.empty(0, np.int64), *found])), t)

    def _estimates(self, items: pa.Table, first: int, groups: int) -> Longs:
        """Of the block of groups that begins with the first."""
        ranks = np.zeros((min(_BLOCK, groups - first), 64 - self._precision + 2))
        np.add.at(ranks, (numbers(items, GROUP) - first, numbers(items, RANK)), 1)
        ranks[:, 0] = 2**self._precision - ranks.sum(axis=1)
        return np.rint(_estimated(ranks)).astype(np.int64)


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
            values, groups = values.take(pa.array(known)), groups[known]
        buckets = self._buckets(np.asarray(values.to_numpy(zero_copy_only=False)))
        return pa.table({GROUP: pa.array(groups), BUCKET: buckets, COUNT: np.ones(len(buckets), np.int64)})

    def reduced(self, items: pa.Table) -> pa.Table:
        places = codes(numbers(items, GROUP), numbers(items, BUCKET).astype(np.int64) + _MANY)
        order = np.argsort(places)
        places, counts = places[order], numbers(items, COUNT)[order]
        at = np.flatnonzero(firsts(places))
        summed = np.add.reduceat(counts, at) if len(at) else counts
        buckets = ((places[at] & LOW) - _MANY).astype(np.int32)
        return pa.table({GROUP: places[at] >> np.int64(32), BUCKET: buckets, COUNT: summed})

    def result(self, items: pa.Table, groups: int, t: pa.DataType, options: tuple[Any, ...]) -> pa.Array:
        """options: which share of the values is not greater than the quantile."""
        share = Fraction(options[0]).limit_denominator(10**6)
        starts = ends(numbers(items, GROUP), groups).to_numpy()
        below = np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers(items, COUNT))])
        known = below[starts[1:]] - below[starts[:-1]]
        wanted = np.maximum(-(-known * share.numerator // share.denominator), 1)
        at = np.searchsorted(below[1:], below[starts[:-1]] + wanted)
        middles = self._middles(numbers(items, BUCKET)[np.where(known > 0, at, 0)]) if items.num_rows else np.zeros(groups)
        return as_type(pa.array(middles, mask=known == 0), t)

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


def precision_for(error: float) -> int:
    """The least precision, from 11 to 18, whose standard error is at most this."""
    return max(11, math.ceil(2 * math.log2(1.04 / error)))


def _hashed(values: pa.Array) -> list[pa.Array]:
    """What is hashed of a column: itself; of decimals the two longs they are made of, which is faster."""
    if not pa.types.is_decimal(values.type):
        return [values]
    words = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), values.offset * 16).reshape(-1, 2)
    return [pa.array(words[:, 0]), pa.array(words[:, 1])]


def _estimated(ranks: Doubles) -> Doubles:
    """How many different hashes left so many registers (of each row) at each rank; Ertl's estimator, good over the whole range."""
    registers = ranks.sum(axis=1)
    z = registers * _tau(1 - ranks[:, -1] / registers)
    for k in range(ranks.shape[1] - 2, 0, -1):
        z = 0.5 * (z + ranks[:, k])
    z += registers * _sigma(ranks[:, 0] / registers)
    return np.asarray(registers**2 / (2 * math.log(2) * z))


def _sigma(x: Doubles) -> Doubles:
    """x + Σ x**(2**k) · 2**(k-1); infinite at 1, where all registers are empty."""
    total, power, weight = x.copy(), np.where(x < 1, x, 0.0), 1.0
    while np.any(power > 0):
        power = power * power
        total, weight = total + power * weight, weight * 2
    return np.where(x < 1, total, np.inf)


def _tau(x: Doubles) -> Doubles:
    """(1 - x - Σ (1 - x**(2**-k))**2 · 2**-k) / 3."""
    total, root, weight = 1 - x, np.where((x > 0) & (x < 1), x, 1.0), 1.0
    while np.any(root < 1):
        root, weight = np.sqrt(root), weight * 0.5
        total = total - (1 - root) ** 2 * weight
    return np.where((x > 0) & (x < 1), total / 3, 0.0)
