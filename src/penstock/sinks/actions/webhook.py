"""A webhook: each row is posted to a URL, with its idempotency key and a signature."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from penstock.core.time import duration
from penstock.errors import BadInput
from penstock.log.kafka.secrets import check_reference
from penstock.sinks.actions.definition import ActionDefinition
from penstock.sinks.actions.http.addresses import Endpoint, Hosts
from penstock.sinks.actions.outbox.sending import Sending, SendingOptions
from penstock.sinks.actions.templates import check_template

if TYPE_CHECKING:
    from penstock.sinks.actions.http.webhook import Webhook
    from penstock.sinks.port import SinkSpec

KEY_HEADER, SIGNATURE_HEADER = "Idempotency-Key", "Penstock-Signature"
_SECRET = re.compile(r"authorization|cookie|token|secret|password|api-?key", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9-]{1,100}", re.ASCII)
_OURS = {KEY_HEADER.lower(), SIGNATURE_HEADER.lower(), "host", "content-length", "transfer-encoding", "connection"}


def by_reference(given: str) -> bool:
    """Whether a text says where something is, rather than what it is."""
    return given.startswith(("env:", "file:"))


@dataclass(frozen=True)
class WebhookDefinition(ActionDefinition):
    """`stream.sink(webhook(…))`"""

    url: str = field(repr=False)
    hosts: Hosts
    sign: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    template: Any = field(default=None, hash=False)
    timeout: timedelta = timedelta(seconds=5)
    ca: str | None = None

    kind: ClassVar[str] = "webhook"

    @property
    def target(self) -> str:
        if by_reference(self.url):
            return re.sub(r"[^a-zA-Z0-9_-]+", "-", self.url.partition(":")[2]).strip("-").lower()
        return Endpoint.of(self.url).host.replace(":", "-")

    def check(self, spec: "SinkSpec") -> None:
        check_template(self.template, spec.schema.names, "template of the webhook")

    def action(self) -> "Webhook":
        from penstock.sinks.actions.http.webhook import Webhook

        return Webhook(self)


def webhook(
    url: str,
    *,
    hosts: Iterable[str] = (),
    sign: str | None = None,
    headers: Mapping[str, str] | None = None,
    template: str | Mapping[str, Any] | list[Any] | None = None,
    timeout: str | timedelta = "5 seconds",
    ca: str | None = None,
    **sending: Unpack[SendingOptions],
) -> WebhookDefinition:
    """Posts each row to a URL as JSON: `alerts.sink(webhook("https://hooks.example.com/alerts", sign="env:HOOK_SECRET"))`.

    A URL that holds a secret is given by reference: `webhook("env:SLACK_URL", hosts=["hooks.slack.com"])`. `hosts` names the hosts
    that may be called; without it the URL's own may be, if all of its addresses are public. `sign` names the secret of the
    signature. `headers` are sent along; those that hold secrets by reference. `template` replaces the body: a text, or an object
    whose texts have columns in braces. `ca`: a file with the certificate authority of the receiver. Needs the extra `actions`;
    docs/sinks/actions.md has `retries`, `rate` and what else every action takes."""
    allowed = Hosts.of(hosts)
    if by_reference(url):
        check_reference("url", url)
        if not allowed.named:
            raise BadInput("a URL that is given by reference needs the hosts it may name", hint='hosts=["hooks.example.com"]')
    else:
        allowed.check(Endpoint.of(url).host)
    if sign is not None:
        check_reference("sign", sign)
    kept, waits = tuple(_checked(headers or {})), duration(timeout, "timeout")
    return WebhookDefinition(url, allowed, sign, kept, template, waits, ca, sending=Sending.of(sending))


def _checked(headers: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or name.lower() in _OURS or not value.isprintable():
            raise BadInput(f"header {name!a} cannot be set")
        if by_reference(value):
            check_reference(f"header {name}", value)
        elif _SECRET.search(name):
            raise BadInput(f"header {name} may hold a secret", hint=f'name where it is: headers={{{name!r}: "env:NAME"}}')
        yield name, value
