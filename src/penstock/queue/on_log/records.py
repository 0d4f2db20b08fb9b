"""Messages as records of a topic: the body is the value; what else there is to say stands in one header."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import HEADERS, KEY, VALUE
from penstock.core.time import micros
from penstock.errors import BadRow
from penstock.log.intake.attributes import Given
from penstock.log.intake.rows_in import Intake, Prepared, raw_values
from penstock.log.intake.sizes import row_sizes
from penstock.log.intake.stored_rows import deletes_of
from penstock.log.intake.text import json_objects
from penstock.log.port import Chunk, Topic, TopicSpec
from penstock.queue.on_log.share import Seen, place_of, where
from penstock.queue.port import Message, QueueSpec
from penstock.queue.state.machine import AT_ONCE, FOREVER, Item
from penstock.queue.state.routing import takes

HEADER = "penstock-message"  # JSON: id, and route, priority, due and expires (microseconds) where they say anything
_AT_HAND, _MOST_AT_HAND = 32 << 20, 10_000  # bytes and number of messages that a queue keeps at hand
_NOTHING: Mapping[str, Any] = {}


def prepared(topic: Topic, messages: Sequence[Message], now: int) -> Prepared:
    """Rows for the topic; BadRow if it does not take one of them."""
    spec = topic.spec
    keys = [m.key.encode() if m.key is not None else None for m in messages]
    headers = [{**m.headers, HEADER: _said(m, now)} for m in messages]
    if spec.partitions == 1 and not (spec.schema or spec.key or spec.time or spec.partition_by):
        return raw_values(spec, [m.body for m in messages], keys, headers)
    rows = Intake(spec).lines([m.body for m in messages], Given(keys=keys, headers=headers))
    if rows.rejected:
        refused = rows.rejected[0]
        raise BadRow(
            f"topic {topic.spec.name} does not take message {messages[refused.index].id}: {refused.reason}",
            "nothing of this was sent",
        )
    return rows


def _said(message: Message, now: int) -> bytes:
    said: dict[str, Any] = {"id": message.id}
    if message.route:
        said["route"] = message.route
    if message.priority:
        said["priority"] = message.priority
    if message.delay:
        said["due"] = now + micros(message.delay)
    if message.ttl is not None:
        said["expires"] = now + micros(message.ttl)
    return orjson.dumps(said)


class TopicMessages:
    """The messages of a topic; those that were looked at of late are at hand."""

    def __init__(self, topic: Topic) -> None:
        self._topic, self._guard = topic, threading.Lock()
        self._messages: dict[int, Message] = {}  # by place, the oldest first
        self._bytes = 0
        self._chunks: dict[int, Chunk] = {}  # by partition: a frame that was looked at in part

    def look(self, partition: int, start: int, most: int, spec: QueueSpec) -> Seen:
        """The next records of a partition, at most so many, and those of them that this queue takes."""
        items, end = list[Item](), start
        with self._guard:
            for chunk in self._from(partition, start):
                offsets = chunk.offsets
                first = int(np.searchsorted(offsets, end))
                numbers = offsets[first : first + most].tolist()
                items += self._items(chunk, partition, first, numbers, spec)
                most -= len(numbers)
                if first + len(numbers) < len(offsets):
                    self._chunks[partition] = chunk
                    return Seen(partition, numbers[-1] + 1, items)
                end = chunk.frame.end
                if not most:
                    break
            self._chunks.pop(partition, None)
            return Seen(partition, end, items)

    def messages(self, places: Sequence[int]) -> dict[int, Message]:
        """The messages that stand there, by place."""
        with self._guard:
            found = {place: self._messages[place] for place in places if place in self._messages}
        missing = sorted(place for place in places if place not in found)
        for partition, group in groupby(missing, lambda place: where(place)[0]):
            found.update(self._read(partition, [where(place)[1] for place in group]))
        return found

    def _from(self, partition: int, start: int) -> Iterator[Chunk]:
        kept = self._chunks.get(partition)
        if kept and kept.frame.base <= start < kept.frame.end:
            yield kept
            start = kept.frame.end
        yield from self._topic.read(partition, start)

    def _items(self, chunk: Chunk, partition: int, first: int, offsets: Sequence[int], spec: QueueSpec) -> Iterator[Item]:
        rows = chunk.rows.slice(first, len(offsets))
        sizes, sent = _sizes(self._topic.spec, rows), chunk.appended[first : first + len(offsets)].tolist()
        gone = deletes_of(rows, self._topic.spec.schema is None)
        for i, (message, said) in enumerate(_messages(self._topic.spec, partition, offsets, rows)):
            if (gone is not None and gone[i]) or not takes(spec.bindings, message.route, message.headers, spec.name):
                continue  # a delete is no message
            place = place_of(partition, offsets[i])
            self._keep(place, message)
            yield Item(
                place, sizes[i], sent[i], message.priority, said.get("due", AT_ONCE), said.get("expires", FOREVER), message.key
            )

    def _keep(self, place: int, message: Message) -> None:
        self._messages[place] = message
        self._bytes += len(message.body)
        while self._bytes > _AT_HAND or len(self._messages) > _MOST_AT_HAND:
            self._bytes -= len(self._messages.pop(next(iter(self._messages))).body)

    def _read(self, partition: int, offsets: Sequence[int]) -> Iterator[tuple[int, Message]]:
        for chunk in self._topic.read(partition, offsets[0], offsets[-1] + 1):
            here = [offset for offset in offsets if chunk.frame.base <= offset < chunk.frame.end]
            rows = chunk.rows.take(pa.array(np.searchsorted(chunk.offsets, here))) if len(here) < chunk.frame.count else chunk.rows
            for offset, (message, _) in zip(here, _messages(self._topic.spec, partition, here, rows), strict=True):
                yield place_of(partition, offset), message


def _messages(
    spec: TopicSpec, partition: int, offsets: Sequence[int], rows: pa.RecordBatch
) -> Iterator[tuple[Message, Mapping[str, Any]]]:
    """Each message, and what its header says."""
    values, keys, headers = _values(spec, rows), _column(rows, KEY), _column(rows, HEADERS)
    for offset, value, key, pairs in zip(offsets, values, keys, headers, strict=True):
        said, others = _read_headers(pairs)
        id = said.get("id") or f"{spec.name}/{partition}/{offset}"
        yield Message(value or b"", id, _text(key), others, said.get("priority", 0), route=said.get("route", "")), said


def _sizes(spec: TopicSpec, rows: pa.RecordBatch) -> list[int]:
    if spec.schema is None:
        return [size or 0 for size in pc.binary_length(rows.column(VALUE)).to_pylist()]
    return list(row_sizes(rows.select(spec.schema.names), spec.max_record).tolist())


def _values(spec: TopicSpec, rows: pa.RecordBatch) -> list[bytes | None]:
    """The bodies: bytes as they are; the columns of a typed topic as JSON."""
    if spec.schema is None:
        return list(rows.column(VALUE).to_pylist())
    return list(json_objects(rows.select(spec.schema.names)).to_pylist())


def _column(rows: pa.RecordBatch, name: str) -> list[Any]:
    return list(rows.column(name).to_pylist()) if name in rows.schema.names else [None] * rows.num_rows


def _read_headers(pairs: Sequence[tuple[str, bytes]] | None) -> tuple[Mapping[str, Any], dict[str, bytes]]:
    """What the header says, and the other headers."""
    headers = dict(pairs or ())
    said = headers.pop(HEADER, None)
    if said is None:
        return _NOTHING, headers
    try:
        found = orjson.loads(said)
    except ValueError:
        found = None
    return (found if isinstance(found, dict) else _NOTHING), headers


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode(errors="backslashreplace")
