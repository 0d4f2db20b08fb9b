"""Idempotency keys: the same for a row whenever and however often it is sent."""

import hashlib


def idempotency_key(flow: str, sink: str, key: bytes | None, position: bytes) -> str:
    """From the flow, the sink, the row's key and its position in the log; so it outlives replays, restarts and other cuts of the
    input. Each part is closed by its length: no two lists of parts run together."""
    digest = hashlib.sha256()
    for part in (flow.encode(), sink.encode(), b"" if key is None else b"=" + key, position):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:40]
