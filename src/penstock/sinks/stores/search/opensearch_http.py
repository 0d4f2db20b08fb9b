"""Requests to an OpenSearch or Elasticsearch, and what their answers mean."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import orjson

from penstock.errors import BadInput, SinkError, SinkUnavailable, install
from penstock.sinks.stores.places import Password, Place

PORT = 9200
CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 120.0
_HINT = "http://host:9200, https://user@host:9200?ca=/path/to/ca.pem"
_HINTS = {
    401: 'look at the user in the URL, and at the password: password="env:NAME"',
    403: "the user needs to make, read and write the index, and penstock-marker",
}
_PASSING = (408, 429, 500, 502, 503, 504)  # statuses of a server that is busy, starting or short of something


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any


@dataclass(frozen=True)
class Address:
    root: str
    user: str | None
    ca: str | None

    @classmethod
    def of(cls, url: str) -> "Address":
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        if parts.scheme not in ("http", "https") or not parts.hostname or options.keys() - {"ca"}:
            raise BadInput("the URL of an OpenSearch cannot be read", hint=_HINT)
        host = parts.netloc.rpartition("@")[2] + ("" if parts.port else f":{PORT}")
        user = unquote(parts.username) if parts.username else None
        return cls(f"{parts.scheme}://{host}{parts.path.rstrip('/')}", user, options.get("ca"))


class Client:
    """SinkUnavailable where nobody answers, or the server says that it cannot now; SinkError where it says no."""

    def __init__(self, address: Address, password: Password, place: Place) -> None:
        self._address, self._password, self._place, self._urllib3 = address, password, place, _library()
        timeout = self._urllib3.Timeout(connect=CONNECT_SECONDS, read=ANSWER_SECONDS)
        self._http = self._urllib3.PoolManager(retries=False, timeout=timeout, ca_certs=address.ca)

    def ask(self, method: str, path: str, body: Any = None, allowed: tuple[int, ...] = ()) -> Answer:
        """allowed: statuses beside 2xx that the caller looks at."""
        data = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        try:
            answer = self._http.request(method, self._address.root + path, body=data, headers=self._headers(kind))
        except self._urllib3.exceptions.HTTPError as error:
            raise SinkUnavailable(f"{self._place} does not answer", self._password.hidden(str(error))) from error
        found = Answer(answer.status, _read(answer.data))
        if found.status // 100 == 2 or found.status in allowed:
            if isinstance(found.body, dict):
                return found
            raise SinkError(f"{self._place} is none: {method} {path} is answered by {self._said(found)!r}", hint=_HINT)
        kind_of_error = SinkUnavailable if found.status in _PASSING else SinkError
        refusal = f"{self._place} refuses {method} {path}: {found.status}"
        raise kind_of_error(refusal, self._said(found), hint=_HINTS.get(found.status))

    def _said(self, answer: Answer) -> str:
        return self._password.hidden(reason_of(answer.body))

    def close(self) -> None:
        self._http.clear()

    def _headers(self, kind: str) -> dict[str, str]:
        if self._address.user is None:
            return {"Content-Type": kind}
        secret = f"{self._address.user}:{self._password.read() or ''}"
        return {"Content-Type": kind, **self._urllib3.make_headers(basic_auth=secret)}


def reason_of(body: Any) -> str:
    """What an answer says is wrong, in one line."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return str(error)[:500]
    cause = error.get("caused_by") or {}
    reason = f"{error.get('type', 'error')}: {error.get('reason', '')}"
    return f"{reason} ({cause['reason']})"[:500] if cause.get("reason") else reason[:500]


def _read(data: bytes) -> Any:
    """JSON; a text in one line where it is none, as proxies and security plugins answer."""
    try:
        return orjson.loads(data or b"null")
    except ValueError:
        return " ".join(data[:1_000].decode(errors="replace").split())


def segment(name: str) -> str:
    """A name as part of a path."""
    return quote(name, safe="")


def _library() -> Any:
    try:
        import urllib3
    except ImportError as error:
        raise SinkError("the client of OpenSearch, urllib3, is not installed", hint=install("urllib3")) from error
    return urllib3
