"""What stands in a Valkey, read with the client library that others use."""

from typing import Any

import redis

from penstock.testing.servers.valkey import ValkeyServer


def found(server: ValkeyServer, prefix: str) -> dict[bytes, Any]:
    """By key, without the prefix: a hash as a dict of bytes, a string as bytes. OSError if the server is not there."""
    try:
        with redis.Redis.from_url(server.url) as client:
            keys = [key for key in client.scan_iter(count=10_000) if key.startswith(f"{prefix}:".encode())]
            kinds = ((key, client.type(key)) for key in keys)
            return {key[len(prefix) + 1 :]: client.hgetall(key) if kind == b"hash" else client.get(key) for key, kind in kinds}
    except redis.exceptions.ConnectionError as error:
        raise OSError(str(error)) from error
