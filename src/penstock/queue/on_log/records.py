"""Messages as records of a topic: the body is the value; id, route, priority, due and expiry stand in one header."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from penstock.core.columns import HEADERS, KEY, VALUE
from penstock.core.time import micros
from penstock.errors import BadRow
from penstock.log.intake.attributes import Given
from penstock.log.intake.rows_in import Intake, Prepared, raw_values
from penstock.log.intake.sizes import row_sizes
from penstock.log.intake.text import json_objects
from penstock.log.port import Topic, TopicSpec
from penstock.queue.port import Message

HEADER = "penstock-message"  # JSON: id, and route, priority, due and expires (microseconds) where there are any
_NOTHING: Mapping[str, Any] = {}


class Record(NamedTuple):
    """A message as it was read, how large its row is, and what its header says."""

    message: Message
    size: int
    header: Mapping[str, Any]


def encode_messages(topic: Topic, messages: Sequence[Message], now: int) -> Prepared:
    """Rows for the topic; BadRow if it does not take one of them."""
    spec = topic.spec
    keys = [m.key.encode() if m.key is not None else None for m in messages]
    headers = [{**m.headers, HEADER: _encode_header(m, now)} for m in messages]
    if spec.partitions == 1 and not (spec.schema or spec.key or spec.time or spec.partition_by):
        return raw_values(spec, [m.body for m in messages], keys, headers)
    rows = Intake(spec).lines([m.body for m in messages], Given(keys=keys, headers=headers))
    if rows.rejected:
        rejected = rows.rejected[0]
        raise BadRow(
            f"topic {spec.name} does not take message {messages[rejected.index].id}: {rejected.reason}",
            "nothing of this was sent",
        )
    return rows


def _encode_header(message: Message, now: int) -> bytes:
    header: dict[str, Any] = {"id": message.id}
    if message.route:
        header["route"] = message.route
    if message.priority:
        header["priority"] = message.priority
    if message.delay:
        header["due"] = now + micros(message.delay)
    if message.ttl is not None:
        header["expires"] = now + micros(message.ttl)
    return orjson.dumps(header)


def decode_messages(spec: TopicSpec, partition: int, offsets: Sequence[int], rows: pa.RecordBatch) -> Iterator[Record]:
    keys, headers = (rows.column(n).to_pylist() if n in rows.schema.names else [None] * len(offsets) for n in (KEY, HEADERS))
    for offset, body, size, key, pairs in zip(offsets, *_bodies(spec, rows), keys, headers, strict=True):
        header, others = decode_header(dict(pairs or ()))
        id = header.get("id") or f"{spec.name}/{partition}/{offset}"
        text = None if key is None else key.decode(errors="backslashreplace")
        message = Message(body, id, text, others, header.get("priority", 0), route=header.get("route", ""))
        yield Record(message, size, header)


def _bodies(spec: TopicSpec, rows: pa.RecordBatch) -> tuple[Sequence[bytes], Sequence[int]]:
    """The bodies and how large their rows are: bytes as they are; the columns of a typed topic as JSON."""
    if spec.schema is None:
        bodies = [body or b"" for body in rows.column(VALUE).to_pylist()]
        return bodies, [len(body) for body in bodies]
    columns = rows.select(spec.schema.names)
    return [body or b"" for body in json_objects(columns).to_pylist()], row_sizes(columns, spec.max_record).tolist()


def decode_header(headers: dict[str, bytes]) -> tuple[Mapping[str, Any], dict[str, bytes]]:
    """What the header of a message says, and the other headers."""
    encoded = headers.pop(HEADER, None)
    if encoded is None:
        return _NOTHING, headers
    try:
        found = orjson.loads(encoded)
    except ValueError:
        found = None
    return (found if isinstance(found, dict) else _NOTHING), headers
