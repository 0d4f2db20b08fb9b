"""Web Push: what a browser with the keys of its subscription can read, and nobody else."""

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import http_ece
import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from py_vapid import Vapid02

from penstock.core.schema import Schema
from penstock.errors import BadInput
from penstock.sinks import push
from penstock.sinks.actions.http.webpush import LONGEST, WebPush
from penstock.sinks.actions.port import Intent, Refused, Unavailable
from penstock.sinks.port import SinkSpec
from penstock.testing.receiver import Receiver, Reply


class Browser:
    """The keys of a subscription."""

    def __init__(self, endpoint: str) -> None:
        self.key, self.secret = ec.generate_private_key(ec.SECP256R1()), os.urandom(16)
        point = self.key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        self.row = {"endpoint": endpoint, "p256dh": _encoded(point), "auth": _encoded(self.secret)}

    def read(self, body: bytes) -> bytes:
        found: bytes = http_ece.decrypt(body, private_key=self.key, auth_secret=self.secret, version="aes128gcm")
        return found


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.fixture
def at() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def vapid(tmp_path: Path) -> str:
    made, path = Vapid02(), tmp_path / "vapid.pem"
    made.generate_keys()
    path.write_bytes(made.private_pem())
    path.chmod(0o600)
    return f"file:{path}"


def opened(vapid: str, **given: Any) -> WebPush:
    made = WebPush(push(vapid=vapid, contact="mailto:ops@shop.example", **({"hosts": ["127.0.0.1"]} | given)))
    made.open()
    return made


def intent(browser: Browser, **row: Any) -> Intent:
    row = browser.row | {"text": "hello"} | row
    return Intent(0, "key-1", row, orjson.dumps(row), 0)


def test_the_browser_can_read_it_and_the_service_knows_who_sends(at: Receiver, vapid: str) -> None:
    browser, made = Browser(f"{at.url}sub/1"), opened(vapid)
    for _ in range(2):
        made.do(intent(browser))
    first, second = at.requests
    assert orjson.loads(browser.read(first.body)) == {"text": "hello"}
    assert first.headers["Topic"] == second.headers["Topic"]
    assert (len(first.headers["Topic"]), first.headers["TTL"], first.headers["Content-Encoding"]) == (32, "86400", "aes128gcm")
    assert Vapid02.verify(first.headers["Authorization"])
    claims = first.headers["Authorization"].partition("t=")[2].split(".")[1]
    said = orjson.loads(base64.urlsafe_b64decode(claims + "=="))
    assert (said["aud"], said["sub"]) == (at.url.rstrip("/"), "mailto:ops@shop.example")
    with pytest.raises(http_ece.ECEException):
        Browser(at.url).read(first.body)


def test_a_payload_is_filled_in(at: Receiver, vapid: str) -> None:
    browser = Browser(at.url)
    opened(vapid, payload={"title": "new: {text}"}).do(intent(browser))
    assert orjson.loads(browser.read(at.requests[0].body)) == {"title": "new: hello"}


def test_a_subscription_that_is_gone_is_refused_and_a_busy_service_is_not(at: Receiver, vapid: str) -> None:
    at.answer(Reply(410), Reply(404), Reply(413), Reply(429))
    made, browser = opened(vapid), Browser(at.url)
    for kind in (Refused, Refused, Refused, Unavailable):
        with pytest.raises(kind):
            made.do(intent(browser))


@pytest.mark.parametrize(
    "row",
    [
        {"p256dh": "x"},
        {"p256dh": None},
        {"auth": ""},
        {"auth": "\u00e9"},
        {"endpoint": None},
        {"endpoint": "file:///etc/passwd"},
        {"text": "x" * LONGEST},
    ],
)
def test_a_subscription_or_message_that_cannot_be_used_is_refused(at: Receiver, vapid: str, row: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        opened(vapid).do(intent(Browser(at.url), **row))
    assert at.requests == []


def test_rows_cannot_name_any_other_host_than_those_of_push_services(at: Receiver, vapid: str) -> None:
    services = push(vapid=vapid, contact="mailto:ops@shop.example").hosts.named
    made = opened(vapid, hosts=services)
    inner = ["http://fcm.googleapis.com/x", "https://fcm.googleapis.com:22/x", "https://evil.example/", "https://169.254.169.254/"]
    for endpoint in (at.url, *inner, "https://fcm.googleapis.com.evil.example/"):
        with pytest.raises(Refused):
            made.do(intent(Browser(endpoint)))
    assert at.requests == []


def test_what_cannot_be_used_is_refused(vapid: str) -> None:
    for wrong in ({"contact": "ops"}, {"vapid": "MHcCAQ…"}, {"hosts": []}, {"urgency": "now"}):
        with pytest.raises(BadInput):
            push(**({"vapid": vapid, "contact": "mailto:ops@shop.example"} | wrong))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="needs a column 'auth'"):
        push(vapid=vapid, contact="mailto:a@b.example").check(SinkSpec("s", "p", Schema.of("endpoint string, p256dh string"), ()))


def test_a_key_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("canary")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(BadInput, match="VAPID key cannot be read") as refused:
        opened(f"file:{tmp_path / 'key'}")
    assert "canary" not in str(refused.value)
