"""The settings of a queue as a file holds them."""

from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Any

import orjson

from penstock.core.time import micros
from penstock.errors import Damaged
from penstock.queue.port import Binding, Limit, QueueSpec

FORMAT = 1


def encode_spec(spec: QueueSpec, id: str) -> bytes:
    data = {
        "format": FORMAT,
        "id": id,
        "name": spec.name,
        "source": spec.source,
        "bindings": [_binding(binding) for binding in spec.bindings],
        "lease": micros(spec.lease),
        "tries": spec.tries,
        "retry": micros(spec.retry),
        "ordered": spec.ordered,
        "limit": [spec.limit.policy, spec.limit.messages, spec.limit.bytes],
        "dead": spec.dead,
        "start": spec.start,
    }
    return orjson.dumps(data, option=orjson.OPT_INDENT_2)


def decode_spec(encoded: bytes, path: str) -> tuple[QueueSpec, str]:
    """The settings and the id of the queue."""
    try:
        data = orjson.loads(encoded)
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']} is not known")
        spec = QueueSpec(
            data["name"],
            data["source"],
            tuple(Binding(b["route"], {n: b64decode(v) for n, v in b["headers"].items()}, b["any"]) for b in data["bindings"]),
            timedelta(microseconds=data["lease"]),
            data["tries"],
            timedelta(microseconds=data["retry"]),
            data["ordered"],
            Limit(*data["limit"]),
            data["dead"],
            data["start"],
        )
        return spec, data["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path} does not hold the settings of a queue", str(error)) from error


def _binding(binding: Binding) -> dict[str, Any]:
    headers = {name: b64encode(value).decode() for name, value in binding.headers.items()}
    return {"route": binding.route, "headers": headers, "any": binding.any_header}
