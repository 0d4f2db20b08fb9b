"""Writes rows and marks to a topic, each exactly once: a retry after an unknown outcome carries the same number.

>>> with Producer(topic) as producer:
...     producer.send({"order_id": "o1", "user_id": 7, "amount": 9.5, "at": "2024-01-15T10:30:00Z"})
...     producer.mark("2024-01-15T10:30:00Z")
"""

import time as machine
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from types import TracebackType
from typing import Any

import numpy as np

from penstock.core.position import Position
from penstock.core.time import FIRST, FOREVER, LAST, NEVER, duration, instant, micros, moment
from penstock.errors import BadInput, BadRow, BadTime
from penstock.log.backpressure import Behind, Gate
from penstock.log.intake.attributes import Given, Places
from penstock.log.intake.checked import CheckedRows
from penstock.log.intake.codec import Rejected
from penstock.log.intake.deletes import fields_of
from penstock.log.intake.rows_in import Intake, Prepared, arrow_table
from penstock.log.intake.sizes import fits
from penstock.log.port import Sender, Topic

FRAME_BYTES = 32 << 20  # a frame is read whole: larger batches are cut


class Receipt:
    """What became of one row: its position once the log has it, or the reason why it was refused."""

    __slots__ = ("position", "reason")

    def __init__(self) -> None:
        self.position: Position | None = None
        self.reason: str | None = None


@dataclass(frozen=True)
class Sent:
    """What became of many rows, in the order given: partition and offset of each, -1 for those refused."""

    partitions: Places
    offsets: Places
    rejected: list[Rejected]

    @property
    def rows(self) -> int:
        return int(np.count_nonzero(self.offsets >= 0))


@dataclass(frozen=True)
class _Buffered:
    row: Mapping[str, Any] | bytes
    key: bytes | None
    partition: int | None
    headers: Mapping[str, bytes] | None
    time: int | None
    receipt: Receipt
    delete: bool = False


@dataclass
class _Frame:
    partition: int
    rows: CheckedRows | None
    mark: int = NEVER
    places: Places | None = None  # where its rows stood among those given
    done: Callable[[Places, int, int], None] | None = None  # called with places, partition and first offset
    sequence: int = -1  # given when it is tried first, and never changed


class Producer:
    """One writer of a topic. Not for several threads at once: give each its own.

    Rows wait until `batch_rows` of them are there, until `linger` has passed at the next `send`, or for `flush`, `mark` or the end
    of the `with`. If the log fails, what was not acknowledged is kept, and `flush` tries it again: nothing is lost or doubled.
    A refused row goes to `on_reject`; without that, `flush` raises BadRow once the others are in the log. With an `id` of its own
    a producer goes on where the last one of that id ended; one with a higher `epoch` shuts the earlier ones out. behind: waits
    while a group is too far behind, and then raises Full; the row that `send` was called with is not taken then."""

    def __init__(
        self,
        topic: Topic,
        *,
        id: str | None = None,
        epoch: int = 0,
        batch_rows: int = 10_000,
        linger: str | timedelta = "100 ms",
        on_reject: Callable[[Mapping[str, Any] | bytes, str], None] | None = None,
        behind: Behind | None = None,
    ) -> None:
        self.id = id or uuid.uuid4().hex
        self.acknowledged = 0  # rows that the log has said it holds
        self._topic, self._epoch, self._known = topic, epoch, id is not None
        self._intakes = (topic.spec, Intake(topic.spec), Intake(topic.spec, objects=True))
        self._batch_rows, self._linger = batch_rows, duration(linger, "linger").total_seconds()
        self._on_reject, self._gate = on_reject, Gate(behind, topic) if behind else None
        self._buffer: list[_Buffered] = []
        self._since = 0.0
        self._queue: deque[_Frame] = deque()
        self._sequences: dict[int, int] = {}

    def _intake(self, objects: bool = False) -> Intake:
        """What reads rows for the topic as it is now: it may have got partitions or columns meanwhile."""
        spec = self._topic.spec
        if spec is not self._intakes[0]:
            self._intakes = (spec, Intake(spec), Intake(spec, objects=True))
        _, rows, only_objects = self._intakes
        return only_objects if objects else rows

    def send(
        self,
        row: Mapping[str, Any] | bytes,
        *,
        key: str | bytes | None = None,
        partition: int | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        time: datetime | str | int | None = None,
    ) -> Receipt:
        """Takes one row (bytes: JSON text, or whatever a raw topic holds). The receipt is filled once the row is in the log.

        The partition: the one given, else by the topic's `partition_by`, else by the key, else 0."""
        if time is not None and self._topic.spec.schema and self._topic.spec.time:
            raise BadInput(
                f"the event time of topic {self._topic.spec.name} is its column {self._topic.spec.time!r}", hint="leave time= out"
            )
        at = None if time is None else _event_time(time)
        named = {name: _bytes(value) for name, value in headers.items()} if headers else None
        return self._take(_Buffered(row, None if key is None else _bytes(key), partition, named, at, Receipt()))

    def delete(
        self, key: Mapping[str, Any] | str | bytes | int, *, partition: int | None = None, time: datetime | str | int | None = None
    ) -> Receipt:
        """Says that a row is gone: `producer.delete({"user_id": 1})`, or `producer.delete(1)` where the topic has one key column.

        A table that reads the topic takes the row out; a stream counts the record among the dead. `time`: when, where no column
        says it; else it is the time at which the log takes the record."""
        fields, at = fields_of(key, self._topic.spec), None if time is None else _event_time(time)
        if at is not None and self._topic.spec.schema and self._topic.spec.time:
            fields, at = fields | {self._topic.spec.time: moment(at)}, None
        return self._take(_Buffered(fields, None, partition, None, at, Receipt(), delete=True))

    def _take(self, item: _Buffered) -> Receipt:
        now = machine.monotonic()
        if not self._buffer:
            self._since = now
        due = len(self._buffer) + 1 >= self._batch_rows or now - self._since >= self._linger
        if due:
            self._pass()
        self._buffer.append(item)
        if due:
            self._flush()
        return item.receipt

    def send_arrow(self, table: Any, *, partition: int | None = None, keys: Sequence[bytes | None] | None = None) -> Sent:
        """Writes the rows of a table at once: of Arrow, or a DataFrame of pandas or Polars (its index is no column).

        If it fails, call `flush` to try again what is still outstanding."""
        found = arrow_table(table)
        return self._send_now(
            lambda given, rows: self._intake().table(found.slice(rows.start, len(rows)), given), found.num_rows, partition, keys
        )

    def send_lines(
        self,
        values: Sequence[bytes],
        *,
        partition: int | None = None,
        objects: bool = False,
        before_refused: bool = False,
        deletes: bool = False,
    ) -> Sent:
        """Writes texts, one a row, at once. objects: they must be JSON objects in a raw topic, too. before_refused: only those
        before the first that is refused, which is then the only one reported. deletes: they hold keys, and the rows are gone."""
        intake = self._intake(objects)
        return self._send_now(
            lambda given, rows: intake.lines(values[rows.start : rows.stop], given, deletes=deletes),
            len(values),
            partition,
            before_refused=before_refused,
        )

    def mark(self, until: datetime | str | int, partition: int | None = None) -> None:
        """Promises that later rows are judged with a watermark of at least this time; FOREVER: the end of input. Rows sent
        before stand before it. All partitions, if none is named."""
        self.flush()
        time, count = as_micros(until), self._topic.spec.partitions
        if partition is not None and not 0 <= partition < count:
            raise BadInput(f"topic {self._topic.spec.name} has no partition {partition}", f"it has 0 to {count - 1}")
        self._queue.extend(_Frame(number, None, time) for number in (range(count) if partition is None else [partition]))
        try:
            self._drain()
        except BadInput:  # refused, not failed: the same mark for the other partitions would be, too
            self._queue.clear()
            raise

    def flush(self) -> None:
        """Returns once the log has every row that was sent."""
        if self._buffer or self._queue:
            self._pass()
        self._flush()

    def _pass(self) -> None:
        if self._gate:
            self._gate.enter(self.acknowledged)

    def _flush(self) -> None:
        self._drain()
        rows, self._buffer = self._buffer, []
        refused: list[tuple[_Buffered, str]] = []
        for (is_text, _, _), group in groupby(rows, key=lambda item: (isinstance(item.row, bytes), item.time is None, item.delete)):
            refused += self._enqueue_rows(list(group), is_text)
        self._drain()
        self._report(refused)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.flush()

    def _send_now(
        self,
        prepare: Callable[[Given, range], Prepared],
        count: int,
        partition: int | None,
        keys: Sequence[bytes | None] | None = None,
        before_refused: bool = False,
    ) -> Sent:
        self._pass()
        self._flush()
        sent = Sent(np.full(count, -1, np.int64), np.full(count, -1, np.int64), [])
        for start in range(0, count, self._batch_rows):
            rows = range(start, min(start + self._batch_rows, count))
            given = Given(keys[rows.start : rows.stop] if keys else None, None if partition is None else [partition] * len(rows))
            prepared = prepare(given, rows)
            prepared = prepared.before_refused() if before_refused else prepared
            sent.rejected.extend(Rejected(start + r.index, r.reason) for r in prepared.rejected)
            self._enqueue(prepared, partial(_fill, sent, start))
            self._drain()
            if before_refused and sent.rejected:
                break
        return sent

    def _enqueue_rows(self, items: list[_Buffered], is_text: bool) -> list[tuple[_Buffered, str]]:
        given = Given([i.key for i in items], [i.partition for i in items], [i.headers for i in items], [i.time for i in items])
        rows: list[Any] = [i.row for i in items]
        prepared = self._intake().lines(rows, given) if is_text else self._intake().rows(rows, given, deletes=items[0].delete)

        def done(places: Places, number: int, base: int) -> None:
            for n, place in enumerate(places.tolist()):
                items[place].receipt.position = Position(self._topic.spec.name, number, base + n)

        self._enqueue(prepared, done)
        for r in prepared.rejected:
            items[r.index].receipt.reason = r.reason
        return [(items[r.index], r.reason) for r in prepared.rejected]

    def _enqueue(self, prepared: Prepared, done: Callable[[Places, int, int], None]) -> None:
        for number, rows, places in prepared.by_partition():
            for start, part in _cut(rows):
                where = places[start : start + part.num_rows]
                self._queue.append(_Frame(number, part, places=where, done=done))

    def _drain(self) -> None:
        """Sends what is queued, in order. A frame leaves the queue when the log has it, or says that it never will."""
        while self._queue:
            frame = self._queue[0]
            if frame.sequence < 0:
                frame.sequence = self._next_sequence(frame.partition)
            try:
                appended = self._topic.append(
                    frame.partition, frame.rows, mark=frame.mark, sender=Sender(self.id, self._epoch, frame.sequence)
                )
            except BadInput:
                self._queue.popleft()
                raise
            self._queue.popleft()
            self._sequences[frame.partition] = frame.sequence + 1
            self.acknowledged += frame.rows.num_rows if frame.rows else 0
            if frame.done and frame.places is not None:
                frame.done(frame.places, frame.partition, appended.base)

    def _next_sequence(self, partition: int) -> int:
        if partition not in self._sequences:
            self._sequences[partition] = self._resume(partition) if self._known else 0
        return self._sequences[partition]

    def _resume(self, partition: int) -> int:
        """The number after the last one that the log has of this producer."""
        last = self._topic.senders(partition).get(self.id)
        return last.sequence + 1 if last and last.epoch == self._epoch else 0

    def _report(self, refused: list[tuple[_Buffered, str]]) -> None:
        if self._on_reject:
            for item, reason in refused:
                self._on_reject(item.row, reason)
        elif refused:
            more = f"and {len(refused) - 1:,} more; " if len(refused) > 1 else ""
            raise BadRow(
                f"a row for topic {self._topic.spec.name} was refused", refused[0][1], f"{more}all other rows are in the log"
            )


def as_micros(value: datetime | str | int) -> int:
    """A time as microseconds; `"end"` is FOREVER."""
    if isinstance(value, int):
        return value
    return FOREVER if value == "end" else micros(instant(value))


def _event_time(value: datetime | str | int) -> int:
    time = as_micros(value)
    if not FIRST <= time <= LAST:
        raise BadTime(f"{value!r} is not a valid event time", hint="rows have times in the years 1 to 9999")
    return time


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _cut(rows: CheckedRows) -> Iterable[tuple[int, CheckedRows]]:
    if rows.num_rows == 1 or fits(rows.batch, FRAME_BYTES):
        return [(0, rows)]
    half = rows.num_rows // 2
    later = ((half + start, part) for start, part in _cut(rows.slice(half)))
    return [*_cut(rows.slice(0, half)), *later]


def _fill(sent: Sent, start: int, places: Places, partition: int, base: int) -> None:
    sent.partitions[start + places] = partition
    sent.offsets[start + places] = base + np.arange(len(places))
