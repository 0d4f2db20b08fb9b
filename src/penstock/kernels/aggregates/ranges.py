"""Counts, sums and extremes over many ranges of rows that overlap, at a cost that does not grow with how long they are.

Integers are added up once from the first row on; the sum of a range is a difference, which is exact. Differences of doubles would
lose digits, and NaN and infinity would never go away again; they, and extremes, are put together from halves: for each range
there are two blocks of 1, 2, 4, 8 … rows side by side such that it begins in the first and ends in the second.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import filled
from penstock.kernels.aggregates import exact
from penstock.kernels.aggregates.bags import Bag
from penstock.kernels.aggregates.functions import function_of, taken
from penstock.kernels.aggregates.parts import Added, Extreme, Least, Part, Rows, Trues, Values
from penstock.kernels.columns import as_type, column
from penstock.kernels.windows.looking_back import Ranges
from penstock.plan import Aggregate

Longs = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]
Fold = Callable[..., Numbers]

_SHORT = 32  # ranges that are together so many times as long as the rows are added up one by one


def quick_parts(aggregate: Aggregate, schema: pa.Schema) -> list[Part] | None:
    """The parts of an aggregate that can be told this way; None if it cannot."""
    kept = function_of(aggregate).keeps(taken(aggregate, schema))
    return list(kept) if not isinstance(kept, Bag) and all(part.quick for part in kept) else None


def partials(parts: Sequence[Part], sources: Sequence[Ranges], count: int) -> pa.Table:
    """Partial results of so many rows: of what each looks back upon, over all sources."""
    made: dict[str, pa.Array] = {}
    with np.errstate(invalid="ignore", over="ignore"):  # infinities
        for part in parts:
            if isinstance(part, Extreme):
                made[part.at(0)] = _extremes(part, sources, count)
            else:
                made |= {part.at(i): pa.array(limb) for i, limb in enumerate(_added(part, sources, count))}
    return pa.table(made)


def _added(part: Part, sources: Sequence[Ranges], count: int) -> list[Numbers]:
    out: list[Numbers] = [np.zeros(count, f.type.to_pandas_dtype()) for f in part.fields]
    for source in sources:
        for total, limb in zip(out, _sums(part, source), strict=True):
            if len(source.of) == count:
                total += limb
            else:
                total[source.of] += limb
    return out


def _sums(part: Part, source: Ranges) -> Sequence[Numbers]:
    if isinstance(part, Rows):
        return [source.end - source.begin]
    values = column(source.rows, part.column)
    if isinstance(part, Values):
        return [_counts(values, source)]
    if isinstance(part, Trues):
        return [_differences(_ones(values.fill_null(False)), source)]
    if part.floating:
        return [
            folded(values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False), source.begin, source.end, np.add, 0.0)
        ]
    assert isinstance(part, Added)
    limbs = [_differences(one, source) for one in part.addends(values)]
    return limbs if len(limbs) > 1 else exact.split(limbs[0], part.width)


def _counts(values: pa.Array, source: Ranges) -> Longs:
    return _differences(_ones(values.is_valid()), source) if values.null_count else source.end - source.begin


def _ones(values: pa.Array) -> Longs:
    return np.asarray(values.to_numpy(zero_copy_only=False).astype(np.int64))


def _extremes(part: Extreme, sources: Sequence[Ranges], count: int) -> pa.Array:
    """NaN is greater than any number: a minimum is NaN only where there is nothing else."""
    t = _number(part.type)
    dtype = np.dtype(t.to_pandas_dtype())
    fold, nothing = _least(dtype) if isinstance(part, Least) else _greatest(dtype)
    out, known = np.full(count, nothing, dtype), np.zeros(count, np.int64)
    for source in sources:
        values = column(source.rows, part.column).cast(t)
        known[source.of] += _counts(values, source)
        plain = filled(values, nothing).to_numpy(zero_copy_only=False) + dtype.type(0)  # -0.0 is 0.0
        out[source.of] = fold(out[source.of], folded(plain, source.begin, source.end, fold, nothing))
    return as_type(pa.array(out, t, mask=known == 0), part.type)


def _number(t: pa.DataType) -> pa.DataType:
    """What values of this type are kept as: numbers."""
    if pa.types.is_temporal(t):
        return pa.int32() if t.bit_width == 32 else pa.int64()
    return t


def _least(dtype: np.dtype[Any]) -> tuple[Fold, Any]:
    return (np.fmin, np.nan) if dtype.kind == "f" else (np.minimum, np.iinfo(dtype).max)


def _greatest(dtype: np.dtype[Any]) -> tuple[Fold, Any]:
    return (np.maximum, -np.inf) if dtype.kind == "f" else (np.maximum, np.iinfo(dtype).min)


def _differences(values: Longs, source: Ranges) -> Longs:
    """Sums modulo 2**64: right wherever the sum of a range fits, however far the sum of all rows has gone."""
    total = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=total[1:])
    return np.asarray(total[source.end] - total[source.begin])


def folded(values: Numbers, begin: Longs, end: Longs, fold: Fold, nothing: Any) -> Numbers:
    """The values of each range begin … end - 1 folded; `nothing` changes no value."""
    if int(np.sum(end - begin)) < _SHORT * len(values):
        return _one_by_one(values, begin, end, fold, nothing)
    return _from_halves(values, begin, end - 1, fold, nothing)


def _one_by_one(values: Numbers, begin: Longs, end: Longs, fold: Any, nothing: Any) -> Numbers:
    edges = np.stack([begin, end], 1).ravel()
    return np.asarray(fold.reduceat(np.append(values, values.dtype.type(nothing)), edges)[::2])


def _from_halves(values: Numbers, begin: Longs, last: Longs, fold: Fold, nothing: Any) -> Numbers:
    levels = np.frexp((begin ^ last).astype(np.float64))[1]  # the highest bit in which both ends differ, from 1 on; 0: one row
    order = np.argsort(levels.astype(np.uint8), kind="stable")
    cuts = np.concatenate([[0], np.cumsum(np.bincount(levels))])
    forth = np.full(1 << max(len(values) - 1, 1).bit_length(), nothing, values.dtype)
    forth[: len(values)] = values
    back = forth.copy()  # forth: from the beginning of the block to the row; back: from the row to the end of the block
    out = values[begin]
    for level in range(1, len(cuts) - 1):
        if level > 1:
            _double(forth, back, 1 << (level - 2), fold)
        mine = order[cuts[level] : cuts[level + 1]]
        out[mine] = fold(back[begin[mine]], forth[last[mine]])
    return np.asarray(out)


def _double(forth: Numbers, back: Numbers, block: int, fold: Fold) -> None:
    """Blocks twice as long."""
    pairs = forth.reshape(-1, 2, block)
    fold(pairs[:, 0, -1:], pairs[:, 1, :], out=pairs[:, 1, :])
    pairs = back.reshape(-1, 2, block)
    fold(pairs[:, 0, :], pairs[:, 1, :1], out=pairs[:, 0, :])
