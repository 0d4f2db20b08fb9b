"""What a result says of the late rows in it: how many (`revision`), and which ones came since it was last sent (`cause`)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.columns import POSITION
from penstock.core.position import position_text
from penstock.kernels.aggregates.partials import joinable
from penstock.kernels.columns import column, numbers

LATE = "__late"  # late rows folded in
CAUSE = "__cause"  # their positions, the first ten
FIELDS: list[pa.Field] = [pa.field(LATE, pa.int64()), pa.field(CAUSE, pa.list_(pa.binary()))]
TYPE = pa.struct([pa.field("rows", pa.list_(pa.string())), pa.field("count", pa.int64())])

_MOST = 10


def none(partials: pa.Table) -> pa.Table:
    """Partial results without late rows."""
    n = partials.num_rows
    zeros = pa.array(np.zeros(n, np.int64))
    return partials.append_column(FIELDS[0], zeros).append_column(FIELDS[1], pa.nulls(n, FIELDS[1].type))


def with_late_rows(partials: pa.Table, rows: pa.Table, keys: Sequence[str], starts: npt.NDArray[np.int64], start: str) -> pa.Table:
    """Partial results of late rows, with their number and positions. keys and start: what both are grouped by."""
    groups = (
        joinable(rows, keys, POSITION)
        .with_columns(pl.Series(start, starts))
        .group_by(*keys, start)
        .agg(pl.len().cast(pl.Int64).alias(LATE), pl.col(POSITION).sort().head(_MOST).alias(CAUSE))
    )
    matched = joinable(partials, keys, start).join(groups, on=[*keys, start], how="left", nulls_equal=True, maintain_order="left")
    found = matched.to_arrow(compat_level=pl.CompatLevel.oldest())
    return partials.append_column(FIELDS[0], found[LATE].cast(pa.int64())).append_column(
        FIELDS[1], found[CAUSE].cast(FIELDS[1].type)
    )


def folding() -> list[pl.Expr]:
    """How both are folded."""
    return [pl.col(LATE).sum(), pl.col(CAUSE).explode().drop_nulls().sort().head(_MOST)]


def revisions(sent: pa.Table | None, wanted: pa.Table, key: Sequence[str]) -> npt.NDArray[np.int64]:
    """The revision of each wanted row as it was last sent; -1 where it was not."""
    if sent is None:
        return np.full(wanted.num_rows, -1)
    names, known = joinable(wanted, key), joinable(sent, key, "revision")
    joined = names.join(known, on=list(key), how="left", nulls_equal=True, maintain_order="left")
    return joined["revision"].fill_null(-1).to_numpy()


def spread(causes: pa.Array, marked: npt.NDArray[np.bool_]) -> pa.Array:
    """Causes of the results that have one, among all results; null for the others."""
    return causes.take(pa.array(np.cumsum(marked) - 1, mask=~marked))


def causes(partials: pa.Table, known: npt.NDArray[np.int64], fresh: pa.Array) -> pa.Array:
    """The column `cause`: late rows since the last emission. known: `revision` as last sent, -1 if never; fresh: the positions that
    came in this epoch, which are all of them where something was sent before."""
    late = numbers(partials, LATE)
    count = late - np.maximum(known, 0)
    all_, new = column(partials, CAUSE).to_pylist(), fresh.to_pylist()
    out = []
    for i, n in enumerate(count.tolist()):
        rows = (new[i] if known[i] >= 0 else all_[i]) or []
        out.append({"rows": [position_text(p) for p in rows[:_MOST]], "count": n} if n else None)
    return pa.array(out, TYPE)
