"""Rows to measure with: a millisecond apart, out of order by less than the lateness, the same for both sides."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.schema import Schema
from penstock.log.file.log import FileLog
from penstock.log.port import Topic, TopicSpec

START = 1_700_000_040_000_000  # a full minute, microseconds
JITTER = 2_000_000
LATENESS = "10 seconds"
PARTITIONS = 4
_TIME = pa.timestamp("us", tz="UTC")


def events(
    rows: int, keys: int, *, apart: int = 1_000, names: tuple[str, str, str, str] = ("id", "ts", "k", "v"), seed: int = 1
) -> pa.Table:
    """Random keys; values are whole numbers, so that sums are the same in any order."""
    rng = np.random.default_rng(seed)
    number = np.arange(rows)
    times = START + number * apart + rng.integers(0, JITTER, rows)
    columns = [number, times, rng.integers(0, keys, rows), rng.integers(0, 10_000, rows).astype(np.float64)]
    return pa.table(
        [pa.array(c, _TIME) if n == names[1] else pa.array(c) for n, c in zip(names, columns, strict=True)], names=list(names)
    )


def ddl(table: pa.Table) -> str:
    return Schema(table.schema).ddl()


def fill(log: FileLog, name: str, table: pa.Table, frame: int = 10_000, time: str = "ts", durability: str = "os") -> Topic:
    """A topic with these rows, dealt to all partitions in turn, so that time goes on in each of them alike."""
    topic = log.create(TopicSpec(name, PARTITIONS, Schema(table.schema), time=time, durability=durability))  # type: ignore[arg-type]
    append(topic, table, frame)
    return topic


def append(topic: Topic, table: pa.Table, frame: int) -> None:
    for start in range(0, table.num_rows, frame * PARTITIONS):
        block = table.slice(start, frame * PARTITIONS)
        for partition in range(min(PARTITIONS, block.num_rows)):
            rows = block.take(np.arange(partition, block.num_rows, PARTITIONS))
            topic.append(partition, rows.combine_chunks().to_batches()[0])


def files(directory: Path, table: pa.Table, rows: int) -> Path:
    """The same rows as Parquet files of so many rows, in an order that Spark's file source keeps: by the time they were written."""
    directory.mkdir(parents=True)
    for number, start in enumerate(range(0, table.num_rows, rows)):
        path = directory / f"{number:06d}.parquet"
        pq.write_table(table.slice(start, rows), path)
        os.utime(path, (START // 1_000_000 + number,) * 2)
    return directory
