"""A topic's settings: what they may be; and as stored, one JSON file when it is made, one more for every column added later."""

from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

import orjson

from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import micros
from penstock.errors import BadInput, BadSchema, Damaged, PenstockError
from penstock.log.port import TopicSpec

FORMAT = 1


def check_spec(spec: TopicSpec) -> None:
    """Refuses settings that no topic can have."""
    if not 1 <= spec.partitions <= 10_000:
        raise BadInput(f"topic {spec.name} cannot have {spec.partitions} partitions", hint="choose 1 to 10000")
    if spec.durability not in ("fsync", "os", "memory"):
        raise BadInput(f"topic {spec.name} cannot have the durability {spec.durability!r}", hint="choose fsync, os or memory")
    if spec.max_record < 1 or micros(spec.future) < 0:
        raise BadInput(f"topic {spec.name} needs a positive record limit and a future that is not negative")
    if min(map(micros, (spec.retain or spec.hold, spec.hold, spec.tombstones))) < 0 or (spec.retain_bytes or 1) < 1:
        raise BadInput(f"topic {spec.name} cannot have a negative retention", hint="durations and bytes are positive")
    if spec.schema and spec.time:
        if spec.time not in spec.schema:
            raise BadSchema(f"topic {spec.name} has no column {spec.time!r} to take the time from", spec.schema.ddl())
        if spec.schema.type(spec.time) != TIMESTAMP:
            raise BadSchema(f"the time column {spec.time!r} of topic {spec.name} must be a timestamp", spec.schema.ddl())


def encode_settings(spec: TopicSpec, id: str) -> bytes:
    fields = {
        "format": FORMAT,
        "id": id,
        "name": spec.name,
        "partitions": spec.partitions,
        "schema": spec.schema.ddl() if spec.schema else None,
        "time": spec.time,
        "key": spec.key,
        "partition_by": spec.partition_by,
        "durability": spec.durability,
        "future_us": micros(spec.future),
        "max_record": spec.max_record,
        "writer": spec.writer,
        "changelog": spec.changelog,
        "ordered": spec.ordered,
    } | encode_cleaning(spec)
    fields |= {"capture": spec.capture} if spec.capture else {}
    fields |= {"events": True} if spec.events else {}
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2)


@lru_cache(maxsize=256)  # a topic is opened several times an epoch
def decode_settings(data: bytes, where: str) -> tuple[TopicSpec, str]:
    """The settings and the topic's id; Damaged if the file is something else."""
    try:
        f: dict[str, Any] = orjson.loads(data)
        if f["format"] != FORMAT or len(bytes.fromhex(f["id"])) != 16:
            raise ValueError(f"format {f['format']}, id {f['id']}")
        spec = TopicSpec(
            name=f["name"],
            partitions=f["partitions"],
            schema=Schema.of(f["schema"]) if f["schema"] else None,
            time=f["time"],
            key=f["key"],
            partition_by=f["partition_by"],
            durability=f["durability"],
            future=timedelta(microseconds=f["future_us"]),
            max_record=f["max_record"],
            writer=f["writer"],
            changelog=f["changelog"],
            ordered=f.get("ordered", False),  # version 0.1.0 wrote rows by time
            capture=f.get("capture"),
            events=f.get("events", False),
            **decode_cleaning(f),
        )
        return spec, f["id"]
    except (ValueError, KeyError, TypeError, PenstockError) as error:
        raise Damaged(f"the settings {where} cannot be read", str(error), hint="restore the file from a copy") from error


def encode_cleaning(spec: TopicSpec) -> dict[str, Any]:
    """How the old end of the topic is cleaned."""
    return {
        "retain_us": None if spec.retain is None else micros(spec.retain),
        "retain_bytes": spec.retain_bytes,
        "hold_us": micros(spec.hold),
        "compact": spec.compact,
        "tombstones_us": micros(spec.tombstones),
    }


def decode_cleaning(f: dict[str, Any]) -> dict[str, Any]:
    """The same as fields of a TopicSpec. A topic of an earlier version has none of them."""
    if "compact" not in f:
        return {}
    return {
        "retain": None if f["retain_us"] is None else timedelta(microseconds=f["retain_us"]),
        "retain_bytes": f["retain_bytes"],
        "hold": timedelta(microseconds=f["hold_us"]),
        "compact": f["compact"],
        "tombstones": timedelta(microseconds=f["tombstones_us"]),
    }


def encode_alteration(spec: TopicSpec) -> bytes:
    """What of a topic's settings can change."""
    return orjson.dumps({"format": FORMAT, "partitions": spec.partitions, "max_record": spec.max_record} | encode_cleaning(spec))


def decode_alteration(data: bytes, where: str, made: TopicSpec) -> TopicSpec:
    try:
        f: dict[str, Any] = orjson.loads(data)
        return replace(made, partitions=f["partitions"], max_record=f["max_record"], **decode_cleaning(f))
    except (ValueError, KeyError, TypeError, PenstockError) as error:
        raise Damaged(f"the settings {where} cannot be read", str(error), hint="restore the file from a copy") from error


def encode_schema(schema: Schema) -> bytes:
    return orjson.dumps({"format": FORMAT, "schema": schema.ddl()})


def decode_schema(data: bytes, where: str) -> Schema:
    try:
        return Schema.of(str(orjson.loads(data)["schema"]))
    except (ValueError, KeyError, TypeError, PenstockError) as error:
        raise Damaged(f"the schema {where} cannot be read", str(error), hint="restore the file from a copy") from error
