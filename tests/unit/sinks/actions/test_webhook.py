"""Webhooks: what is sent, to whom, and what answers mean."""

import dataclasses
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3

from certificates import certified
from penstock import Flow
from penstock.errors import BadInput
from penstock.sinks import webhook
from penstock.sinks.actions.http.posting import LONGEST_ANSWER
from penstock.sinks.actions.http.signing import signature, verified
from penstock.sinks.actions.http.webhook import Webhook
from penstock.sinks.actions.outbox.pace import Times
from penstock.sinks.actions.port import Intent, NotDone, Refused, Unavailable
from penstock.testing.receiver import LOST, Receiver, Reply

INTENT = Intent(0, "key-1", {"id": 1, "text": 'a "b" {c}'}, b'{"id":1,"text":"a \\"b\\" {c}"}', 0)
NOW = 1_700_000_000_000_000
SECRET = "canary-3b1f"


@pytest.fixture
def at() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def opened(at: Receiver, **given: Any) -> Webhook:
    made = Webhook(webhook(at.url, hosts=["127.0.0.1"], **given), times=Times(wall=lambda: NOW))
    made.open()
    return made


def test_the_row_is_posted_as_json_with_its_key(at: Receiver) -> None:
    opened(at).do(INTENT)
    (request,) = at.requests
    assert (request.body, request.key, request.headers["Content-Type"]) == (INTENT.json, "key-1", "application/json")
    assert request.headers["Host"] == f"127.0.0.1:{at.port}"


def test_the_body_is_signed_with_the_time(at: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    opened(at, sign="env:HOOK_SECRET").do(INTENT)
    header = at.requests[0].headers["Penstock-Signature"]
    assert header == signature(SECRET, INTENT.json, NOW)
    assert verified(SECRET, INTENT.json, header, NOW + 60_000_000)
    assert not verified(SECRET, INTENT.json, header, NOW + 600_000_000)
    assert not verified(SECRET, INTENT.json + b" ", header, NOW)
    assert not verified("other", INTENT.json, header, NOW)
    assert not verified(SECRET, INTENT.json, "t=x", NOW)


def test_a_template_is_filled_in_and_a_value_cannot_break_out_of_it(at: Receiver) -> None:
    opened(at, template={"text": "{id}: {text} {{raw}}", "blocks": [{"n": 1, "id": "{id}"}]}).do(INTENT)
    opened(at, template="{text}").do(INTENT)
    assert at.requests[0].json() == {"text": '1: a "b" {c} {raw}', "blocks": [{"n": 1, "id": "1"}]}
    assert (at.requests[1].body, at.requests[1].headers["Content-Type"]) == (b'a "b" {c}', "text/plain; charset=utf-8")


def test_connections_are_kept(at: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    made, connected = opened(at), list[Any]()
    connect = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *a, **k: connected.append(a) or connect(*a, **k))
    real = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", lambda self, to: connected.append(to) or real(self, to))
    for _ in range(5):
        made.do(INTENT)
    assert len(connected) <= 2  # one connection


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(400, body=b"bad \x1b[31m"), Refused),
        (Reply(404), Refused),
        (Reply(410), Refused),
        (Reply(422), Refused),
        (Reply(408), Unavailable),
        (Reply(425), Unavailable),
        (Reply(429), Unavailable),
        (Reply(503), Unavailable),
        (Reply(500), NotDone),
        (Reply(302, (("Location", "http://127.0.0.1:1/inner"),)), Refused),
        (Reply(307, (("Location", "http://127.0.0.1:1/inner"),)), Refused),
        (LOST, Unavailable),
    ],
)
def test_what_an_answer_means(at: Receiver, reply: Reply, kind: type[NotDone]) -> None:
    at.answer(reply)
    with pytest.raises(NotDone) as failed:
        opened(at).do(INTENT)
    assert type(failed.value) is kind
    assert failed.value.reason.isprintable()
    assert len(at.requests) == 1


def test_a_redirect_is_not_followed(at: Receiver) -> None:
    with Receiver() as inner:
        at.answer(always=Reply(301, (("Location", inner.url),)))
        with pytest.raises(Refused, match="redirects are not followed"):
            opened(at).do(INTENT)
        assert inner.requests == []


@pytest.mark.parametrize(
    ("said", "after"),
    [
        ("120", timedelta(seconds=120)),
        (datetime.fromtimestamp(NOW // 10**6 + 90, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), timedelta(seconds=90)),
        ("Wed, 21 Oct 2015 07:28:00 GMT", timedelta()),
        ("soon", None),
        ("9" * 30, timedelta(seconds=10**8)),
    ],
)
def test_retry_after_is_read(at: Receiver, said: str, after: timedelta | None) -> None:
    at.answer(Reply(429, (("Retry-After", said),)))
    with pytest.raises(Unavailable) as failed:
        opened(at).do(INTENT)
    assert failed.value.after == after


def test_a_receiver_that_is_away_or_slow_is_unavailable(at: Receiver) -> None:
    at.hold()
    with pytest.raises(Unavailable, match=r"does not answer: .*[Tt]imed? ?out"):
        opened(at, timeout="500 ms").do(INTENT)
    at.go()
    made = opened(at)
    made.do(INTENT)
    at.down()
    with pytest.raises(Unavailable, match="does not answer: ConnectionRefusedError: Connection refused"):
        made.do(INTENT)
    at.up()
    made.do(INTENT)
    assert len(at.messages) == 1
    assert len(at.requests) == 3


def test_a_long_answer_is_not_read_to_its_end(at: Receiver) -> None:
    at.answer(Reply(body=b"x" * (20 * LONGEST_ANSWER)))
    made = opened(at)
    made.do(INTENT)
    made.do(INTENT)
    assert len(at.requests) == 2


def test_proxies_of_the_environment_are_not_used(at: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    opened(at).do(INTENT)
    assert len(at.requests) == 1


class Rebinding:
    """A name that is public when it is first asked for, and points inside from then on."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return [self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]]


def test_an_inner_server_is_never_reached_under_a_name_that_was_not_allowed(at: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS row 57: also where the name changes its address between the look and the call."""
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "[::1]", "169.254.169.254"):
        made = Webhook(webhook(f"http://{host}:{at.port}/"))
        made.open()
        with pytest.raises(NotDone):
            made.do(INTENT)
    called = list[str]()

    def unreachable(address: tuple[str, int], *args: object, **options: object) -> None:
        called.append(address[0])
        raise OSError("nobody is called from a test")

    monkeypatch.setattr(urllib3.util.connection, "create_connection", unreachable)
    rebinding = Rebinding("93.184.215.14", "127.0.0.1")
    made = Webhook(webhook(f"http://rebind.example:{at.port}/", timeout="300 ms"), rebinding)
    made.open()
    for _ in range(4):
        with pytest.raises(NotDone):
            made.do(INTENT)
    assert rebinding.asked >= 2
    assert set(called) == {"93.184.215.14"}
    assert at.requests == []


def test_a_name_is_resolved_once_and_its_address_pinned(at: Receiver) -> None:
    names = Rebinding("127.0.0.1", "10.255.255.1")
    made = Webhook(webhook(f"http://inner.example:{at.port}/", hosts=["inner.example"]), names)
    made.open()
    for _ in range(3):
        made.do(INTENT)
    assert names.asked == 1
    assert at.requests[0].headers["Host"] == f"inner.example:{at.port}"


def test_secrets_are_nowhere_to_be_seen(at: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOOK_URL", "HOOK_SECRET", "HOOK_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("HOOK_URL", f"{at.url}{SECRET}")
    made = webhook("env:HOOK_URL", hosts=["127.0.0.1"], sign="env:HOOK_SECRET", headers={"Authorization": "env:HOOK_TOKEN"})
    flow = Flow("shop")
    flow.stream("orders", "id long, text string").sink(made)
    action = Webhook(made)
    action.open()
    at.answer(Reply(400))
    with pytest.raises(Refused) as refused:
        action.do(INTENT)
    at.down()
    with pytest.raises(Unavailable) as away:
        action.do(INTENT)
    shown = [repr(made), made.target, made.details(()), action.called, repr(refused.value), repr(away.value), repr(vars(made))]
    assert not [text for text in shown if SECRET in text]
    assert at.requests[0].headers["Authorization"] == SECRET
    assert made.target == "hook_url"


@pytest.mark.parametrize(
    "given",
    [
        {"sign": SECRET},
        {"headers": {"Authorization": f"Bearer {SECRET}"}},
        {"headers": {"X-Api-Key": SECRET}},
        {"headers": {"X-Note": f"a\r\nX: {SECRET}"}},
        {"headers": {"Idempotency-Key": SECRET}},
        {"headers": {"Host": SECRET}},
        {"hosts": ["other.example"]},
        {"hosts": "hooks.example"},
    ],
)
def test_what_must_not_be_given_is_refused_and_not_repeated(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as refused:
        webhook("https://hooks.example/x", **given)
    assert SECRET not in str(refused.value)


def test_a_url_by_reference_needs_its_hosts_and_must_name_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="needs the hosts"):
        webhook("env:HOOK_URL")
    monkeypatch.setenv("HOOK_URL", "https://other.example/")
    with pytest.raises(BadInput, match="not among those"):
        Webhook(webhook("env:HOOK_URL", hosts=["hooks.example"])).open()


def test_a_definition_is_a_value_that_can_be_compared() -> None:
    first, second = (webhook("https://hooks.example/x", template={"a": "{b}"}) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.url = "other"  # type: ignore[misc]


def test_certificates_are_verified_against_the_name_and_not_the_address(tmp_path: Path) -> None:
    good = certified(tmp_path, "hooks.example")
    with Receiver(tls=str(good)) as at:
        for host, ca, fits in (
            ("hooks.example", str(good), True),
            ("other.example", str(good), False),
            ("hooks.example", None, False),
        ):
            given = webhook(f"https://{host}:{at.port}/", hosts=["hooks.example", "other.example"], ca=ca)
            made = Webhook(given, lambda host, port: ["127.0.0.1"])
            made.open()
            if fits:
                made.do(INTENT)
            else:
                with pytest.raises(Unavailable, match=r"SSL|certificate"):
                    made.do(INTENT)
        assert len(at.requests) == 1
