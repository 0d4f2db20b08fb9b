"""Mails: what is sent, under which Message-ID, and what a server's answers mean."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from certificates import certified
from penstock.core.schema import Schema
from penstock.errors import BadInput
from penstock.sinks import email
from penstock.sinks.actions.port import Intent, NotDone, Refused, Unavailable
from penstock.sinks.actions.smtp import Mail
from penstock.sinks.port import SinkSpec
from smtp_server import MailServer

SECRET = "canary-77aa"
Opened = Callable[..., Mail]


def intent(**row: Any) -> Intent:
    row = {"id": 1, "email": "ann@example.com", "text": "hello"} | row
    return Intent(0, "key-1", row, orjson.dumps(row), 1_700_000_000_000_000)


@pytest.fixture
def at() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server


@pytest.fixture
def opened(at: MailServer) -> Iterator[Opened]:
    with ExitStack() as stack:

        def make(**given: Any) -> Mail:
            named: dict[str, Any] = {"sender": "alerts@shop.example", "to": "{email}", "subject": "order {id}", "body": "{text}\n"}
            made = Mail(email(given.pop("url", at.url), **(named | given)))
            made.open()
            stack.callback(made.close)
            return made

        yield make


def test_a_row_is_a_mail_whose_message_id_is_its_key(at: MailServer, opened: Opened) -> None:
    made = opened()
    for _ in range(2):
        made.do(intent())
    assert len(at.mails) == 2
    (mail,) = at.once().values()
    assert (mail["Message-ID"], mail["To"], mail["Subject"]) == ("<key-1@shop.example>", "ann@example.com", "order 1")
    assert mail.get_content().strip() == "hello"


def test_texts_cannot_add_headers_or_receivers_and_html_is_escaped(at: MailServer, opened: Opened) -> None:
    made = opened(subject="{text}", html="<p>{text}</p>")
    made.do(intent(text="a\r\nBcc: eve@example.com\n<script>"))
    (mail,) = at.mails
    assert mail["Bcc"] is None
    assert mail["Subject"] == "a Bcc: eve@example.com <script>"
    part = mail.get_body(("html",))
    assert part
    assert "&lt;script&gt;" in part.get_content()
    for wrong in ("a@x.example, eve@x.example", "a@x.example\r\nBcc: eve@x.example", "nobody", "", "<eve@x.example>"):
        with pytest.raises(Refused, match="no address"):
            made.do(intent(email=wrong))
    assert len(at.mails) == 1


@pytest.mark.parametrize(
    ("where", "says", "kind"),
    [
        ("ann@example.com", "550 no such user", Refused),
        ("ann@example.com", "450 try later", NotDone),
        ("", "554 looks like spam", Refused),
        ("", "451 disk full", Unavailable),
        ("", "lost", Unavailable),
    ],
)
def test_what_an_answer_means(at: MailServer, opened: Opened, where: str, says: str, kind: type[NotDone]) -> None:
    at.says[where] = [says]
    made = opened()
    with pytest.raises(NotDone) as failed:
        made.do(intent())
    assert type(failed.value) is kind
    made.do(intent())
    assert len(at.once()) == 1


def test_one_of_several_receivers_that_is_refused_is_told(at: MailServer, opened: Opened) -> None:
    at.says["bob@example.com"] = ["550 no such user"]
    with pytest.raises(Refused, match=r"bob@example\.com: 550"):
        opened(to=["{email}", "bob@example.com"]).do(intent())
    assert len(at.mails) == 1


def test_a_server_that_is_away_is_unavailable_and_connections_are_made_anew(at: MailServer, opened: Opened) -> None:
    made = opened()
    made.do(intent())
    at.__exit__(None, None, None)
    with pytest.raises(Unavailable, match="does not answer: ConnectionRefusedError"):
        made.do(intent())
    at.__enter__()
    made.do(intent())
    assert len(at.mails) == 2


def test_a_login_goes_through_tls_that_is_verified(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMTP_PASSWORD", SECRET)
    certificate = certified(tmp_path, "mail.example", "127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with MailServer(context, SECRET) as at:
        url = f"smtp://shop@127.0.0.1:{at.port}"
        made = opened(url=url, password="env:SMTP_PASSWORD", ca=str(certificate))
        made.do(intent())
        assert (len(at.mails), at.logins) == (1, ["shop"])
        monkeypatch.setenv("SMTP_PASSWORD", f"{SECRET}-wrong")
        made = opened(url=url, password="env:SMTP_PASSWORD", ca=str(certificate))
        with pytest.raises(Unavailable) as refused:
            made.do(intent())
        with pytest.raises(Unavailable, match=r"(?i)certificate"):
            opened(url=url, password="env:SMTP_PASSWORD", ca=str(certified(tmp_path, "other.example"))).do(intent())
    assert SECRET not in repr(refused.value) + repr(made) + made.called


@pytest.mark.parametrize(
    "given",
    [
        {"url": f"smtp://shop:{SECRET}@mail.example"},
        {"url": "http://mail.example"},
        {"url": "smtp://"},
        {"url": "smtp://mail.example:x"},
        {"password": SECRET},
        {"password": "env:SMTP_PASSWORD"},  # and no user
        {"to": []},
        {"to": "a@b.example\r\nBcc: c@d.example"},
        {"ca": "/nowhere.pem"},
    ],
)
def test_what_cannot_be_used_is_refused_and_no_secret_repeated(at: MailServer, opened: Opened, given: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as refused:
        opened(**given)
    assert SECRET not in str(refused.value)


def test_a_template_that_names_no_column_is_refused() -> None:
    made = email("smtp://mail.example", sender="a@b.example", to="{nobody}", subject="", body="")
    with pytest.raises(BadInput, match="to of the mail names a column that is not there: nobody"):
        made.check(SinkSpec("shop", "alerts", Schema.of("id long"), ()))
