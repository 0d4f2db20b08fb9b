"""All aggregates of a step together: rows become partial results, partial results are folded, results are read off."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.kernels.aggregates import Aggregate, Partial, fold, parts_of, result
from penstock.kernels.tables import stored

Longs = npt.NDArray[np.int64]


class Aggregation:
    """What a step keeps of the rows of a group so that it can tell its aggregates at any time.

    Partial results are tables: grouping columns and `fields`. They can be folded in any order and in any number of pieces."""

    def __init__(self, aggregates: Sequence[Aggregate], input_schema: pa.Schema) -> None:
        self._aggregates, self._input = tuple(aggregates), input_schema
        self._parts = parts_of(aggregates, input_schema)
        self.fields = [f.with_nullable(True) for part in self._parts for f in part.fields]
        self.columns = list(dict.fromkeys(part.column for part in self._parts if part.column))  # of the rows
        self.needs_position = False  # whether TIME and POSITION of the rows are needed too

    def partial(self, rows: pa.Table, by: Sequence[str], made: Mapping[str, Longs]) -> pa.Table:
        """One row per group: by columns of the rows, made columns (int64, as long as the rows), fields.

        Groups are rows with equal by and made columns."""
        partial = Partial(self._parts, rows)
        columns = [*(pl.Series(name, values) for name, values in made.items()), *partial.columns.values()]
        plain = [pl.col(name) + 0.0 for name in by if pa.types.is_floating(self._input.field(name).type)]  # -0.0 is 0.0
        wanted = list(dict.fromkeys([*by, *self.columns]))
        frame = frame_of(rows.select(wanted)).lazy().with_columns(*columns, *plain) if wanted else pl.LazyFrame(columns)
        grouped = partial.finish(frame.group_by(*by, *made).agg(partial.expressions).collect())
        keys = [self._input.field(name).with_nullable(True) for name in by] + [pa.field(name, pa.int64()) for name in made]
        return stored(grouped, pa.schema([*keys, *self.fields]))

    def fold(self, partials: pa.Table, keys: Sequence[str], kept: Sequence[str] = (), more: Sequence[pl.Expr] = ()) -> pa.Table:
        """Partial results with equal keys as one, in the columns of `partials`. `kept` columns are equal wherever the keys are;
        `more` folds columns that are not ours."""
        return stored(fold(self._parts, frame_of(partials).lazy(), keys, kept, more), partials.schema)

    def results(self, partials: pa.Table, seconds: npt.NDArray[np.float64] | None = None) -> dict[str, pa.Array]:
        """The aggregates by name, one value per row of folded partial results. seconds: how long each row's stretch of time is."""
        return {a.name: result(a, partials, self._input) for a in self._aggregates}


def frame_of(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame
