"""Web Push: each row becomes a message to a browser, encrypted for its subscription."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack

from penstock.core.time import duration
from penstock.errors import BadInput
from penstock.log.kafka.secrets import check_reference
from penstock.sinks.actions.definition import ActionDefinition
from penstock.sinks.actions.http.addresses import Hosts
from penstock.sinks.actions.outbox.sending import Sending, SendingOptions
from penstock.sinks.actions.templates import check_template
from penstock.sinks.stores.arguments import one_of

if TYPE_CHECKING:
    from penstock.sinks.actions.http.webpush import WebPush
    from penstock.sinks.port import SinkSpec

Urgency = Literal["very-low", "low", "normal", "high"]
# Where browsers let themselves be reached.
SERVICES = (
    "fcm.googleapis.com",
    "updates.push.services.mozilla.com",
    "*.notify.windows.com",
    "web.push.apple.com",
    "*.push.apple.com",
)


@dataclass(frozen=True)
class PushDefinition(ActionDefinition):
    """`stream.sink(push(…))`"""

    vapid: str
    contact: str
    endpoint: str = "endpoint"
    p256dh: str = "p256dh"
    auth: str = "auth"
    payload: Any = field(default=None, hash=False)
    ttl: timedelta = timedelta(days=1)
    urgency: Urgency = "normal"
    hosts: Hosts = field(default_factory=lambda: Hosts.of(SERVICES))
    timeout: timedelta = timedelta(seconds=5)

    kind: ClassVar[str] = "push"

    @property
    def target(self) -> str:
        return self.endpoint

    def check(self, spec: "SinkSpec") -> None:
        check_template(self.payload, spec.schema.names, "payload of the push message")
        for what, name in (("endpoint", self.endpoint), ("p256dh", self.p256dh), ("auth", self.auth)):
            if name not in spec.schema.names:
                hint = f"name the column that holds it: {what}="
                raise BadInput(f"push needs a column {name!r} of the subscription", f"sink {spec.name}", hint=hint)

    def action(self) -> "WebPush":
        from penstock.sinks.actions.http.webpush import WebPush

        return WebPush(self)


def push(
    *,
    vapid: str,
    contact: str,
    endpoint: str = "endpoint",
    p256dh: str = "p256dh",
    auth: str = "auth",
    payload: str | Mapping[str, Any] | list[Any] | None = None,
    ttl: str | timedelta = "1 day",
    urgency: Urgency = "normal",
    hosts: Iterable[str] = SERVICES,
    timeout: str | timedelta = "5 seconds",
    **sending: Unpack[SendingOptions],
) -> PushDefinition:
    """Sends each row to a browser: `alerts.sink(push(vapid="file:/etc/shop/vapid.pem", contact="mailto:ops@example.com"))`.

    `endpoint`, `p256dh` and `auth` name the columns with the browser's subscription. `vapid` names the private key of the
    application, as PEM; `contact` is whom a push service writes to. `payload` is what the browser gets, a text or an object whose
    texts have columns in braces; left out, the row without its subscription. `ttl`: how long the service keeps it for a browser
    that is away. Rows name the hosts that are called, so only those of the known push services are; `hosts` replaces them. Needs
    the extra `actions`; docs/sinks/actions.md has `retries`, `rate` and what else every action takes."""
    check_reference("vapid", vapid)
    one_of("urgency", urgency, Urgency)
    allowed = Hosts.of(hosts)
    if not contact.startswith(("mailto:", "https:")) or not contact.isprintable():
        raise BadInput(f"contact cannot be {contact!a}", hint='write it like contact="mailto:ops@example.com"')
    if not allowed.named:
        raise BadInput("push needs the hosts of push services", hint="leave hosts= out for those that are known")
    lasts, waits = duration(ttl, "ttl"), duration(timeout, "timeout")
    named = (vapid, contact, endpoint, p256dh, auth, payload, lasts, urgency, allowed, waits)
    return PushDefinition(*named, sending=Sending.of(sending))
