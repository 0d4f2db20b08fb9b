"""Mails: each row becomes one, sent over SMTP with a Message-ID made from its idempotency key."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Unpack
from urllib.parse import SplitResult, urlsplit

from penstock.core.time import duration
from penstock.errors import BadInput
from penstock.sinks.actions.definition import ActionDefinition
from penstock.sinks.actions.outbox.sending import Sending, SendingOptions
from penstock.sinks.actions.templates import check_template
from penstock.sinks.stores.places import Password, Place

if TYPE_CHECKING:
    from penstock.sinks.actions.smtp import Mail
    from penstock.sinks.port import SinkSpec

_SCHEMES = {"smtp": 587, "smtps": 465}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class EmailDefinition(ActionDefinition):
    """`stream.sink(email(…))`"""

    url: str = field(repr=False)
    sender: str
    to: tuple[str, ...]
    subject: str
    body: str
    html: str | None = None
    password: str | None = None
    ca: str | None = None
    timeout: timedelta = timedelta(seconds=20)

    kind: ClassVar[str] = "email"

    @property
    def target(self) -> str:
        return (urlsplit(self.url).hostname or "").replace(":", "-")

    def check(self, spec: "SinkSpec") -> None:
        for what, template in (("subject", self.subject), ("body", self.body), ("html", self.html), ("to", list(self.to))):
            check_template(template, spec.schema.names, f"{what} of the mail")

    def action(self) -> "Mail":
        from penstock.sinks.actions.smtp import Mail

        return Mail(self)


def email(
    url: str,
    *,
    sender: str,
    to: str | Iterable[str],
    subject: str,
    body: str,
    html: str | None = None,
    password: str | None = None,
    ca: str | None = None,
    timeout: str | timedelta = "20 seconds",
    **sending: Unpack[SendingOptions],
) -> EmailDefinition:
    """Sends each row as a mail: `alerts.sink(email("smtp://alerts@mail.example.com", sender="alerts@example.com", to="{email}",
    subject="{n} logins", body="…", password="env:SMTP_PASSWORD"))`.

    `to`, `subject`, `body` and `html` may have columns in braces; each of `to` is one address. `smtps://` is TLS from the first
    byte on, `smtp://` begins with STARTTLS, except to this machine. The user is in the URL, `password` names where the password is.
    `ca`: a file with the certificate authority of the server. docs/sinks/actions.md has `retries`, `rate` and what else every
    action takes."""
    parts = server_of(url)
    Password(password, Place.of(url, "SMTP server", port_of(parts)))
    if password is not None and parts.username is None:
        raise BadInput(
            "an SMTP server that is given a password needs a user", hint="name it in the URL: smtp://user@mail.example.com"
        )
    receivers = (to,) if isinstance(to, str) else tuple(to)
    if not receivers or not sender or any(not text.isprintable() for text in (sender, *receivers)):
        raise BadInput("a mail needs a sender and somebody it goes to", hint='sender="alerts@example.com", to="{email}"')
    waits = duration(timeout, "timeout")
    return EmailDefinition(url, sender, receivers, subject, body, html, password, ca, waits, sending=Sending.of(sending))


def server_of(url: str) -> SplitResult:
    """The parts of the URL of an SMTP server; BadInput, which does not repeat it, if it is none."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0 and not parts.path.strip("/")
    except ValueError:
        valid = False
    if not valid:
        raise BadInput(
            "an SMTP server needs a URL of smtp or smtps with a host", hint="write it like smtp://user@mail.example.com:587"
        )
    return parts


def port_of(parts: SplitResult) -> int:
    return parts.port or _SCHEMES[parts.scheme]
