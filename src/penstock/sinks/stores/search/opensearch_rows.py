"""Rows as documents of OpenSearch: mappings for their types, ids for their keys, and the lines of a bulk request."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import orjson
import pyarrow as pa

from penstock.core.arrow import values_in
from penstock.core.columns import POSITION
from penstock.core.schema import Schema
from penstock.log.intake.text import encode_json
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.keys import keys_of
from penstock.sinks.stores.reading import rows_read

VersionKind = Literal["external", "external_gte"]  # whether a document replaces one of the same version

_LONGEST_ID = 512  # bytes
_ROWS, _BYTES = 2_000, 8 << 20  # of one bulk request
_KEYWORD = {"type": "keyword", "ignore_above": 8191}
_MAPPINGS: list[tuple[Callable[[pa.DataType], bool], dict[str, Any]]] = [
    (pa.types.is_boolean, {"type": "boolean"}),
    (pa.types.is_int8, {"type": "byte"}),
    (pa.types.is_int16, {"type": "short"}),
    (pa.types.is_int32, {"type": "integer"}),
    (pa.types.is_int64, {"type": "long"}),
    (pa.types.is_float32, {"type": "float"}),
    (pa.types.is_floating, {"type": "double"}),
    (pa.types.is_decimal, {"type": "double"}),  # to compare by; the document has all digits, as text
    (pa.types.is_binary, {"type": "binary"}),
    (pa.types.is_temporal, {"type": "date"}),
    (pa.types.is_map, {"type": "object", "enabled": False}),
]


def mapping_of(schema: Schema, key: tuple[str, ...]) -> dict[str, Any]:
    """How each column is indexed: texts by their words, and by the whole under .keyword; those of the key by the whole."""
    return {f.name: _KEYWORD if f.name in key and pa.types.is_string(f.type) else _mapping(f.type) for f in schema}


def _mapping(t: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(t):
        return _mapping(t.value_type)
    if pa.types.is_struct(t):
        return {"properties": {f.name: _mapping(f.type) for f in t}}
    text = {"type": "text", "fields": {"keyword": _KEYWORD}}
    return next((mapping for fits, mapping in _MAPPINGS if fits(t)), text)


def ids_of(rows: pa.Table, key: tuple[str, ...]) -> list[str]:
    """The key as text; its digest where it is no text, empty, or longer than an id may be."""
    return [_id(each) for each in values_in(keys_of(rows, key), bytes)]


def _id(key: bytes) -> str:
    try:
        if 0 < len(key) <= _LONGEST_ID:
            return key.decode()
    except UnicodeDecodeError:
        pass
    return f"sha256:{sha256(key).hexdigest()}"


def puts(rows: pa.Table, spec: SinkSpec, version: int, kind: VersionKind = "external") -> Iterator[bytes]:
    """The two lines of each row."""
    documents = encode_json(rows.select(spec.schema.names))
    for id, document in zip(ids_of(rows, spec.key), documents, strict=True):
        yield _action("index", id, version, kind) + document + b"\n"


def deletes(rows: pa.Table, key: tuple[str, ...], version: int, kind: VersionKind = "external") -> Iterator[bytes]:
    return (_action("delete", id, version, kind) for id in ids_of(rows, key))


def documents_read(hits: Sequence[Mapping[str, Any]], spec: SinkSpec) -> pa.Table:
    """Rows from what a search finds."""
    documents = [hit["_source"] for hit in hits]
    rows = rows_read({name: [document.get(name) for document in documents] for name in spec.schema.names}, spec.schema)
    if spec.key:
        return rows
    return rows.append_column(POSITION, pa.array([bytes.fromhex(hit["_id"]) for hit in hits], pa.binary()))


def _action(name: str, id: str, version: int, kind: VersionKind) -> bytes:
    return orjson.dumps({name: {"_id": id, "version": version, "version_type": kind}}) + b"\n"


def requests(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Rows in requests that a server takes."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and (len(part) == _ROWS or size + len(line) > _BYTES):
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line)
    if part:
        yield part
