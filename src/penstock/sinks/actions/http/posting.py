"""Posts bodies over connections that stay open, each to the one address that was checked for its host."""

import datetime as dt
import ssl
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInput, SinkError, install
from penstock.sinks.actions.http.addresses import Endpoint, Hosts, Resolve, resolve
from penstock.sinks.actions.port import NotDone, Refused, Unavailable

if TYPE_CHECKING:
    import urllib3

LONGEST_ANSWER = 64 << 10  # bytes of an answer that are read; a connection with more is closed
_SHOWN = 200  # characters of an answer in a reason
_POOLS = 64  # hosts whose connections are kept
_AWAY = {408, 425, 429, 502, 503, 504}


@dataclass(frozen=True)
class Answer:
    status: int
    retry_after: str | None
    text: str


class Poster:
    """Safe from several threads. Follows no redirect and asks no proxy; certificates are verified."""

    def __init__(self, hosts: Hosts, timeout: timedelta, at_once: int, ca: str | None = None, resolve: Resolve = resolve) -> None:
        self._hosts, self._timeout, self._at_once, self._resolve = hosts, timeout.total_seconds(), at_once, resolve
        self._tls = _tls(ca)
        self._pools: OrderedDict[tuple[str, str, int], Any] = OrderedDict()
        self._guard = threading.Lock()
        self._urllib3 = _library()

    def post(self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str]) -> Answer:
        """What the receiver answers; Unavailable if it does not, and then its name is looked up anew for the next try."""
        pool = self._pool(endpoint)
        try:
            response = pool.urlopen(
                "POST",
                endpoint.path,
                body,
                {**headers, "Host": str(endpoint)},
                redirect=False,
                retries=False,
                preload_content=False,
            )
            return self._answer(response)
        except self._urllib3.exceptions.HTTPError as error:
            self._forget(endpoint, pool)
            raise Unavailable(f"{endpoint} does not answer: {_said(error)}") from error

    def close(self) -> None:
        with self._guard:
            pools = list(self._pools.values())
            self._pools.clear()
        for pool in pools:
            pool.close()

    def _pool(self, endpoint: Endpoint) -> "urllib3.HTTPConnectionPool":
        name = (endpoint.scheme, endpoint.host, endpoint.port)
        with self._guard:
            if name in self._pools:
                self._pools.move_to_end(name)
            else:
                self._pools[name] = self._connected(endpoint)
                if len(self._pools) > _POOLS:
                    self._pools.popitem(last=False)[1].close()
            found: urllib3.HTTPConnectionPool = self._pools[name]
            return found

    def _connected(self, endpoint: Endpoint) -> "urllib3.HTTPConnectionPool":
        """Connections to the address, under the host's name in TLS and in the request."""
        address = self._hosts.address(endpoint, self._resolve)
        kept: dict[str, Any] = {"maxsize": self._at_once, "timeout": self._urllib3.Timeout(total=self._timeout)}
        if endpoint.scheme == "http":
            plain: urllib3.HTTPConnectionPool = self._urllib3.HTTPConnectionPool(address, endpoint.port, **kept)
            return plain
        kept |= {"ssl_context": self._tls, "server_hostname": endpoint.host, "assert_hostname": endpoint.host}
        tls: urllib3.HTTPConnectionPool = self._urllib3.HTTPSConnectionPool(address, endpoint.port, **kept)
        return tls

    def _forget(self, endpoint: Endpoint, pool: Any) -> None:
        name = (endpoint.scheme, endpoint.host, endpoint.port)
        with self._guard:
            if self._pools.get(name) is pool:
                del self._pools[name]

    def _answer(self, response: Any) -> Answer:
        body: bytes = response.read(LONGEST_ANSWER + 1, decode_content=False)
        if len(body) > LONGEST_ANSWER:
            response.close()
        response.release_conn()
        text = ascii(body[:_SHOWN].decode("utf-8", "replace"))[1:-1]
        return Answer(response.status, response.headers.get("Retry-After"), text)


def judge(answer: Answer, endpoint: Endpoint, now: int) -> None:
    """Returns if the receiver has taken it; else says whether another try may help. now: microseconds since 1970."""
    status = answer.status
    if 200 <= status < 300:
        return
    said = f"{endpoint} answers {status}" + (f": {answer.text}" if answer.text else "")
    if status in _AWAY:
        raise Unavailable(said, _after(answer.retry_after, now))
    if status >= 500:
        raise NotDone(said, _after(answer.retry_after, now))
    if 300 <= status < 400:
        raise Refused(f"{endpoint} answers {status}: redirects are not followed")
    raise Refused(said)


def _after(given: str | None, now: int) -> timedelta | None:
    """Retry-After: seconds, or a date; None if it says nothing that can be read."""
    if given is None:
        return None
    if given.strip().isdecimal():
        return timedelta(seconds=min(int(given), 10**8))
    try:
        date = parsedate_to_datetime(given)
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=dt.UTC)
    return max(aware - dt.datetime.fromtimestamp(now / 1e6, dt.UTC), timedelta())


def _said(error: BaseException) -> str:
    """What went wrong, without the names of objects: the innermost reason that says something."""
    reason = getattr(error, "reason", None)
    inner = reason if isinstance(reason, BaseException) else error.__cause__ or error
    while isinstance(inner.__cause__, OSError):
        inner = inner.__cause__
    said = getattr(inner, "strerror", None) or str(inner).rpartition("object at")[2].partition(">: ")[2] or str(inner)
    return f"{type(inner).__name__}: {said}"


def _tls(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"the certificates in {ca} cannot be read: {error}") from error


def _library() -> Any:
    try:
        import urllib3
    except ImportError as error:
        raise SinkError("the HTTP client is not installed", hint=install("urllib3")) from error
    return urllib3
