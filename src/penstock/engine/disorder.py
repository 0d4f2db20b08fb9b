"""How far out of order a topic is: what lateness would keep 99.9 % of its rows."""

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pyarrow as pa

from penstock.core.schema import Schema
from penstock.core.time import duration_text
from penstock.errors import PenstockError
from penstock.log.codec import decode_json
from penstock.log.port import EVENT_TIME, VALUE, Log, Topic

_ROWS = 1_000_000  # looked at per partition, from the beginning


def suggest(log: Log) -> Callable[[str, str], str | None]:
    """(topic, time column) → a sentence with the measured disorder, or None where nothing can be measured."""

    def measured(name: str, time: str) -> str | None:
        try:
            late = disorder(log.topic(name), time)
        except (PenstockError, pa.ArrowInvalid, KeyError):
            return None
        if not len(late):
            return None
        keep = timedelta(seconds=float(np.ceil(np.quantile(late, 0.999) / 1e6)))
        worst = timedelta(seconds=float(np.ceil(late.max() / 1e6)))
        return (
            f"in topic {name}, rows come up to {duration_text(worst)} behind a newer one; "
            f'lateness="{duration_text(max(keep, timedelta(seconds=1)))}" would keep 99.9 % of them'
        )

    return measured


def disorder(topic: Topic, time: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Per row, how far its time is behind the greatest time before it in its partition (0: in order)."""
    out = [np.zeros(0, np.int64)]
    for partition in topic.ends():
        times = [_times(topic, chunk.rows, time) for chunk in topic.read(partition, 0, _ROWS)]
        if times:
            flat = np.concatenate(times)
            out.append(np.maximum(np.maximum.accumulate(flat) - flat, 0))
    return np.concatenate(out)


def _times(topic: Topic, rows: pa.RecordBatch, time: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    if time in rows.schema.names:
        column = rows.column(time)
    elif topic.spec.time == time and EVENT_TIME in rows.schema.names:
        column = rows.column(EVENT_TIME)
    else:
        column = decode_json(rows.column(VALUE), Schema.of(f"`{time}` timestamp")).table.column(time)
    return np.asarray(column.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False))
