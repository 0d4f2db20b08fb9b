"""The signature of a webhook: whoever knows the secret can tell who sent a body, and when."""

import hashlib
import hmac


def signature(secret: str, body: bytes, now: int) -> str:
    """`t=…,v1=…`: the time in seconds, and HMAC-SHA256 over it, a dot and the body. now: microseconds since 1970."""
    at = now // 1_000_000
    return f"t={at},v1={_mac(secret, body, at)}"


def verified(secret: str, body: bytes, header: str, now: int, tolerance: int = 300) -> bool:
    """Whether the header is the signature of this body, and not older than `tolerance` seconds: what a receiver does."""
    said = dict(part.partition("=")[::2] for part in header.split(","))
    at = said.get("t", "")
    if not at.isdecimal() or abs(now // 1_000_000 - int(at)) > tolerance:
        return False
    return hmac.compare_digest(_mac(secret, body, int(at)), said.get("v1", ""))


def _mac(secret: str, body: bytes, at: int) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
