"""Messages as records of a topic: the body is the value; what else there is to say stands in one header."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from penstock.core.time import micros
from penstock.errors import BadRow
from penstock.log.attributes import Given
from penstock.log.intake import Intake, Prepared
from penstock.log.port import HEADERS, KEY, VALUE, Chunk, Topic, TopicSpec
from penstock.log.rows import deletes_of
from penstock.log.sizes import row_sizes
from penstock.log.text import json_objects
from penstock.queue.book import AT_ONCE, FOREVER, Item
from penstock.queue.port import Binding, Message
from penstock.queue.routing import takes
from penstock.queue.share import Seen, place_of

HEADER = "penstock-message"  # JSON: id, and route, priority, due and expires (microseconds) where they say anything
_CHUNKS = 8  # kept, so that a frame is decoded once although its messages are lent in small parts
_HEADERS = pa.map_(pa.string(), pa.binary())
_NOTHING: Mapping[str, Any] = {}


def prepared(topic: Topic, messages: Sequence[Message], now: int) -> Prepared:
    """Rows for the topic; BadRow if it does not take one of them."""
    spec = topic.spec
    keys = [m.key.encode() if m.key is not None else None for m in messages]
    headers = [{**m.headers, HEADER: _said(m, now)} for m in messages]
    if spec.partitions == 1 and not (spec.schema or spec.key or spec.time or spec.partition_by):
        columns = [
            pa.array([m.body for m in messages], pa.binary()),
            pa.array(keys, pa.binary()),
            pa.array([list(h.items()) for h in headers], _HEADERS),
        ]
        places = np.arange(len(messages))
        return Prepared(pa.record_batch(columns, [VALUE, KEY, HEADERS]), np.zeros_like(places), places, [])
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


class Shelf:
    """The records of a topic, a few frames of them at hand."""

    def __init__(self, topic: Topic) -> None:
        self._topic, self._guard = topic, threading.Lock()
        self._chunks: dict[tuple[int, int], Chunk] = {}

    def look(self, partition: int, start: int, most: int, bindings: Sequence[Binding]) -> Seen:
        """The next records of a partition: at most so many, or those of one frame."""
        with self._guard:
            for chunk in self._from(partition, start):
                offsets = chunk.offsets
                first = int(np.searchsorted(offsets, start))
                numbers = offsets[first : first + most].tolist()
                if numbers:
                    end = chunk.frame.end if first + len(numbers) == len(offsets) else numbers[-1] + 1
                    return Seen(partition, end, list(self._items(chunk, partition, first, numbers, bindings)))
        return Seen(partition, start, [])

    def messages(self, partition: int, offsets: Sequence[int]) -> dict[int, Message]:
        """The messages that stand there, by offset."""
        found: dict[int, Message] = {}
        wanted = sorted(offsets)
        while wanted:
            with self._guard:
                chunk = next(self._from(partition, wanted[0]))
            here = [o for o in wanted if o < chunk.frame.end]
            places = np.searchsorted(chunk.offsets, here)
            rows = chunk.rows.take(pa.array(places)) if len(here) < chunk.frame.count else chunk.rows
            found.update(zip(here, _messages(self._topic.spec, partition, here, rows), strict=True))
            wanted = wanted[len(here) :]
        return found

    def _from(self, partition: int, start: int) -> Iterator[Chunk]:
        for (number, _), chunk in self._chunks.items():
            if number == partition and chunk.frame.base <= start < chunk.frame.end:
                yield chunk
                start = chunk.frame.end
                break
        for chunk in self._topic.read(partition, start):
            self._chunks[partition, chunk.frame.base] = chunk
            if len(self._chunks) > _CHUNKS:
                del self._chunks[next(iter(self._chunks))]
            yield chunk

    def _items(
        self, chunk: Chunk, partition: int, first: int, offsets: Sequence[int], bindings: Sequence[Binding]
    ) -> Iterator[Item]:
        rows = chunk.rows.slice(first, len(offsets))
        sizes, keys, headers = _sizes(self._topic.spec, rows), _column(rows, KEY), _column(rows, HEADERS)
        gone = deletes_of(rows, self._topic.spec.schema is None)
        sent = chunk.appended[first : first + len(offsets)].tolist()
        for i, offset in enumerate(offsets):
            said, others = _read(headers[i])
            if (gone is not None and gone[i]) or (bindings and not takes(bindings, said.get("route", ""), others)):
                continue  # a delete is no message
            due, expires = said.get("due", AT_ONCE), said.get("expires", FOREVER)
            yield Item(place_of(partition, offset), sizes[i], sent[i], said.get("priority", 0), due, expires, _text(keys[i]))


def _messages(spec: TopicSpec, partition: int, offsets: Sequence[int], rows: pa.RecordBatch) -> Iterator[Message]:
    values, keys, headers = _values(spec, rows), _column(rows, KEY), _column(rows, HEADERS)
    for offset, value, key, pairs in zip(offsets, values, keys, headers, strict=True):
        said, others = _read(pairs)
        id = said.get("id") or f"{spec.name}/{partition}/{offset}"
        yield Message(value or b"", id, _text(key), others, said.get("priority", 0), route=said.get("route", ""))


def _sizes(spec: TopicSpec, rows: pa.RecordBatch) -> list[int]:
    return list(row_sizes(rows.select(spec.schema.names if spec.schema else [VALUE]), spec.max_record).tolist())


def _values(spec: TopicSpec, rows: pa.RecordBatch) -> list[bytes | None]:
    """The bodies: bytes as they are; the columns of a typed topic as JSON."""
    if spec.schema is None:
        return list(rows.column(VALUE).to_pylist())
    return list(json_objects(rows.select(spec.schema.names)).to_pylist())


def _column(rows: pa.RecordBatch, name: str) -> list[Any]:
    return list(rows.column(name).to_pylist()) if name in rows.schema.names else [None] * rows.num_rows


def _read(pairs: Sequence[tuple[str, bytes]] | None) -> tuple[Mapping[str, Any], dict[str, bytes]]:
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
