"""Where a Redis or Valkey is, and the way there: TCP, TLS, a socket in the file system."""

import socket
import ssl
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.errors import BadInput

PORT = 6379
CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 120.0
_SCHEMES = {"redis": False, "valkey": False, "rediss": True, "valkeys": True, "unix": False}  # whether it is TLS
_OPTIONS = ("db", "ca", "cert", "key")  # files of TLS beside the number of the database


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


def connected(address: Address) -> socket.socket:
    """OSError where nobody is there, or somebody else."""
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
