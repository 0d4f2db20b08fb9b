"""Posts rows to one receiver."""

import orjson

from penstock.log.kafka.secrets import secret
from penstock.sinks.actions.http.addresses import Endpoint, Resolve, resolve
from penstock.sinks.actions.http.posting import Poster, judge
from penstock.sinks.actions.http.signing import signature
from penstock.sinks.actions.outbox.pace import Times
from penstock.sinks.actions.port import Intent
from penstock.sinks.actions.templates import rendered, values_of
from penstock.sinks.actions.webhook import KEY_HEADER, SIGNATURE_HEADER, WebhookDefinition, by_reference

_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"


class Webhook:
    """One receiver. Secrets are read when it is opened."""

    def __init__(self, definition: WebhookDefinition, resolve: Resolve = resolve, times: Times | None = None) -> None:
        self._definition, self._resolve, self._times = definition, resolve, times or Times()
        self.called = f"webhook {definition.target}"
        self._poster: Poster | None = None

    def open(self) -> None:
        self.close()
        d = self._definition
        url = secret(d.url, "the URL of a webhook") if by_reference(d.url) else d.url
        self._endpoint = Endpoint.of(url)
        d.hosts.check(self._endpoint.host)
        self._secret = secret(d.sign, "the signature of a webhook") if d.sign else None
        self._headers = {"User-Agent": "penstock", "Content-Type": _TEXT if isinstance(d.template, str) else _JSON}
        self._headers |= {name: secret(value, f"header {name}") if by_reference(value) else value for name, value in d.headers}
        self._poster = Poster(d.hosts, d.timeout, d.sending.at_once, d.ca, self._resolve)

    def do(self, intent: Intent) -> None:
        assert self._poster
        body, now = self._body(intent), self._times.wall()
        headers = {**self._headers, KEY_HEADER: intent.key}
        if self._secret:
            headers[SIGNATURE_HEADER] = signature(self._secret, body, now)
        judge(self._poster.post(self._endpoint, body, headers), self._endpoint, now)

    def close(self) -> None:
        if self._poster:
            self._poster.close()
            self._poster = None

    def _body(self, intent: Intent) -> bytes:
        template = self._definition.template
        if template is None:
            return intent.json
        found = rendered(template, values_of(intent))
        return found.encode() if isinstance(found, str) else orjson.dumps(found)
