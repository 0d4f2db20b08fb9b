"""Columns of Arrow tables as the kernels want them: NumPy without a copy where there is one chunk, plain types in state."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import Column, one_array
from penstock.core.columns import HASH, POSITION, TIME, WATERMARK

_C = TypeVar("_C", bound=Column)


def column(table: pa.Table, name: str) -> pa.Array:
    """A column as one array."""
    return one_array(table[name])


def numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of numbers without nulls."""
    return np.asarray(column(table, name).to_numpy(zero_copy_only=True))


def as_type(values: _C, t: pa.DataType) -> _C:
    return values if values.type == t else cast("_C", values.cast(t))


def sorted_by_hash(table: pa.Table) -> pa.Table:
    return table.take(np.argsort(numbers(table, HASH), kind="stable"))


def by_slot(table: pa.Table, width: int) -> dict[int, pa.Table]:
    """The rows by the stretch of time (its begin) they lie in, each in the order it had; right for times before 1970 too."""
    slots = numbers(table, TIME) // np.int64(width) * np.int64(width)
    if not len(slots):
        return {}
    if (slots == slots[0]).all():
        return {int(slots[0]): table}
    order = np.argsort(slots, kind="stable")
    ordered, slots = table.take(order), slots[order]
    at = np.flatnonzero(np.diff(slots, prepend=slots[0] - 1)).tolist()
    return {int(slots[a]): ordered.slice(a, b - a) for a, b in zip(at, [*at[1:], len(slots)], strict=True)}


def travelling(schema: pa.Schema, *more: tuple[str, pa.DataType], placed: bool = True) -> pa.Schema:
    """The schema of a step's rows on their way to others: its own columns, TIME, WATERMARK and, if placed, POSITION."""
    place = [(POSITION, pa.binary())] if placed else []
    return pa.schema([*schema, (TIME, pa.int64()), (WATERMARK, pa.int64()), *place, *more])


def plain(values: _C) -> _C:
    """Values as they are told apart and compared: -0.0 is 0.0, and NaN is NaN whatever its bits."""
    if not pa.types.is_floating(values.type):
        return values
    return cast("_C", pc.if_else(pc.is_nan(values), pa.scalar(np.nan, values.type), without_sign(values)))


def without_sign(values: _C) -> _C:
    """Doubles or floats with 0.0 for -0.0. Not with Polars, which takes `x + 0.0` for x."""
    return cast("_C", pc.add(values, pa.scalar(0.0, values.type)))


def with_plain(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows with these columns as they are told apart."""
    for name in names:
        if pa.types.is_floating(rows.schema.field(name).type):
            rows = rows.set_column(rows.column_names.index(name), name, plain(rows[name]))
    return rows


def stored(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """A frame as an Arrow table of exactly this schema."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest()).select(schema.names).cast(schema)
