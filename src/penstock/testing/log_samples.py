"""Rows and settings that the suites of the log share."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.core.schema import TIMESTAMP, Schema
from penstock.log.port import VALUE, Topic, TopicSpec

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND
SCHEMA = Schema.of("id long, text string, at timestamp")
TYPED = TopicSpec("orders", schema=SCHEMA, time="at")
RAW = TopicSpec("raw")


def typed(ids: Sequence[int], at: int | Sequence[int] = NOW, **more: pa.Array) -> pa.RecordBatch:
    """Rows of TYPED; `at` is the first time, one microsecond apart, or all of them."""
    times = [at + i for i in range(len(ids))] if isinstance(at, int) else list(at)
    columns = {"id": pa.array(ids, pa.int64()), "text": pa.array([f"row {i}" for i in ids]), "at": pa.array(times, TIMESTAMP)}
    return pa.record_batch(columns | more)


def raw(values: Sequence[bytes | None], **more: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({VALUE: pa.array(values, pa.binary())} | more)


def values(topic: Topic, column: str, partition: int = 0, **range_: Any) -> list[Any]:
    """All values of a column, in the order of their offsets, which are checked to be dense."""
    found, expected = [], None
    for frame, rows in topic.read(partition, **range_):
        assert expected in (None, frame.base)
        assert frame.count == rows.num_rows
        expected = frame.end
        found += rows.column(column).to_pylist()
    return found
