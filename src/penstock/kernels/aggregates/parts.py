"""Parts: plain columns of a partial result (a count, limbs of a sum, a minimum …) that are folded by adding or comparing.

A part knows how it comes out of rows and how several of it become one, in any order and any number of pieces.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.kernels.aggregates import exact
from penstock.kernels.columns import column as whole
from penstock.kernels.columns import without_sign

Numbers = npt.NDArray[Any]


class Made(NamedTuple):
    """How a part comes out of one table of rows: expressions over its groups, columns that they need beside those of the rows, and
    what becomes of the grouped columns, if they are not yet as they are kept."""

    expressions: Sequence[pl.Expr]
    columns: Sequence[pl.Series] = ()
    finish: Callable[[pl.DataFrame], Sequence[pl.Series]] | None = None


@dataclass(frozen=True)
class Part(ABC):
    """A column of the partial table (or several), made from one column of the rows."""

    kind: ClassVar[str]  # how the names of its columns begin; no two parts that differ may share it

    column: str  # "" for rows
    type: pa.DataType  # of the rows' column

    def at(self, i: int) -> str:
        return f"__{self.kind}{i}_{self.column}"

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.at(0), pa.int64())]

    @property
    def width(self) -> int:
        return len(self.fields)

    @property
    def floating(self) -> bool:
        return bool(pa.types.is_floating(self.type))

    @property
    def quick(self) -> bool:
        """ranges.py knows how to tell it of ranges that overlap."""
        return False

    @property
    def taken_back(self) -> bool:
        """It is a sum of whole numbers: what is subtracted leaves what would be there without it."""
        return False

    @abstractmethod
    def made(self, rows: pa.Table) -> Made:
        """How it comes out of these rows."""

    def folding(self) -> Sequence[pl.Expr]:
        """How several of it become one; `carried` follows."""
        return [pl.col(f.name).sum() for f in self.fields]

    def carried(self, folded: pl.DataFrame) -> Sequence[pl.Series]:
        """Folded columns that have to be brought into shape again, so that they can be folded for ever."""
        return ()


class _Count(Part):
    @property
    def quick(self) -> bool:
        return True

    @property
    def taken_back(self) -> bool:
        return True


class Rows(_Count):
    """The number of rows."""

    kind = "rows"

    def __init__(self) -> None:
        super().__init__("", pa.int64())

    def made(self, rows: pa.Table) -> Made:
        return Made([pl.len().cast(pl.Int64).alias(self.at(0))])


class Values(_Count):
    """The number of values that are not null."""

    kind = "count"

    def made(self, rows: pa.Table) -> Made:
        counted = pl.col(self.column).count() if rows[self.column].null_count else pl.len()
        return Made([counted.cast(pl.Int64).alias(self.at(0))])


class Trues(_Count):
    """The number of rows for which a condition is true."""

    kind = "true"

    def made(self, rows: pa.Table) -> Made:
        return Made([pl.col(self.column).sum().cast(pl.Int64).alias(self.at(0))])


class Added(Part):
    """A sum: of doubles, or exact in limbs."""

    @property
    def quick(self) -> bool:
        return True

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.at(i), pa.float64() if self.floating else pa.int64()) for i in range(self.limbs)]

    @property
    def taken_back(self) -> bool:
        return not self.floating

    @property
    @abstractmethod
    def limbs(self) -> int: ...

    @abstractmethod
    def addends(self, column: pa.Array) -> list[exact.Longs]:
        """What is added up per row: one column where no sum over these rows can leave a long, else one for each limb."""

    def made(self, rows: pa.Table) -> Made:
        if self.floating:
            return Made([pl.col(self.column).cast(pl.Float64).sum().alias(self.at(0))])
        added = self.addends(whole(rows, self.column))
        columns = [pl.Series(self.at(i), values) for i, values in enumerate(added)]
        return Made([pl.col(c.name).sum() for c in columns], columns, self._split if len(added) == 1 else None)

    def carried(self, folded: pl.DataFrame) -> Sequence[pl.Series]:
        return () if self.floating else self._series(exact.carried([folded[f.name].to_numpy() for f in self.fields]))

    def _split(self, grouped: pl.DataFrame) -> Sequence[pl.Series]:
        return self._series(exact.split(grouped[self.at(0)].to_numpy(), self.limbs))

    def _series(self, limbs: Sequence[Numbers]) -> list[pl.Series]:
        return [pl.Series(self.at(i), limb) for i, limb in enumerate(limbs)]


class Total(Added):
    """The sum of the values."""

    kind = "sum"

    @property
    def limbs(self) -> int:
        return 1 if self.floating else exact.limb_count(self.type)

    def addends(self, column: pa.Array) -> list[exact.Longs]:
        return exact.addends(column)


class Squares(Added):
    """The sum of the squares of integers, or of decimals that fit into a long."""

    kind = "squares"

    @property
    def limbs(self) -> int:
        return exact.SQUARE_LIMBS

    def addends(self, column: pa.Array) -> list[exact.Longs]:
        return exact.square_addends(column)


class Spread(Part):
    """The mean of doubles, and the sum of the squared distances from it. Values of the same column stand beside it."""

    kind = "spread"

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.at(i), pa.float64()) for i in range(2)]

    def made(self, rows: pa.Table) -> Made:
        column = pl.col(self.column).cast(pl.Float64)
        apart = column.var(ddof=0) * column.count()
        return Made([column.mean().fill_null(0.0).alias(self.at(0)), apart.fill_null(0.0).alias(self.at(1))])

    def folding(self) -> Sequence[pl.Expr]:
        """Means weighted by their counts; distances from the common mean (Chan, Golub, LeVeque)."""
        n = pl.col(Values(self.column, self.type).at(0))
        means, apart = pl.col(self.at(0)), pl.col(self.at(1))
        first = means.filter(n > 0).first().fill_null(0.0)  # the mean is near it: adding up distances rounds less
        mean = first + ((means - first) * n).sum() / n.sum().clip(lower_bound=1)
        return [mean.alias(self.at(0)), (apart + (means - mean).pow(2) * n).sum().alias(self.at(1))]


class Extreme(Part):
    """The least or the greatest value. NaN is greater than any number, as in Spark; -0.0 is 0.0."""

    @property
    def quick(self) -> bool:
        return bool(pa.types.is_integer(self.type) or self.floating or pa.types.is_temporal(self.type))

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.at(0), self.type)]

    @abstractmethod
    def of(self, column: pl.Expr) -> pl.Expr: ...

    def made(self, rows: pa.Table) -> Made:
        if not self.floating:
            return Made([self.of(pl.col(self.column)).alias(self.at(0))])
        return Made(
            [self.of(pl.col(self.at(0))).alias(self.at(0))], [pl.Series(self.at(0), without_sign(whole(rows, self.column)))]
        )

    def folding(self) -> Sequence[pl.Expr]:
        return [self.of(pl.col(self.at(0)))]


class Least(Extreme):
    """NaN only where there is nothing else."""

    kind = "min"

    def of(self, column: pl.Expr) -> pl.Expr:
        return column.min()


class Greatest(Extreme):
    kind = "max"

    def of(self, column: pl.Expr) -> pl.Expr:
        return column.nan_max() if self.floating else column.max()


class Partial:
    """How several parts come out of one table of rows."""

    def __init__(self, parts: Sequence[Part], rows: pa.Table) -> None:
        made = [part.made(rows) for part in parts]
        self.columns = [column for one in made for column in one.columns]
        self.expressions = [e for one in made for e in one.expressions]
        self._finish = [one.finish for one in made if one.finish]

    def finish(self, grouped: pl.DataFrame) -> pl.DataFrame:
        made = list(chain(*(finish(grouped) for finish in self._finish)))
        return grouped.with_columns(*made) if made else grouped


def folding(parts: Sequence[Part]) -> list[pl.Expr]:
    """How partial results with equal keys become one; `carry` has to follow."""
    return [e for part in parts for e in part.folding()]


def carry(parts: Sequence[Part], folded: pl.DataFrame) -> pl.DataFrame:
    """The folded parts with their limbs brought into shape again, so that they can be added up for ever."""
    made = list(chain(*(part.carried(folded) for part in parts)))
    return folded.with_columns(*made) if made else folded
