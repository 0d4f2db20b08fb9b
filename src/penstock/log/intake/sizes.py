"""How large each row of a batch is, for the record limit."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import lengths_of
from penstock.errors import BadRow
from penstock.log.port import TopicSpec


def fits(rows: pa.RecordBatch, limit: int) -> bool:
    """Whether rows have at most so many bytes. Arrow is slow to count them: it does so only where the buffers of the columns are
    larger, which may hold other rows as well."""
    return bool(sum([column.get_total_buffer_size() for column in rows.columns]) <= limit or rows.nbytes <= limit)


def check_sizes(spec: TopicSpec, batch: pa.RecordBatch) -> None:
    """Refuses a row over the record limit. Rows are measured only where the batch is over it as a whole."""
    if fits(batch, spec.max_record):
        return
    sizes = row_sizes(batch, spec.max_record)
    row = int(sizes.argmax())
    if sizes[row] > spec.max_record:
        raise BadRow(
            f"row {row} of a batch for topic {spec.name} has {sizes[row]:,} bytes; the limit is {spec.max_record:,}",
            hint="make the topic with a larger record limit, or store the large part elsewhere and its address here",
        )


def row_sizes(batch: pa.RecordBatch, limit: int) -> npt.NDArray[np.int64]:
    """Bytes of each row; nested values, slow to measure, are measured one by one only where they could reach the limit."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _column_sizes(column, limit)
    return sizes


def _column_sizes(column: pa.Array, limit: int) -> npt.NDArray[np.int64] | int:
    """Bytes that each value of a column takes; one number where all take the same."""
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        return np.asarray(lengths_of(column).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    if not pa.types.is_nested(column.type):
        return int(column.type.bit_width // 8)
    if column.nbytes <= limit // 2:
        return int(column.nbytes // max(len(column), 1))
    return np.array([column.slice(i, 1).nbytes for i in range(len(column))], np.int64)
