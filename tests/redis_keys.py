"""What stands in a Valkey, read with the client library that others use."""

from typing import Any

import redis

from penstock.testing.servers.valkey import ValkeyServer


def found(server: ValkeyServer, prefix: str) -> dict[bytes, Any]:
    """By key, without the prefix: a hash as a dict of bytes, a string as bytes."""
    with redis.Redis.from_url(server.url) as client:
        keys = [key for key in client.scan_iter(count=10_000) if key.startswith(f"{prefix}:".encode())]
        return {key[len(prefix) + 1 :]: client.hgetall(key) if client.type(key) == b"hash" else client.get(key) for key in keys}
