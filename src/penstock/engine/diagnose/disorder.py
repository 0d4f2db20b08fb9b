"""How far out of order a topic is: row by row, over its last rows; what lateness would keep 99.9 % of them."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import Column
from penstock.core.columns import EVENT_TIME, VALUE
from penstock.core.schema import Schema
from penstock.core.time import NEVER, duration_text, micros
from penstock.errors import PenstockError
from penstock.log.intake.codec import decode_json
from penstock.log.port import Chunk, Log, Topic

SAMPLE = 2_000_000  # rows of a partition that are looked at: its last

Times = npt.NDArray[np.int64]


class Disorder(NamedTuple):
    """Rows that came behind a newer one of their partition."""

    behind: Times  # how far, in microseconds; sorted, without the rows in order
    rows: int  # that were looked at
    stored: int  # that there are

    @property
    def worst(self) -> int:
        return int(self.behind[-1]) if len(self.behind) else 0

    def keeping(self, share: float) -> int:
        """The least lateness, in microseconds, that keeps this share of the rows."""
        return least_keeping(self.behind, self.rows, share)

    def of_what(self) -> str:
        """The rows it speaks of."""
        return f"{self.rows:,} rows" if self.rows == self.stored else f"the last {self.rows:,} of {self.stored:,} rows"


def least_keeping(needed: Times, rows: int, share: float) -> int:
    """The least value that is enough for this share of the rows. needed: sorted; rows that it does not name need nothing."""
    lost = int(np.floor(rows * (1 - share) + 1e-9))
    return int(needed[-1 - lost]) if lost < len(needed) else 0


def suggest(log: Log) -> Callable[[str, str], str | None]:
    """(topic, time column) → a sentence with the measured disorder, or None where nothing can be measured."""

    def measured(name: str, time: str) -> str | None:
        try:
            found = disorder(log.topic(name), time)
        except (PenstockError, pa.ArrowInvalid, KeyError):
            return None
        if not found.rows:
            return None
        return (
            f"in topic {name}, rows come up to {rounded_text(found.worst)} behind a newer one; "
            f'lateness="{rounded_text(max(found.keeping(0.999), 1_000_000))}" would keep 99.9 % of {found.of_what()}'
        )

    return measured


def rounded_text(us: int) -> str:
    """A lateness for people: never less than it is; whole seconds, below one second whole milliseconds."""
    unit = 1_000_000 if us > 1_000_000 else 1_000
    return duration_text(timedelta(microseconds=-(-us // unit) * unit))


def disorder(topic: Topic, time: str | None, partitions: Sequence[int] | None = None, sample: int = SAMPLE) -> Disorder:
    """Measured over the last rows of partitions (None: all of them). time: a column or field; None: the topic's own.

    Rows whose time lies too far beyond their append time move nothing, as when they are judged."""
    parts = [_partition(topic, p, time or topic.spec.time, sample) for p in (topic.ends() if partitions is None else partitions)]
    stored = sum(end.next - end.first for p, end in topic.ends().items() if partitions is None or p in partitions)
    behind = np.concatenate([np.empty(0, np.int64), *(behind for behind, _ in parts)])
    return Disorder(np.sort(behind), sum(rows for _, rows in parts), stored)


def _partition(topic: Topic, partition: int, time: str | None, sample: int) -> tuple[Times, int]:
    end = topic.ends()[partition]
    start = max(end.first, end.next - sample)
    known, rows = NEVER, 0
    late = [np.empty(0, np.int64)]
    for number, chunk in enumerate(topic.read(partition, start, columns=_columns(topic, time))):
        if number == 0 and time == topic.spec.time:
            known = chunk.frame.time_before
        times = _plausible(topic, chunk, time)
        before = np.maximum.accumulate(np.concatenate([[known], times]))
        known, rows = int(before[-1]), rows + len(times)
        behind = (before[:-1] - times)[before[:-1] > NEVER]
        late.append(behind[behind > 0])
    return np.concatenate(late), rows


def _columns(topic: Topic, time: str | None) -> list[str] | None:
    return [time] if time and topic.spec.schema and time in topic.spec.schema else None


def _plausible(topic: Topic, chunk: Chunk, time: str | None) -> Times:
    found = _times(topic, chunk.rows, time)
    if found is None:
        return chunk.appended
    known, times = found
    return times[times <= chunk.appended[known] + micros(topic.spec.future)]


def _times(topic: Topic, rows: pa.RecordBatch, time: str | None) -> tuple[npt.NDArray[np.bool_], Times] | None:
    """Which rows have an event time, and those; None: it is their append time."""
    column: Column
    if time in rows.schema.names:
        column = rows.column(time)
    elif topic.spec.time == time:
        if EVENT_TIME not in rows.schema.names:
            return None
        column = rows.column(EVENT_TIME)
    else:
        assert time is not None  # the topic's own, where none is named
        decoded = decode_json(rows.column(VALUE), Schema.of(f"`{time}` timestamp"))
        fits = np.zeros(rows.num_rows, bool)
        fits[decoded.kept] = True
        column = decoded.table.column(time)
        fits[decoded.kept[column.is_null().to_numpy(zero_copy_only=False)]] = False
        return fits, _numbers(column)
    return column.is_valid().to_numpy(zero_copy_only=False), _numbers(column)


def _numbers(column: pa.Array | pa.ChunkedArray) -> Times:
    return np.asarray(column.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False))
