"""Arrow typed as it is: the casts for what pyarrow's stubs leave out or name wrongly stand here and not where Arrow is used."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Column = pa.Array | pa.ChunkedArray
Values = Column | Sequence[Any] | npt.NDArray[Any]

_N = TypeVar("_N", bound=np.generic)
_V = TypeVar("_V")
_C = TypeVar("_C", bound=Column)


@overload
def numbers_in(buffer: pa.Buffer | bytes | None, dtype: type[_N], count: int = -1, offset: int = 0) -> npt.NDArray[_N]: ...
@overload
def numbers_in(buffer: pa.Buffer | bytes | None, dtype: npt.DTypeLike, count: int = -1, offset: int = 0) -> npt.NDArray[Any]: ...
def numbers_in(buffer: pa.Buffer | bytes | None, dtype: npt.DTypeLike, count: int = -1, offset: int = 0) -> npt.NDArray[Any]:
    """The memory of a buffer as numbers, without a copy. Only an array without values may lack the buffer."""
    assert buffer is not None
    return np.frombuffer(cast("bytes", buffer), dtype, count, offset)


def buffer_of(numbers: npt.NDArray[Any]) -> pa.Buffer:
    """The memory of contiguous numbers as a buffer, without a copy."""
    return pa.py_buffer(cast("bytes", numbers))


def array_of(numbers: npt.NDArray[Any], absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """NumPy's numbers as an array of their own type; null where they are absent."""
    array: pa.Array = pa.array(numbers, mask=absent)
    return array


def one_array(column: Column) -> pa.Array:
    """A column in one chunk, without a copy where there is only one."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return cast("pa.Array", column.chunk(0))
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def values_in(column: Column, kind: type[_V]) -> list[_V]:
    """The values of a column of this kind as Python's own; the column has no nulls."""
    return cast("list[_V]", column.to_pylist())


def filled(column: _C, value: bool | int | float | str | bytes) -> _C:
    """The column with this value in place of nulls."""
    return cast("_C", cast("pa.Array", column).fill_null(value))


def batch_of_rows(rows: Sequence[tuple[Any, ...]], kind: pa.StructType) -> pa.RecordBatch:
    """Rows as a batch with a column for each field: for few rows much quicker than column by column."""
    return pa.RecordBatch.from_struct_array(cast("pa.StructArray", pa.array(rows, kind)))


def table_of(columns: Mapping[str, Values], schema: pa.Schema | None = None) -> pa.Table:
    """A table of columns: arrays, chunked or not, NumPy's or plain values."""
    return pa.table(cast("Mapping[str, pa.Array]", columns), schema=schema)


def batch_of(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A batch of columns, each of its own type."""
    return pa.record_batch(columns)


def schema_of(fields: Iterable[pa.Field | tuple[str, pa.DataType]]) -> pa.Schema:
    """A schema of fields, or of names with their types, or of both."""
    return pa.schema(cast("Iterable[pa.Field]", fields))


def ascending(names: Iterable[str]) -> list[tuple[str, Literal["ascending", "descending"]]]:
    """What to sort by: these columns, the first of them first."""
    return [(name, "ascending") for name in names]


def chosen(condition: pa.Array, yes: pa.Array | pa.Scalar, no: pa.Array | pa.Scalar) -> pa.Array:
    """In each row the one value or the other."""
    return cast("pa.Array", pc.if_else(condition, yes, no))


def coalesced(*columns: pa.Array | pa.Scalar) -> pa.Array:
    """In each row the first value that is not null."""
    return cast("pa.Array", pc.coalesce(*columns))


def joined(*parts: pa.Array | pa.Scalar | str | bytes) -> pa.Array:
    """Strings or bytes put one behind the other; null where one of them is. The last part stands between the others."""
    return cast("pa.Array", pc.binary_join_element_wise(*cast("tuple[pa.StringArray, ...]", parts)))


def lengths_of(column: Column) -> pa.Array:
    """How many bytes each string or binary value has; null where there is none."""
    return pc.binary_length(cast("pa.BinaryArray", column))


def map_of(ends: pa.Int32Array, keys: pa.Array, items: pa.Array) -> pa.Array:
    """One map a row; null where its end is."""
    return pa.MapArray.from_arrays(cast("pa.Int64Array", ends), keys, items)


def replaced(column: pa.Array, pattern: str, by: str) -> pa.Array:
    """Strings or bytes with each pattern replaced."""
    return pc.replace_substring(cast("pa.StringArray", column), pattern=pattern, replacement=by)


def dictionaries(names: Sequence[str]) -> bool:
    """The columns that are to have a dictionary in Parquet, as `pq.write_table` takes them."""
    return cast("bool", list(names) or False)
