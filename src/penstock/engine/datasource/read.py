"""Topics as a Spark source: a batch read of a range, and a stream that goes on where its checkpoint stands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.engine.datasource.options import ReadOptions, offsets_of
from penstock.engine.datasource.rows import Shape
from penstock.errors import Mismatch
from penstock.log.open import open_log
from penstock.log.port import End, Topic

Reached = dict[int, int]  # partition: the next offset to be read


@dataclass(frozen=True)
class Slice(InputPartition):  # type: ignore[misc]  # pyspark brings no types along
    """The offsets [start, stop) of a partition: what one task reads."""

    topic_id: str
    partition: int
    start: int
    stop: int


class TopicReader(DataSourceReader):  # type: ignore[misc]  # pyspark brings no types along
    """What is between startingOffsets and endingOffsets when the query is planned."""

    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options, self._shape = options, shape

    def partitions(self) -> list[Slice]:
        topic = _open(self._options)
        options, ends = self._options, topic.ends()
        stop = offsets_of(options.ending, options.topic, ends, _next(ends))
        return slices(topic, _start(options, ends), stop, options.rows_per_task)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._options, self._shape, partition)


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark brings no types along
    """The rows of a topic, batch by batch. Its offsets carry the topic's id: one that was made again is never read on."""

    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options, self._shape = options, shape
        self._target: Reached | None = None  # where a query that takes only what is there now will end

    def initialOffset(self) -> dict[str, Any]:
        topic = _open(self._options)
        return _offset(topic, _start(self._options, topic.ends()))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_per_batch
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        topic = _same_topic(self._options, start)
        begun, stop = _from_offset(start), _next(topic.ends())
        if self._target is not None:
            stop = {number: max(begun[number], min(stop[number], self._target[number])) for number in stop}
        if isinstance(limit, ReadMaxRows):
            stop = limited(topic, begun, stop, limit.max_rows)
        return _offset(topic, stop)

    def reportLatestOffset(self) -> dict[str, Any]:
        topic = _open(self._options)
        return _offset(topic, _next(topic.ends()))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _next(_open(self._options).ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        topic = _same_topic(self._options, start)
        return slices(topic, _from_offset(start), _from_offset(end), self._options.rows_per_task)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._options, self._shape, partition)


def slices(topic: Topic, start: Reached, stop: Reached, rows: int) -> list[Slice]:
    """The ranges, cut at frames into pieces of at least `rows` rows: a task reads no frame for nothing."""
    found = []
    for number, begin in start.items():
        end = stop[number]
        for frame in topic.frames(number, begin, end) if begin < end else ():
            if begin + rows <= frame.end < end:
                found.append(Slice(topic.id, number, begin, frame.end))
                begin = frame.end
        if begin < end:
            found.append(Slice(topic.id, number, begin, end))
    return found


def limited(topic: Topic, start: Reached, stop: Reached, rows: int) -> Reached:
    """As far as about `rows` rows reach, in whole frames, the oldest first; at least one frame."""
    waiting = [(f.appended, n, f.end) for n in start for f in topic.frames(n, start[n], min(stop[n], start[n] + rows)) if f.count]
    reached, left = dict(start), rows
    for _, number, end in sorted(waiting):
        more = min(end, stop[number]) - reached[number]
        if more > left and reached != start:
            break
        reached[number] += max(more, 0)
        left -= more
    return reached


def _rows(options: ReadOptions, shape: Shape, part: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(part, Slice):  # Spark's stand-in where there is nothing to read
        return iter(())
    topic = _open(options)
    if topic.id != part.topic_id:
        raise _made_again(options.topic)
    return shape.rows(topic, part.partition, part.start, part.stop)


def _open(options: ReadOptions) -> Topic:
    return open_log(options.home).topic(options.topic)


def _start(options: ReadOptions, ends: Mapping[int, End]) -> Reached:
    return offsets_of(options.starting, options.topic, ends, {number: end.first for number, end in ends.items()})


def _next(ends: Mapping[int, End]) -> Reached:
    return {number: end.next for number, end in ends.items()}


def _offset(topic: Topic, reached: Reached) -> dict[str, Any]:
    return {"topic": topic.id, "partitions": {str(number): reached[number] for number in sorted(reached)}}


def _from_offset(offset: dict[str, Any]) -> Reached:
    return {int(number): next for number, next in offset["partitions"].items()}


def _same_topic(options: ReadOptions, start: dict[str, Any]) -> Topic:
    topic = _open(options)
    if topic.id != start["topic"]:
        raise _made_again(options.topic)
    return topic


def _made_again(name: str) -> Mismatch:
    return Mismatch(
        f"topic {name} was deleted and made again since this query began to read it",
        "its offsets do not mean the same rows any more",
        hint="start the query with a new checkpoint to read the new topic",
    )
