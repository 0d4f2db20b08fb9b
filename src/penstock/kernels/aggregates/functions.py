"""Aggregates: what has to be kept of a group's rows for each of them, and how it is read off what was kept.

An aggregate is made of parts (plain columns of the partial table, see parts) or of one bag (a column of lists, see bags). Several
aggregates share what they have in common.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadFlow
from penstock.kernels.aggregates import exact
from penstock.kernels.aggregates.bags import Bag
from penstock.kernels.aggregates.own import Functions, Own
from penstock.kernels.aggregates.parts import Kind, Numbers, Part
from penstock.kernels.aggregates.selections import Collected, Distinct, End, Top
from penstock.kernels.aggregates.sketches import Buckets, Registers
from penstock.kernels.columns import as_type
from penstock.kernels.columns import column as whole
from penstock.plan import Aggregate


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
        bag = bag_of(a, schema)
        if bag is not None:
            kept.bags.setdefault(bag.name, bag)
        else:
            kept.parts += [part for part in parts_of(a, schema) if part not in kept.parts]
    return kept


def parts_of(a: Aggregate, schema: pa.Schema) -> list[Part]:
    if a.column is None:
        return [_ROWS]
    t = schema.field(a.column).type
    kinds: dict[str, tuple[Kind, ...]] = {
        "count": ("count",),
        "sum": ("sum", "count"),
        "avg": ("sum", "count"),
        "min": ("min",),
        "max": ("max",),
        "count_if": ("true",),
        "ratio": ("true",),
        "var": ("sum", "squares", "count") if _squared(t) else ("spread", "count"),
    }
    kinds["stddev"] = kinds["var"]
    parts = [Part(kind, a.column, t) for kind in kinds[a.function]]
    return [*parts, _ROWS] if a.function == "ratio" else parts


def bag_of(a: Aggregate, schema: pa.Schema) -> Bag | None:
    """The bag of an aggregate that needs one. Options: first, last: (whether nulls count); distinct: (error), none if exact;
    quantile: (share, error); top: (n); own: its Functions."""
    if a.function == "own":
        return Own(a.name, (a.column, *a.others) if a.column else a.others, Functions(*a.options))
    if a.column is None or a.function not in _BAGS:
        return None
    return _BAGS[a.function](a, a.column, schema)


_Make = Callable[[Aggregate, str, pa.Schema], Bag]
_BAGS: dict[str, _Make] = {
    "first": lambda a, c, s: End("first", c, s.field(c).type, nulls=a.options[0]),
    "last": lambda a, c, s: End("last", c, s.field(c).type, nulls=a.options[0]),
    "collect": lambda a, c, s: Collected(c, s.field(c).type),
    "distinct": lambda a, c, s: Registers(c, a.options[0]) if a.options else Distinct(c, s.field(c).type),
    "quantile": lambda a, c, s: Buckets(c, a.options[1]),
    "top": lambda a, c, s: Top(a.options[0], c, s.field(c).type, a.others[0], s.field(a.others[0]).type),
}

_ROWS = Part("rows", "", pa.int64())

Seconds = npt.NDArray[np.float64]


def result(a: Aggregate, partials: pa.Table, schema: pa.Schema, seconds: Seconds | None = None) -> pa.Array:
    """One aggregate, read off folded partial results."""
    bag = bag_of(a, schema)
    if bag is not None:
        return bag.result(bag.unpacked(whole(partials, bag.name)), partials.num_rows, a.type, a.options)
    return _RESULTS[a.function](_Read(a, partials, schema, seconds))


@dataclass(frozen=True)
class _Read:
    """An aggregate and what its parts are to be read from."""

    aggregate: Aggregate
    partials: pa.Table
    schema: pa.Schema
    seconds: Seconds | None

    @property
    def type(self) -> pa.DataType:
        return self.aggregate.type

    @property
    def input(self) -> pa.DataType:
        return self.schema.field(self.aggregate.column).type

    def array(self, kind: Kind) -> pa.Array:
        column = self.aggregate.column or ""
        return whole(self.partials, Part(kind, column, pa.int64()).at(0))

    def limbs(self, kind: Kind) -> list[Numbers]:
        part = Part(kind, self.aggregate.column or "", self.input)
        return [whole(self.partials, part.at(i)).to_numpy(zero_copy_only=False) for i in range(part.width)]

    def counts(self) -> Numbers:
        return np.asarray(self.array("count").to_numpy())

    def rows(self) -> Numbers:
        return np.asarray(whole(self.partials, _ROWS.at(0)).to_numpy())


def _count(read: _Read) -> pa.Array:
    return as_type(read.array("count" if read.aggregate.column else "rows"), read.type)


def _rate(read: _Read) -> pa.Array:
    if read.seconds is None:
        raise BadFlow(f"cannot tell {read.aggregate.name}, a rate per second, where there is no stretch of time")
    return as_type(pa.array(read.rows() / read.seconds), read.type)


def _sum(read: _Read) -> pa.Array:
    empty, limbs = read.counts() == 0, read.limbs("sum")
    if pa.types.is_floating(read.input):
        return as_type(pa.array(limbs[0] + 0.0, mask=empty), read.type)  # -0.0 alone adds up to 0.0, too
    if pa.types.is_decimal(read.type):
        return _nulled(exact.decimals(limbs, read.type), empty)
    return as_type(_nulled(exact.longs(limbs), empty), read.type)


def _average(read: _Read) -> pa.Array:
    counts, limbs = read.counts(), read.limbs("sum")
    empty, n = counts == 0, np.maximum(counts, 1)
    if pa.types.is_floating(read.input):
        return as_type(pa.array((limbs[0] + 0.0) / n, mask=empty), read.type)
    if pa.types.is_decimal(read.input):
        return _decimal_average(exact.integers(limbs), counts, read.input.scale, read.type)
    low, high = exact.carried(limbs)
    means = (high.astype(np.float64) * 2.0**32 + low) / n
    for i in np.flatnonzero((high < -(2**20)) | (high >= 2**20)):  # a double does not hold the sum: divide the integers
        means[i] = ((int(high[i]) << 32) + int(low[i])) / int(n[i])
    return as_type(pa.array(means, mask=empty), read.type)


def _decimal_average(sums: list[int], counts: Numbers, scale: int, t: pa.DataType) -> pa.Array:
    """Null where there is none, and where it does not fit its type."""
    if not pa.types.is_decimal(t):
        return pa.array([s / (int(n) * 10**scale) if n else None for s, n in zip(sums, counts, strict=True)], t)
    units = [exact.divided(s, int(n), scale, t.scale) if n else None for s, n in zip(sums, counts, strict=True)]
    fitting = [None if unit is None or abs(unit) >= 10**t.precision else unit for unit in units]
    with localcontext() as context:
        context.prec = 80
        return pa.array([None if unit is None else Decimal(unit).scaleb(-t.scale) for unit in fitting], t)


def _squared(t: pa.DataType) -> bool:
    """Whether sums of squares are kept exactly."""
    return bool(pa.types.is_integer(t) or (pa.types.is_decimal(t) and exact.fits_a_long(t)))


def _variance(read: _Read) -> pa.Array:
    """Options: what is taken off the number of values to divide by, 1 for a sample, 0 for a population."""
    (off,), counts = read.aggregate.options, read.counts()
    empty = counts <= off
    if _squared(read.input):
        scale = read.input.scale if pa.types.is_decimal(read.input) else 0
        values = exact.variances(counts, read.limbs("sum"), read.limbs("squares"), off, scale)
    else:
        mean, apart = read.limbs("spread")
        known = np.isfinite(mean)  # of one value the distance from itself would be 0, of infinities and NaN there is none
        values = np.where(known, apart, np.nan) / np.maximum(counts - off, 1)
    if read.aggregate.function == "stddev":
        values = np.sqrt(values)
    return as_type(pa.array(values, mask=empty), read.type)


def _nulled(values: pa.Array, empty: Numbers) -> pa.Array:
    return pc.if_else(pa.array(~empty), values, pa.scalar(None, values.type))


_RESULTS: dict[str, Callable[[_Read], pa.Array]] = {
    "count": _count,
    "sum": _sum,
    "avg": _average,
    "min": lambda read: as_type(read.array("min"), read.type),
    "max": lambda read: as_type(read.array("max"), read.type),
    "count_if": lambda read: as_type(read.array("true"), read.type),
    "ratio": lambda read: as_type(pa.array(read.array("true").to_numpy() / read.rows()), read.type),
    "rate": _rate,
    "var": _variance,
    "stddev": _variance,
}
