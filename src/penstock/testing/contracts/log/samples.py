"""Rows and settings that the suites of the log share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.columns import APPENDED, OFFSET, VALUE
from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import NEVER
from penstock.log.intake.codec import event_times
from penstock.log.port import Frame, Topic, TopicSpec

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND
SCHEMA = Schema.of("id long, text string, at timestamp")
TYPED = TopicSpec("orders", schema=SCHEMA, time="at")
RAW = TopicSpec("raw")


def typed(ids: Sequence[int], at: int | Sequence[int] = NOW, /, **more: pa.Array) -> pa.RecordBatch:
    """Rows of TYPED; `at` is the first time, one microsecond apart, or all of them."""
    times = [at + i for i in range(len(ids))] if isinstance(at, int) else list(at)
    columns: dict[str, pa.Array] = {
        "id": pa.array(ids, pa.int64()),
        "text": pa.array([f"row {i}" for i in ids]),
        "at": pa.array(times, TIMESTAMP),
    }
    return pa.record_batch(columns | more)


def raw(values: Sequence[bytes | None], **more: pa.Array) -> pa.RecordBatch:
    column: pa.Array = pa.array(values, pa.binary())
    return pa.record_batch({VALUE: column} | more)


def values(topic: Topic, column: str, partition: int = 0, **range_: Any) -> list[Any]:
    """All values of a column, in the order of their offsets, which are checked: they are dense, or at least never go back."""
    found, expected = [], None
    for chunk in topic.read(partition, **range_):
        frame, rows = chunk
        assert frame.count == rows.num_rows
        if topic.headers:
            assert expected in (None, frame.base)
        else:
            assert (np.diff(chunk.offsets) > 0).all()
            assert expected is None or frame.base >= expected
        expected = frame.end
        found += rows.column(column).to_pylist()
    return found


def rows_of(topic: Topic, **range_: Any) -> list[dict[str, Any]]:
    """All rows, without the columns that the log itself adds."""
    tables = [pa.Table.from_batches([chunk.rows]) for chunk in topic.read(0, **range_)]
    whole = pa.concat_tables(tables, promote_options="default")
    found: list[dict[str, Any]] = whole.select([n for n in whole.column_names if n not in (OFFSET, APPENDED)]).to_pylist()
    return found


def times_of(topic: Topic) -> list[int]:
    """The event time of every row."""
    return [t for c in topic.read(0) for t in event_times(c.rows, topic.spec, c.appended).tolist()]


def frames_of(topic: Topic, partition: int = 0) -> list[Frame]:
    """What is known of times and marks: by headers, or else by what is read."""
    if topic.headers:
        return list(topic.frames(partition))
    return [chunk.frame for chunk in topic.read(partition) if chunk.frame.count or chunk.frame.mark > NEVER]
