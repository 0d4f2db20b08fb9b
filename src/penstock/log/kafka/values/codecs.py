"""The values of records: how rows become bytes and bytes rows. A topic's codec stands in its settings."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import VALUE
from penstock.core.schema import Schema
from penstock.errors import BadInput, BadRow
from penstock.log.intake.codec import Decoded, decode_rows, make_decimals_exact, parse_objects
from penstock.log.intake.columns import Reasons
from penstock.log.intake.text import encode_json
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import TopicSpec

CODECS = ("json", "avro", "avro+registry", "raw")


class Codec(Protocol):
    """The values of one topic."""

    def encode(self, rows: pa.RecordBatch) -> Sequence[bytes | None]:
        """Each row as a value. BadRow where it has no form."""
        ...

    def decode(self, values: pa.Array, schema: Schema, gone: set[int]) -> Decoded:
        """The rows; a value that does not fit is among the rejected, with its reason. gone: which of them are deletes."""
        ...


class JsonCodec:
    """One JSON object a row."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def encode(self, rows: pa.RecordBatch) -> Sequence[bytes | None]:
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if _no_number(column):
                raise BadRow(
                    f"a row for topic {self._topic} has NaN or infinity in column {name!r}, and JSON has no form for it",
                    hint="make the topic with codec avro",
                )
        return encode_json(rows)

    def decode(self, values: pa.Array, schema: Schema, gone: set[int]) -> Decoded:
        texts: list[Any] = values.to_pylist()
        refused: Reasons = {}
        for i in gone:
            texts[i] = texts[i] or b"{}"  # a record without value: all that is known of the row is its key
        rows = parse_objects(texts, refused)
        make_decimals_exact(rows, texts, schema, refused)
        return decode_rows(rows, schema, refused, gone)


def codec_of(spec: TopicSpec, settings: KafkaSettings, name: str, schemas: Sequence[Schema]) -> Codec | None:
    """The codec of a topic; None for raw ones, whose values are bytes. schemas: all versions, the newest last."""
    if spec.schema is None:
        return None
    if (spec.codec or "json") == "json":
        return JsonCodec(spec.name)
    from penstock.log.kafka.values.avro import AvroCodec
    from penstock.log.kafka.values.registry import RegistryCodec

    return AvroCodec(spec.name, schemas) if spec.codec == "avro" else RegistryCodec(spec.name, name, schemas, settings)


def check_codec(spec: TopicSpec, settings: KafkaSettings) -> None:
    """Refuses a codec that the topic cannot have."""
    if spec.codec is not None and spec.codec not in CODECS:
        raise BadInput(f"topic {spec.name} cannot have the codec {spec.codec!r}", hint=f"choose {', '.join(CODECS)}")
    if (spec.codec == "raw") != (spec.schema is None) and spec.codec is not None:
        raise BadInput(f"topic {spec.name} cannot have the codec {spec.codec!r}", "raw topics have no schema, all others have one")
    if spec.codec == "avro+registry" and not settings.get("registry"):
        raise BadInput(f"topic {spec.name} needs a schema registry", hint="say where it is: kafka://…?registry=https://…")


def raw_values(rows: pa.RecordBatch) -> Sequence[bytes | None]:
    found: list[bytes | None] = rows.column(VALUE).to_pylist()
    return found


def _no_number(column: pa.Array) -> bool:
    """Whether there is NaN or infinity anywhere in it."""
    t = column.type
    if pa.types.is_floating(t):
        values = np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False))
        return not bool(np.isfinite(values).all())
    if isinstance(column, pa.MapArray):
        return _no_number(column.filter(pc.is_valid(column)).items)
    if isinstance(column, pa.ListArray):
        return _no_number(column.flatten())
    return isinstance(column, pa.StructArray) and any(_no_number(field) for field in column.flatten())
