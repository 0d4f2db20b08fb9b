"""Values in Avro: the schema stands in the topic's settings, its fingerprint before every value (Avro's single-object encoding)."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.errors import LogError, install
from penstock.log.intake.codec import Decoded, decode_rows
from penstock.log.intake.columns import Reasons

MAGIC = b"\xc3\x01"
_HEAD = len(MAGIC) + 8
_SIMPLE: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}
_TIME = {"type": "long", "logicalType": "timestamp-micros"}

Read = Callable[[bytes], Any]


def library() -> Any:
    """The module fastavro, loaded when a topic has this codec."""
    try:
        import fastavro
        import fastavro.schema
    except ImportError as error:
        raise LogError("the library for Avro is not installed", str(error), hint=install("fastavro")) from error
    return fastavro


def avro_schema(schema: Schema, name: str) -> dict[str, Any]:
    """A schema of ours as one of Avro: every column may be null, since a delete knows little more than its key."""
    fields = [{"name": f.name, "type": ["null", _type(f.type, f.name)], "default": None} for f in schema]
    return {"type": "record", "name": _word(name), "namespace": "penstock", "fields": fields}


def _type(t: pa.DataType, path: str) -> Any:
    if t in _SIMPLE:
        return _SIMPLE[t]
    if pa.types.is_timestamp(t):
        return _TIME
    if pa.types.is_decimal(t):
        return {"type": "bytes", "logicalType": "decimal", "precision": t.precision, "scale": t.scale}
    if pa.types.is_list(t):
        return {"type": "array", "items": ["null", _type(t.value_type, f"{path}_item")]}
    if pa.types.is_map(t) and pa.types.is_string(t.key_type):
        return {"type": "map", "values": ["null", _type(t.item_type, f"{path}_value")]}
    if pa.types.is_map(t):  # Avro's own maps have texts for keys
        pair = [("key", t.key_type), ("value", t.item_type)]
        return {"type": "array", "items": _record(path, pair)}
    assert isinstance(t, pa.StructType)
    return _record(path, [(f.name, f.type) for f in t])


def _record(path: str, fields: Sequence[tuple[str, pa.DataType]]) -> dict[str, Any]:
    inner = [{"name": name, "type": ["null", _type(t, f"{path}_{name}")], "default": None} for name, t in fields]
    return {"type": "record", "name": _word(path), "fields": inner}


def _word(name: str) -> str:
    return "r_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


class AvroWriter:
    """Rows as Avro, each behind the same few bytes that tell its schema."""

    def __init__(self, schema: Mapping[str, Any], head: bytes) -> None:
        self._avro, self._head = library(), head
        self._parsed = self._avro.parse_schema(dict(schema))

    def encode(self, rows: pa.RecordBatch) -> list[bytes | None]:
        out: list[bytes | None] = []
        shapes = {f.name: shape for f in rows.schema if (shape := _shape(f.type, into=True))}
        for row in rows.to_pylist():
            for name, shape in shapes.items():
                row[name] = shape(row[name])
            into = io.BytesIO()
            into.write(self._head)
            self._avro.schemaless_writer(into, self._parsed, row)
            out.append(into.getvalue())
        return out


def _shape(t: pa.DataType, into: bool) -> Callable[[Any], Any] | None:
    """How a value with maps in it becomes what Avro writes (into), or what it wrote becomes a value; None where it is the same."""
    if pa.types.is_map(t):
        inner, texts = _shape(t.item_type, into) or (lambda v: v), pa.types.is_string(t.key_type)
        return lambda v: None if v is None else _pairs(v, inner, into, texts)
    if pa.types.is_list(t):
        each = _shape(t.value_type, into)
        return None if each is None else lambda v: None if v is None else [each(x) for x in v]
    fields = {f.name: shape for f in t if (shape := _shape(f.type, into))} if pa.types.is_struct(t) else {}
    return (lambda v: None if v is None else v | {n: shape(v.get(n)) for n, shape in fields.items()}) if fields else None


def _pairs(value: Any, inner: Callable[[Any], Any], into: bool, texts: bool) -> Any:
    if into and texts:
        return {key: inner(item) for key, item in value}
    if into:
        return [{"key": key, "value": inner(item)} for key, item in value]
    if isinstance(value, Mapping):
        return {key: inner(item) for key, item in value.items()}
    return {pair["key"]: inner(pair["value"]) for pair in value}


def decoded(values: pa.Array, schema: Schema, gone: set[int], head: int, reader: Callable[[bytes], Read]) -> Decoded:
    """Values by whatever schema each names in its head. reader: of a head; ValueError, with the reason, if it is not known."""
    rows: list[Mapping[str, Any]] = []
    refused: Reasons = {}
    for i, value in enumerate(values.to_pylist()):
        row: Any = {}
        if value is not None or i not in gone:
            try:
                row = reader((value or b"")[:head])((value or b"")[head:])
                if not isinstance(row, Mapping):
                    raise ValueError("it is no record")
            except (ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, ArithmeticError, StopIteration) as wrong:
                refused[i] = f"not Avro of this topic: {wrong or type(wrong).__name__}"
                row = {}
        rows.append(row)
    shapes = {f.name: shape for f in schema if (shape := _shape(f.type, into=False))}
    if shapes:
        rows = [{**row, **{n: _shaped(shape, row[n]) for n, shape in shapes.items() if n in row}} for row in rows]
    return decode_rows(rows, schema, refused, gone)


def _shaped(shape: Callable[[Any], Any], value: Any) -> Any:
    """The value, or as it is where somebody else's schema gave it another form: then its row is refused for that."""
    try:
        return shape(value)
    except (TypeError, KeyError, AttributeError):
        return value


def read_all(avro: Any, written: Any) -> Read:
    """Reads values of one schema; what is left over at the end makes a value no such value."""

    def read(data: bytes) -> Any:
        source = io.BytesIO(data)
        row = avro.schemaless_reader(source, written, None)
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes are left over")
        return row

    return read


class AvroCodec:
    """Avro with the schemas of the topic's settings, the newest for writing, all of them for reading."""

    def __init__(self, topic: str, schemas: Sequence[Schema]) -> None:
        self._avro = library()
        given = [avro_schema(schema, topic) for schema in schemas]
        heads = [MAGIC + self._fingerprint(each) for each in given]
        self._readers = {head: read_all(self._avro, self._avro.parse_schema(each)) for head, each in zip(heads, given, strict=True)}
        self._writer = AvroWriter(given[-1], heads[-1])

    def encode(self, rows: pa.RecordBatch) -> Sequence[bytes | None]:
        return self._writer.encode(rows)

    def decode(self, values: pa.Array, schema: Schema, gone: set[int]) -> Decoded:
        return decoded(values, schema, gone, _HEAD, self._reader)

    def _reader(self, head: bytes) -> Read:
        if head not in self._readers:
            raise ValueError("its schema is none of the topic's" if head.startswith(MAGIC) else "it does not begin as Avro does")
        return self._readers[head]

    def _fingerprint(self, schema: Mapping[str, Any]) -> bytes:
        canonical = self._avro.schema.to_parsing_canonical_form(dict(schema))
        return bytes.fromhex(self._avro.schema.fingerprint(canonical, "CRC-64-AVRO"))
