"""The protocol of Redis and Valkey: commands are sent as bytes, many at a time, and replies read in their order."""

import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.errors import BadInput

PORT = 6379
CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 120.0
_SCHEMES = {"redis": False, "valkey": False, "rediss": True, "valkeys": True, "unix": False}  # whether it is TLS
_OPTIONS = ("db", "ca", "cert", "key")  # files of TLS beside the number of the database
_BUFFER = 1 << 18

Reply = Any  # bytes, int, None, a list of replies, or a ReplyError
Bytes = bytes | memoryview


class ReplyError(Exception):
    """What the server says in place of a result: `WRONGTYPE Operation against a key …`"""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


@dataclass(frozen=True)
class Address:
    """Where a server is: redis://user@host:6379/0, rediss://host/0?ca=/path with TLS, unix:///path?db=0."""

    host: str
    port: int
    path: str | None  # of a Unix socket
    user: str | None
    database: int
    tls: bool
    ca: str | None
    cert: str | None
    key: str | None

    @classmethod
    def of(cls, url: str) -> "Address":
        try:
            parts, hint = urlsplit(url), "redis://user@host:6379/0, rediss:// for TLS, or unix:///path/to/socket?db=0"
            options = dict(parse_qsl(parts.query, keep_blank_values=True))
            local = parts.scheme == "unix"
            database = options.pop("db", "") or ("" if local else parts.path.strip("/")) or "0"
            if parts.scheme not in _SCHEMES or not database.isdecimal() or (local and not parts.path):
                raise ValueError
            port = parts.port or PORT
        except ValueError:
            raise BadInput("the URL of a Redis cannot be read", hint=hint) from None
        if unknown := options.keys() - set(_OPTIONS):
            raise BadInput(
                f"the URL of a Redis has unknown options: {', '.join(sorted(unknown))}", hint=f"there are: {', '.join(_OPTIONS)}"
            )
        files = (options.get(name) for name in _OPTIONS[1:])
        user = unquote(parts.username) if parts.username else None
        path = unquote(parts.path) if local else None
        return cls(parts.hostname or "localhost", port, path, user, int(database), _SCHEMES[parts.scheme], *files)


class Connection:
    """One connection. OSError where it breaks or nobody answers in time; it is of no use then. Client libraries give each reply to
    the caller by itself, which takes longer than all the rest where an epoch has two for every row."""

    def __init__(self, address: Address, password: str | None = None) -> None:
        self._socket = _connected(address)
        self._file = self._socket.makefile("rb", _BUFFER)
        try:
            if password is not None:
                self.ask("AUTH", *([address.user] if address.user else []), password)
            if address.database:
                self.ask("SELECT", address.database)
        except BaseException:
            self.close()
            raise

    def ask(self, *words: str | bytes | int) -> Reply:
        """What the server says to one command; a ReplyError is raised."""
        self.send(command(*words))
        found = self.reply()
        if isinstance(found, ReplyError):
            raise found
        return found

    def send(self, data: Bytes) -> None:
        """Commands, whole or in parts."""
        self._socket.sendall(data)

    def reply(self) -> Reply:
        """The next one; a ReplyError is returned."""
        line = self._file.readline()
        kind, rest = line[:1], line[1:-2]
        if line[-2:] != b"\r\n":
            raise ConnectionError("the server has closed the connection")
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"-":
            return ReplyError(rest.decode(errors="replace"))
        count = int(rest) if kind in (b"$", b"*") else None
        if count is None:
            raise ConnectionError(f"this is no reply of a Redis: {line[:40]!r}")
        if count < 0:
            return None
        return [self.reply() for _ in range(count)] if kind == b"*" else self._bulk(count)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()
            self._file.close()

    def _bulk(self, count: int) -> bytes:
        data: bytes = self._file.read(count + 2)
        if len(data) < count + 2:
            raise ConnectionError("the server has closed the connection")
        return data[:-2]


def command(*words: str | bytes | int) -> bytes:
    """A command as it is sent."""
    return head(len(words)) + b"".join(map(bulk, words))


def head(words: int) -> bytes:
    """How a command of so many words begins."""
    return b"*%d\r\n" % words


def bulk(word: str | bytes | int) -> bytes:
    data = word if isinstance(word, bytes) else str(word).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def pairs(reply: Iterable[bytes]) -> dict[str, bytes]:
    """A hash, as the server tells it: names and values in turn."""
    words = iter(reply)
    return {name.decode(): value for name, value in zip(words, words, strict=True)}


def _connected(address: Address) -> socket.socket:
    if address.path is not None:
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        plain.settimeout(CONNECT_SECONDS)
        plain.connect(address.path)
    else:
        plain = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if address.tls:
        plain = _encrypted(plain, address)
    plain.settimeout(ANSWER_SECONDS)
    return plain


def _encrypted(plain: socket.socket, address: Address) -> ssl.SSLSocket:
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.cert:
            context.load_cert_chain(address.cert, address.key)
        return context.wrap_socket(plain, server_hostname=address.host)
    except BaseException:
        plain.close()
        raise
