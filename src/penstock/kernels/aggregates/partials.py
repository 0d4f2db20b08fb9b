"""All aggregates of a step together: rows become partial results, partial results are folded, results are read off."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.arrow import array_of
from penstock.core.columns import FAILED
from penstock.core.names import RESERVED_PREFIX
from penstock.core.time import text
from penstock.errors import BadRow
from penstock.kernels.aggregates.function import Folded
from penstock.kernels.aggregates.functions import function_of, kept_for, taken
from penstock.kernels.aggregates.own import GroupFailed
from penstock.kernels.aggregates.parts import Partial, carry, folding
from penstock.kernels.aggregates.unanswered import NoResult, marked
from penstock.kernels.column_names import ROW, START
from penstock.kernels.columns import column, plain, stored, with_plain
from penstock.plan import Aggregate

Longs = npt.NDArray[np.int64]

_ONE = "__one"
_FEW = 20_000  # rows
_HINT = (
    "which rows are added and merged together is chance, so no row can be set aside for it: "
    "let add and merge take any rows and states, and let result refuse what is wrong; mended, the flow goes on where it is"
)


class Aggregation:
    """What a step keeps of the rows of a group so that it can tell its aggregates at any time.

    Partial results are tables: grouping columns and `fields`. They can be folded in any order and in any number of pieces."""

    def __init__(self, aggregates: Sequence[Aggregate], input_schema: pa.Schema) -> None:
        self._functions = [(function_of(a), taken(a, input_schema)) for a in aggregates]
        self._input = input_schema
        self._kept = kept_for(aggregates, input_schema)
        self._parts, self._bags = self._kept.parts, list(self._kept.bags.values())
        self.fields = [f.with_nullable(True) for f in self._kept.fields()]
        self.columns = self._kept.columns()  # of the rows
        self.needs_position = any(bag.needs_position for bag in self._bags)  # whether TIME and POSITION of the rows are needed too

    def partial(self, rows: pa.Table, by: Sequence[str], made: Mapping[str, Longs]) -> pa.Table:
        """One row per group: by columns of the rows, made columns (int64, as long as the rows), fields.

        Groups are rows with equal by and made columns."""
        partial = Partial(self._parts, rows)
        columns = [*(pl.Series(name, values) for name, values in made.items()), *partial.columns]
        wanted = list(dict.fromkeys([*by, *(part.column for part in self._parts if part.column)]))
        if self._bags or not (wanted or columns):
            columns.append(pl.Series(ROW, np.arange(rows.num_rows)))
        frame = frame_of(with_plain(rows.select(wanted), by)).with_columns(*columns) if wanted else pl.DataFrame(columns)
        grouped = partial.finish(self._grouped(frame, [*by, *made], partial.expressions))
        keys = [self._input.field(name).with_nullable(True) for name in by] + [pa.field(name, pa.int64()) for name in made]
        if not self._bags:
            return stored(grouped, pa.schema([*keys, *self.fields]))
        groups = _groups(grouped[ROW])
        with _named(grouped, [*by, *made]):
            bags = {bag.name: bag.partial(rows, groups, len(grouped)) for bag in self._bags}
        return self._with_bags(grouped, bags, pa.schema([*keys, *self.fields]))

    def fold(self, partials: pa.Table, keys: Sequence[str], kept: Sequence[str] = (), more: Sequence[pl.Expr] = ()) -> pa.Table:
        """Partial results with equal keys as one, in the columns of `partials`. `kept` columns are equal wherever the keys are;
        `more` folds columns that are not ours."""
        names = [f.name for f in partials.schema if f.name not in self._kept.bags]
        frame = frame_of(partials.select(names))
        if self._bags:
            frame = frame.with_columns(pl.Series(ROW, np.arange(partials.num_rows)))
        expressions = [*folding(self._parts), *(pl.col(k).first() for k in kept), *more]
        folded = carry(self._parts, self._grouped(frame, keys, expressions))
        if not self._bags:
            return stored(folded, partials.schema)
        groups, count = _groups(folded[ROW]), len(folded)
        if count == partials.num_rows:  # nothing to put together
            rows = array_of(np.argsort(groups))
            bags = {bag.name: column(partials, bag.name).take(rows) for bag in self._bags}
        else:
            with _named(folded, [*keys, *kept]):
                bags = {bag.name: bag.fold(column(partials, bag.name), groups, count) for bag in self._bags}
        return self._with_bags(folded, bags, partials.schema)

    def results(self, partials: pa.Table, seconds: npt.NDArray[np.float64] | None = None) -> dict[str, pa.Array]:
        """The aggregates by name, one value per row of folded partial results; and under FAILED the rows for which the user's own
        have none. seconds: how long each row's stretch of time is."""
        made, failed, folded = dict[str, pa.Array](), list[NoResult](), Folded(partials, seconds)
        for function, of in self._functions:
            try:
                made[of.name] = function.result(of, folded)
            except NoResult as some:
                made[of.name] = some.values
                failed.append(some)
        return made | ({FAILED: marked(failed, partials.num_rows)} if failed else {})

    def _grouped(self, frame: pl.DataFrame, keys: Sequence[str], expressions: Sequence[pl.Expr]) -> pl.DataFrame:
        """One row per group; with bags, _ROW lists the numbers of its rows."""
        wanted = [*expressions, pl.col(ROW)] if self._bags else list(expressions)
        if not keys:  # everything is one group, if there is anything
            return _agg(frame.with_columns(pl.lit(0).alias(_ONE)), [_ONE], wanted).drop(_ONE)
        return _agg(frame, keys, wanted)

    def _with_bags(self, grouped: pl.DataFrame, bags: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
        plain = stored(grouped, pa.schema([f for f in schema if f.name not in bags]))
        return pa.table([bags[name] if name in bags else plain[name] for name in schema.names], schema=schema)


@contextmanager
def _named(groups: pl.DataFrame, names: Sequence[str]) -> Iterator[None]:
    """Errors of the user's own aggregates name the group by these columns, as far as users know them."""
    try:
        yield
    except GroupFailed as failed:
        group = groups.row(failed.group, named=True)
        key = [f"{name}={group[name]!r}" for name in names if not name.startswith(RESERVED_PREFIX)]
        key += [f"window_start={text(group[START])}"] if START in names else []
        raise BadRow(failed.error.what, *failed.error.detail, *([f"group {', '.join(key)}"] if key else []), hint=_HINT) from failed


def _agg(frame: pl.DataFrame, keys: Sequence[str], expressions: Sequence[pl.Expr]) -> pl.DataFrame:
    """Polars plans a query before it runs it: for few rows that costs more than the rows, for many it halves what they cost."""
    if len(frame) < _FEW:
        return frame.group_by(keys).agg(expressions)
    return frame.lazy().group_by(keys).agg(expressions).collect()


def _groups(rows: pl.Series) -> Longs:
    """The number of the group of each row, from the numbers of the rows of each group."""
    counts = rows.list.len().to_numpy()
    groups = np.empty(int(counts.sum()), np.int64)
    groups[rows.explode().to_numpy() if len(rows) else np.empty(0, np.int64)] = np.repeat(np.arange(len(counts)), counts)
    return groups


def frame_of(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def joinable(rows: pa.Table, key: Sequence[str], *others: str) -> pl.DataFrame:
    """Rows to be joined by these columns: -0.0 is 0.0, and doubles stand there by their bits, for Polars does not take NaN for NaN
    where one side is a single row."""
    names = {name: _bits(plain(column(rows, name))) for name in key}
    return frame_of(pa.table(names | {name: column(rows, name) for name in others}))


def _bits(values: pa.Array) -> pa.Array:
    bits = {pa.float64(): pa.int64(), pa.float32(): pa.int32()}.get(values.type)
    return values.view(bits) if bits else values
