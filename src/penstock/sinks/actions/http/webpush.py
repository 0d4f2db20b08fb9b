"""Posts messages to push services, encrypted so that only the browser can read them (RFC 8030, 8188, 8291 and 8292)."""

import base64
import binascii
import hashlib
from typing import Any

import orjson

from penstock.core.time import micros
from penstock.errors import BadInput, SinkError, install
from penstock.log.kafka.secrets import secret
from penstock.sinks.actions.http.addresses import Endpoint, Resolve, resolve
from penstock.sinks.actions.http.posting import Poster, judge
from penstock.sinks.actions.outbox.pace import Times
from penstock.sinks.actions.port import Intent, Refused
from penstock.sinks.actions.push import SERVICES, PushDefinition
from penstock.sinks.actions.templates import rendered, values_of

LONGEST = 3_993  # bytes of a message: with what encryption adds, the 4,096 that a service has to take
_TOKEN = 12 * 3_600_000_000  # microseconds that a token of the application is valid


class WebPush:
    """All browsers that rows name. The topic of a message is made from its key: a service that still holds it replaces it."""

    def __init__(self, definition: PushDefinition, resolve: Resolve = resolve, times: Times | None = None) -> None:
        self._definition, self._resolve, self._times = definition, resolve, times or Times()
        self.called = f"push {definition.target}"
        self._poster: Poster | None = None
        self._tokens: dict[str, tuple[int, str]] = {}

    def open(self) -> None:
        self.close()
        d = self._definition
        self._library, vapid = _libraries()
        try:
            self._vapid = vapid.from_pem(secret(d.vapid, "the VAPID key").encode())
        except (ValueError, TypeError) as error:
            raise BadInput("the VAPID key cannot be read", hint="it is a private key on the curve P-256, as PEM") from error
        self._tokens.clear()
        self._poster = Poster(d.hosts, d.timeout, d.sending.at_once, None, self._resolve)

    def do(self, intent: Intent) -> None:
        assert self._poster
        d, values, now = self._definition, values_of(intent), self._times.wall()
        try:
            endpoint = Endpoint.of(str(values[d.endpoint]))
        except BadInput as error:
            raise Refused(f"the subscription has no endpoint: {error.what}") from error
        if d.hosts.named == SERVICES and (endpoint.scheme, endpoint.port) != ("https", 443):
            raise Refused("the endpoint of the subscription is no push service: those are reached over https")
        body = self._encrypted(self._message(values), values)
        topic = base64.urlsafe_b64encode(hashlib.sha256(intent.key.encode()).digest()[:24]).decode()
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Encoding": "aes128gcm",
            "Topic": topic,
            "Urgency": d.urgency,
        }
        headers |= {"TTL": str(micros(d.ttl) // 1_000_000), "Authorization": self._token(endpoint, now)}
        judge(self._poster.post(endpoint, body, headers), endpoint, now)

    def close(self) -> None:
        if self._poster:
            self._poster.close()
            self._poster = None

    def _message(self, values: dict[str, Any]) -> bytes:
        d = self._definition
        if d.payload is None:
            return orjson.dumps({k: v for k, v in values.items() if k not in (d.endpoint, d.p256dh, d.auth)})
        found = rendered(d.payload, values)
        return found.encode() if isinstance(found, str) else orjson.dumps(found)

    def _encrypted(self, message: bytes, values: dict[str, Any]) -> bytes:
        from cryptography.hazmat.primitives.asymmetric import ec

        if len(message) > LONGEST:
            raise Refused(f"the message has {len(message)} bytes, and a push service takes {LONGEST}")
        try:
            browser, shared = (_decoded(values[name]) for name in (self._definition.p256dh, self._definition.auth))
            if (len(browser), len(shared)) != (65, 16):
                raise ValueError("they have not the lengths that a browser gives them")
            ours = ec.generate_private_key(ec.SECP256R1())
            body: bytes = self._library.encrypt(message, private_key=ours, dh=browser, auth_secret=shared, version="aes128gcm")
        except (ValueError, TypeError, binascii.Error, self._library.ECEException) as error:
            raise Refused(f"the subscription has no usable keys: {error}") from error
        return body

    def _token(self, endpoint: Endpoint, now: int) -> str:
        """Says to a service who we are; kept, for it is slow to make. Two threads may make it twice, and no harm done."""
        service = f"{endpoint.scheme}://{endpoint}"
        until, token = self._tokens.get(service, (0, ""))
        if now > until - _TOKEN // 2:
            until = now + _TOKEN
            claims = {"aud": service, "exp": until // 1_000_000, "sub": self._definition.contact}
            token = str(self._vapid.sign(claims)["Authorization"])
            self._tokens[service] = (until, token)
        return token


def _decoded(text: Any) -> bytes:
    return base64.urlsafe_b64decode(str(text) + "=" * (-len(str(text)) % 4))


def _libraries() -> tuple[Any, Any]:
    try:
        import http_ece
        from py_vapid import Vapid02
    except ImportError as error:
        raise SinkError("what Web Push needs is not installed", hint=install("http-ece", "py-vapid")) from error
    return http_ece, Vapid02
