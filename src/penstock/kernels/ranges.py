"""Counts, sums and extremes over many ranges of rows that overlap, at a cost that does not grow with how long they are.

Integers are added up once from the first row on; the sum of a range is a difference, which is exact. Differences of doubles would
lose digits, and NaN and infinity would never go away again; they, and extremes, are put together from halves: of the blocks
of 1, 2, 4, 8 … rows one is such that a range begins in it and ends in the next one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels import exact
from penstock.kernels.aggregates import Aggregate, bag_of, parts_of
from penstock.kernels.parts import Part

Longs = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]
Fold = Callable[..., Numbers]


def quick_parts(aggregate: Aggregate, schema: pa.Schema) -> list[Part] | None:
    """The parts of an aggregate that can be told this way; None if it cannot."""
    if bag_of(aggregate, schema) is not None:
        return None
    parts = parts_of(aggregate, schema)
    return parts if all(map(_is_quick, parts)) else None


def _is_quick(part: Part) -> bool:
    if part.kind in ("min", "max"):
        return bool(pa.types.is_integer(part.type) or pa.types.is_floating(part.type))
    return part.kind in ("rows", "true", "count", "sum") or part.in_limbs


def partials(parts: Sequence[Part], columns: Mapping[str, pa.Array], begin: Longs, end: Longs) -> pa.Table:
    """Partial results of the rows begin[i] … end[i] - 1 (never none), one row per range."""
    made: dict[str, pa.Array] = {}
    for part in parts:
        if part.kind == "rows":
            made[part.at(0)] = pa.array(end - begin)
        elif part.kind == "count":
            made[part.at(0)] = pa.array(_counts(columns[part.column], begin, end))
        elif part.kind == "true":
            made[part.at(0)] = pa.array(_differences(_ones(columns[part.column].fill_null(False)), begin, end))
        elif part.kind in ("sum", "squares"):
            made |= {part.at(i): pa.array(limb) for i, limb in enumerate(_sums(part, columns[part.column], begin, end))}
        else:
            made[part.at(0)] = _extremes(part, columns[part.column], begin, end)
    return pa.table(made)


def _counts(column: pa.Array, begin: Longs, end: Longs) -> Longs:
    if not column.null_count:
        return end - begin
    return _differences(_ones(column.is_valid()), begin, end)


def _ones(column: pa.Array) -> Longs:
    return np.asarray(column.to_numpy(zero_copy_only=False).astype(np.int64))


def _sums(part: Part, column: pa.Array, begin: Longs, end: Longs) -> list[Numbers]:
    if part.floating:
        values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        return [folded(values, begin, end, np.add, 0.0)]
    addends = exact.addends(column) if part.kind == "sum" else exact.square_addends(column)
    limbs = [_differences(values, begin, end) for values in addends]
    return list(limbs) if len(limbs) > 1 else list(exact.split(limbs[0], part.width))


def _extremes(part: Part, column: pa.Array, begin: Longs, end: Longs) -> pa.Array:
    """NaN is greater than any number: a minimum is NaN only where there is nothing else."""
    least = part.kind == "min"
    dtype = part.type.to_pandas_dtype()
    nothing: Any
    fold: Fold
    if part.floating:
        nothing, fold = (np.nan, np.fmin) if least else (-np.inf, np.maximum)
        values = column.fill_null(nothing).to_numpy(zero_copy_only=False) + dtype(0)  # -0.0 is 0.0
    else:
        info = np.iinfo(dtype)
        nothing, fold = (info.max, np.minimum) if least else (info.min, np.maximum)
        values = column.fill_null(nothing).to_numpy(zero_copy_only=False)
    found = folded(values, begin, end, fold, nothing)
    empty = _counts(column, begin, end) == 0 if column.null_count else None
    return pa.array(found, part.type, mask=empty)


def _differences(values: Longs, begin: Longs, end: Longs) -> Longs:
    """Sums modulo 2**64: right wherever the sum of a range fits, however far the sum of all rows has gone."""
    total = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=total[1:])
    return np.asarray(total[end] - total[begin])


def folded(values: Numbers, begin: Longs, end: Longs, fold: Fold, nothing: Any) -> Numbers:
    """values[begin[i]] … values[end[i] - 1] folded, for each i; `nothing` changes no value."""
    last = end - 1
    levels = np.frexp((begin ^ last).astype(np.float64))[1]  # the highest bit in which both ends differ, from 1 on; 0: one row
    order = np.argsort(levels.astype(np.uint8), kind="stable")
    cuts = np.concatenate([[0], np.cumsum(np.bincount(levels))])
    forth = np.full(1 << max(len(values) - 1, 1).bit_length(), nothing, values.dtype)
    forth[: len(values)] = values
    back = forth.copy()  # forth: from the beginning of the block to the row; back: from the row to the end of the block
    out = values[begin]
    with np.errstate(invalid="ignore", over="ignore"):
        for level in range(1, len(cuts) - 1):
            if level > 1:
                _double(forth, back, 1 << (level - 2), fold)
            mine = order[cuts[level] : cuts[level + 1]]
            out[mine] = fold(back[begin[mine]], forth[last[mine]])
    return out


def _double(forth: Numbers, back: Numbers, block: int, fold: Fold) -> None:
    """Blocks twice as long."""
    pairs = forth.reshape(-1, 2, block)
    fold(pairs[:, 0, -1:], pairs[:, 1, :], out=pairs[:, 1, :])
    pairs = back.reshape(-1, 2, block)
    fold(pairs[:, 0, :], pairs[:, 1, :1], out=pairs[:, 0, :])
