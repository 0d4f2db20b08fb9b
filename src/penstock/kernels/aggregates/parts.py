"""Parts: plain columns of a partial result (a count, limbs of a sum, a minimum …) that are folded by adding or comparing.

A part knows how it comes out of rows and how several of it become one, in any order and any number of pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.kernels.aggregates import exact
from penstock.kernels.columns import column as whole
from penstock.kernels.columns import without_sign

Numbers = npt.NDArray[Any]
Kind = Literal["rows", "true", "count", "sum", "squares", "spread", "min", "max"]

_LONGS = ("rows", "true", "count")
_EXACT = ("sum", "squares")  # kept as limbs where they are not floating
_MEAN, _APART = 0, 1  # of a spread: the mean, and the sum of the squared distances from it


@dataclass(frozen=True)
class Part:
    """A column of the partial table (or several), made from one column of the rows."""

    kind: Kind
    column: str
    type: pa.DataType  # of the rows' column

    @property
    def fields(self) -> list[pa.Field]:
        if self.kind in _LONGS:
            return [pa.field(self.at(0), pa.int64())]
        if self.kind in ("min", "max"):
            return [pa.field(self.at(0), self.type)]
        return [pa.field(self.at(i), pa.float64() if self.floating else pa.int64()) for i in range(self.width)]

    def at(self, i: int) -> str:
        return f"__{self.kind}{i}_{self.column}"

    @property
    def floating(self) -> bool:
        return self.kind == "spread" or bool(pa.types.is_floating(self.type))

    @property
    def width(self) -> int:
        if self.kind == "spread":
            return 2
        if self.kind == "squares":
            return exact.SQUARE_LIMBS
        return exact.limb_count(self.type) if self.kind == "sum" and not self.floating else 1

    @property
    def in_limbs(self) -> bool:
        return self.kind in _EXACT and not self.floating


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
        elif part.kind == "true":
            self.expressions.append(column.sum().cast(pl.Int64).alias(name))
        elif part.in_limbs:
            self._exact(part, whole(rows, part.column))
        elif part.kind == "sum":
            self.expressions.append(column.cast(pl.Float64).sum().alias(name))
        elif part.kind == "spread":
            self.expressions += _spread(part, column.cast(pl.Float64))
        else:
            if part.floating:
                self.columns[name] = pl.Series(name, without_sign(whole(rows, part.column)))
                column = pl.col(name)
            self.expressions.append(_extreme(part, column).alias(name))

    def _exact(self, part: Part, column: pa.Array) -> None:
        added = exact.addends(column) if part.kind == "sum" else exact.square_addends(column)
        if len(added) == 1:
            self.to_split.append(part)
        for i, values in enumerate(added):
            self.columns[part.at(i)] = pl.Series(part.at(i), values)
            self.expressions.append(pl.col(part.at(i)).sum())

    def finish(self, partials: pl.DataFrame) -> pl.DataFrame:
        limbs = [_limbs(part, exact.split(partials[part.at(0)].to_numpy(), part.width)) for part in self.to_split]
        return partials.with_columns(*chain(*limbs)) if limbs else partials


def folding(parts: Sequence[Part]) -> list[pl.Expr]:
    """How partial results with equal keys become one; `carry` has to follow."""
    return [e for part in parts for e in _folding(part)]


def carry(parts: Sequence[Part], folded: pl.DataFrame) -> pl.DataFrame:
    """The folded parts with their limbs brought into shape again, so that they can be added up for ever."""
    wide = [part for part in parts if part.in_limbs]
    limbs = [_limbs(part, exact.carried([folded[part.at(i)].to_numpy() for i in range(part.width)])) for part in wide]
    return folded.with_columns(*chain(*limbs)) if limbs else folded


def _limbs(part: Part, limbs: Sequence[Numbers]) -> list[pl.Series]:
    return [pl.Series(part.at(i), limb) for i, limb in enumerate(limbs)]


def _folding(part: Part) -> list[pl.Expr]:
    if part.kind == "spread":
        return _folded_spread(part)
    if part.kind in ("min", "max"):
        return [_extreme(part, pl.col(part.at(0)))]
    return [pl.col(f.name).sum() for f in part.fields]


def _extreme(part: Part, column: pl.Expr) -> pl.Expr:
    """NaN is greater than any number, as in Spark; so a minimum is NaN only where there is nothing else."""
    if part.kind == "min":
        return column.min()
    return column.nan_max() if part.floating else column.max()


def _spread(part: Part, column: pl.Expr) -> list[pl.Expr]:
    apart = column.var(ddof=0) * column.count()
    return [column.mean().fill_null(0.0).alias(part.at(_MEAN)), apart.fill_null(0.0).alias(part.at(_APART))]


def _folded_spread(part: Part) -> list[pl.Expr]:
    """Means weighted by their counts; distances from the common mean (Chan, Golub, LeVeque)."""
    n = pl.col(Part("count", part.column, part.type).at(0))
    means, apart = pl.col(part.at(_MEAN)), pl.col(part.at(_APART))
    first = means.filter(n > 0).first().fill_null(0.0)  # the mean is near it: adding up distances rounds less
    mean = first + ((means - first) * n).sum() / n.sum().clip(lower_bound=1)
    return [mean.alias(part.at(_MEAN)), (apart + (means - mean).pow(2) * n).sum().alias(part.at(_APART))]
