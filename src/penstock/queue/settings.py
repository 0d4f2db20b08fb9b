"""The settings of a queue, as a file holds them."""

from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Any

import orjson

from penstock.core.time import micros
from penstock.errors import Damaged
from penstock.queue.port import Binding, Limit, QueueSpec

FORMAT = 1


def encode_spec(spec: QueueSpec, id: str) -> bytes:
    said = {
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
    return orjson.dumps(said, option=orjson.OPT_INDENT_2)


def decode_spec(data: bytes, path: str) -> tuple[QueueSpec, str]:
    """The settings and the id of the queue."""
    try:
        said = orjson.loads(data)
        if said["format"] != FORMAT:
            raise ValueError(f"format {said['format']} is not known")
        spec = QueueSpec(
            said["name"],
            said["source"],
            tuple(Binding(b["route"], {n: b64decode(v) for n, v in b["headers"].items()}, b["any"]) for b in said["bindings"]),
            timedelta(microseconds=said["lease"]),
            said["tries"],
            timedelta(microseconds=said["retry"]),
            said["ordered"],
            Limit(*said["limit"]),
            said["dead"],
            said["start"],
        )
        return spec, said["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path} does not hold the settings of a queue", str(error)) from error


def _binding(binding: Binding) -> dict[str, Any]:
    headers = {name: b64encode(value).decode() for name, value in binding.headers.items()}
    return {"route": binding.route, "headers": headers, "any": binding.any_header}
