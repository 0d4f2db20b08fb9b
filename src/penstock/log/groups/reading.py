"""The next rows of one partition, as a batch."""

from typing import NamedTuple

import pyarrow as pa

from penstock.core.columns import SHOWN_OFFSET
from penstock.log.consumer import output_names, read
from penstock.log.port import Topic


class Batch(NamedTuple):
    """Rows of one partition, in the order of the log."""

    partition: int
    table: pa.Table  # as penstock.log.consumer.read gives them
    start: int  # where reading began; offsets may have gaps, so the first row may come later
    next: int  # the offset behind it: what is committed
    offset_column: str = SHOWN_OFFSET  # how the table calls its offsets; `_offset` where a column of the topic has that name


def read_batch(topic: Topic, partition: int, start: int, stop: int, most: int) -> Batch:
    """At most so many rows of [start, stop), which are known to be there. Without rows there is a gap up to stop."""
    tables: list[pa.Table] = []
    column = output_names(topic.spec)[SHOWN_OFFSET]
    for table in read(topic, partitions=[partition], start={partition: start}, stop={partition: stop}, whole=True):
        tables.append(table.slice(0, most))
        most -= tables[-1].num_rows
        if not most:
            stop = int(tables[-1].column(column)[-1].as_py()) + 1
            break
    rows = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    return Batch(partition, rows, start, stop, column)
