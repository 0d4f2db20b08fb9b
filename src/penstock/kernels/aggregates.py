"""Aggregates as partial results that can be put together in any order and any number of pieces.

An aggregate is made of parts (a count, limbs of a sum, a minimum …), each a column of the partial table. `parts_of` says
which; a part knows how it comes out of rows, how two of it become one; `result` reads an aggregate off its folded parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from itertools import chain
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels import exact
from penstock.kernels.tables import as_type
from penstock.kernels.tables import column as whole

Numbers = npt.NDArray[Any]


class Aggregate(Protocol):
    """One column of a window's result."""

    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Literal["count", "sum", "avg", "min", "max"]: ...
    @property
    def column(self) -> str | None: ...  # None: count of rows
    @property
    def type(self) -> pa.DataType: ...


@dataclass(frozen=True)
class Part:
    """A column of the partial table, made from one column of the rows."""

    kind: Literal["rows", "count", "sum", "min", "max"]
    column: str
    type: pa.DataType  # of the rows' column

    @property
    def fields(self) -> list[pa.Field]:
        if self.kind in ("rows", "count"):
            return [pa.field(self.at(0), pa.int64())]
        if self.kind == "sum":
            return [pa.field(self.at(i), self.added) for i in range(self.width)]
        return [pa.field(self.at(0), self.type)]

    def at(self, i: int) -> str:
        return f"__{self.kind}{i}_{self.column}"

    @property
    def floating(self) -> bool:
        return bool(pa.types.is_floating(self.type))

    @property
    def width(self) -> int:
        return exact.limb_count(self.type) if self.kind == "sum" and not self.floating else 1

    @property
    def added(self) -> pa.DataType:
        return pa.float64() if self.floating else pa.int64()


def parts_of(aggregates: Sequence[Aggregate], schema: pa.Schema) -> list[Part]:
    """What has to be kept so that all these aggregates can be told; each part once."""
    parts: dict[tuple[str, str], Part] = {}
    for a in aggregates:
        column = a.column or ""
        kinds = {"count": ("count",), "sum": ("sum", "count"), "avg": ("sum", "count")}.get(a.function, (a.function,))
        for kind in kinds if a.column else ("rows",):
            parts.setdefault((kind, column), Part(kind, column, schema.field(column).type if column else pa.int64()))  # type: ignore[arg-type]
    return list(parts.values())


class Partial:
    """How the parts come out of one table of rows: columns to add to it, expressions over its groups, what is left to split."""

    def __init__(self, parts: Sequence[Part], rows: pa.Table) -> None:
        self.columns: dict[str, pl.Series] = {}
        self.expressions: list[pl.Expr] = []
        self.to_split: list[Part] = []
        for part in parts:
            self._add(part, rows)

    def _add(self, part: Part, rows: pa.Table) -> None:
        name, column = part.at(0), pl.col(part.column)
        if part.kind == "rows":
            self.expressions.append(pl.len().cast(pl.Int64).alias(name))
        elif part.kind == "count":
            counted = column.count() if rows[part.column].null_count else pl.len()
            self.expressions.append(counted.cast(pl.Int64).alias(name))
        elif part.kind == "sum" and part.floating:
            self.expressions.append(column.cast(pl.Float64).sum().alias(name))
        elif part.kind == "sum":
            self._exact(part, whole(rows, part.column))
        else:
            values = column + 0.0 if part.floating else column  # -0.0 is 0.0
            self.expressions.append(_extreme(part, values).alias(name))

    def _exact(self, part: Part, column: pa.Array) -> None:
        added = exact.addends(column)
        if len(added) == 1:
            self.to_split.append(part)
        for i, values in enumerate(added):
            self.columns[part.at(i)] = pl.Series(part.at(i), values)
            self.expressions.append(pl.col(part.at(i)).sum())

    def finish(self, partials: pl.DataFrame) -> pl.DataFrame:
        limbs = [_limbs(part, exact.split(partials[part.at(0)].to_numpy())) for part in self.to_split]
        return partials.with_columns(*chain(*limbs)) if limbs else partials


def fold(
    parts: Sequence[Part], partials: pl.LazyFrame, keys: Sequence[str], kept: Sequence[str] = (), more: Sequence[pl.Expr] = ()
) -> pl.DataFrame:
    """Partial results with equal keys as one; `kept` columns are equal wherever the keys are, `more` folds columns of others."""
    expressions = [_folded(part, pl.col(f.name)) for part in parts for f in part.fields]
    folded = partials.group_by(keys).agg(*expressions, *(pl.col(k).first() for k in kept), *more).collect()
    wide = [part for part in parts if part.width > 1]
    limbs = [_limbs(part, exact.carried([folded[part.at(i)].to_numpy() for i in range(part.width)])) for part in wide]
    return folded.with_columns(*chain(*limbs)) if limbs else folded


def _limbs(part: Part, limbs: Sequence[Numbers]) -> list[pl.Series]:
    return [pl.Series(part.at(i), limb) for i, limb in enumerate(limbs)]


def _folded(part: Part, column: pl.Expr) -> pl.Expr:
    return _extreme(part, column) if part.kind in ("min", "max") else column.sum()


def _extreme(part: Part, column: pl.Expr) -> pl.Expr:
    """NaN is greater than any number, as in Spark; so a minimum is NaN only where there is nothing else."""
    if part.kind == "min":
        return column.min()
    return column.nan_max() if part.floating else column.max()


def result(aggregate: Aggregate, partials: pa.Table, schema: pa.Schema) -> pa.Array:
    """One aggregate, read off folded parts."""
    if aggregate.column is None:
        return as_type(whole(partials, "__rows0_"), aggregate.type)
    column = aggregate.column
    part = Part(aggregate.function if aggregate.function != "avg" else "sum", column, schema.field(column).type)
    if aggregate.function in ("count", "min", "max"):
        return as_type(whole(partials, part.at(0)), aggregate.type)
    counts = whole(partials, Part("count", column, part.type).at(0)).to_numpy()
    what = f"{aggregate.function} of {column}"
    columns = [whole(partials, part.at(i)).to_numpy(zero_copy_only=False) for i in range(part.width)]
    if aggregate.function == "sum":
        return _sum(part, columns, counts == 0, aggregate.type, what)
    return _average(part, columns, counts, aggregate.type)


def _sum(part: Part, columns: list[Numbers], empty: Numbers, t: pa.DataType, what: str) -> pa.Array:
    if part.floating:
        return as_type(pa.array(columns[0], mask=empty), t)
    if pa.types.is_decimal(t):
        return _nulled(exact.decimals(columns, t, what), empty)
    return as_type(pa.array(exact.longs(columns, what), mask=empty), t)


def _average(part: Part, columns: list[Numbers], counts: Numbers, t: pa.DataType) -> pa.Array:
    empty, n = counts == 0, np.maximum(counts, 1)
    if part.floating:
        return as_type(pa.array(columns[0] / n, mask=empty), t)
    if pa.types.is_decimal(part.type):
        return _decimal_average(exact.integers(columns), counts, part.type.scale, t)
    low, high = exact.carried(columns)
    means = (high.astype(np.float64) * 2.0**32 + low) / n
    for i in np.flatnonzero((high < -(2**20)) | (high >= 2**20)):  # a double does not hold the sum: divide the integers
        means[i] = ((int(high[i]) << 32) + int(low[i])) / int(n[i])
    return as_type(pa.array(means, mask=empty), t)


def _decimal_average(sums: list[int], counts: Numbers, scale: int, t: pa.DataType) -> pa.Array:
    if not pa.types.is_decimal(t):
        return pa.array([s / (int(n) * 10**scale) if n else None for s, n in zip(sums, counts, strict=True)], t)
    with localcontext() as context:
        context.prec, unit = 80, Decimal(1).scaleb(-t.scale)
        exactly = [
            (Decimal(s).scaleb(-scale) / int(n)).quantize(unit, ROUND_HALF_UP) if n else None
            for s, n in zip(sums, counts, strict=True)
        ]
    return pa.array(exactly, t)


def _nulled(values: pa.Array, empty: Numbers) -> pa.Array:
    return pc.if_else(pa.array(~empty), values, pa.scalar(None, values.type))
