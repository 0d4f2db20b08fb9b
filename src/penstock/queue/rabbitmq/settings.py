"""How a RabbitMQ is reached: addresses, and an allow-list of options. Secrets are named, never written.

amqp://shop@rabbit-1:5672,rabbit-2:5672/sales?password=env:RABBIT_PASSWORD
amqps://shop@rabbit-1/sales?password=file:/run/secrets/rabbit&ca=/etc/ssl/rabbit-ca.pem
"""

import re
import ssl
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.errors import BadInput
from penstock.log.kafka.secrets import check_reference, secret
from penstock.queue.rabbitmq.amqp.library import library

PORTS = {"amqp": 5672, "amqps": 5671}
HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?", re.ASCII)
_PREFIX = re.compile(r"[a-zA-Z0-9._-]{0,40}", re.ASCII)
_PRINTABLE = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")
_LOOPBACK = re.compile(r"127\.[0-9.]+|localhost|\[::1\]", re.ASCII)
_OPTIONS = ("password", "ca", "cert", "key", "key_password", "prefix", "queues", "heartbeat", "patience")
_SECRETS = ("password", "key_password")
_FILES = ("ca", "cert", "key")
_SECONDS = {"heartbeat": "10", "patience": "30"}
QUORUM, CLASSIC = "quorum", "classic"


@dataclass(frozen=True)
class RabbitSettings:
    """Where the broker is and how it is spoken to. Comparable, picklable, and without a secret in it."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    user: str
    vhost: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, url: str) -> "RabbitSettings":
        """What an `amqp://` or `amqps://` URL says; BadInput, naming the option, for everything that is not on the list."""
        try:
            parts = urlsplit(url)
        except ValueError:  # e.g. of a bracket that is not closed
            parts = urlsplit("")
        if parts.scheme not in PORTS or not parts.netloc or parts.fragment:
            raise BadInput("that is no address of a RabbitMQ", hint="write it like amqp://user@host:5672/vhost?password=env:NAME")
        user, _, hosts = parts.netloc.rpartition("@")
        if ":" in user:
            raise BadInput("an amqp:// address takes no password", hint="write ?password=env:NAME, a variable of the environment")
        try:
            given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
        except ValueError as wrong:
            raise BadInput("the options of the amqp:// address cannot be read", str(wrong)) from wrong
        options = _checked(given)
        if user and "password" not in options:
            raise BadInput(f"user {unquote(user)!a} needs a password", hint="add ?password=env:NAME or ?password=file:/path")
        found = tuple(_address(text, PORTS[parts.scheme]) for text in hosts.split(","))
        return cls(parts.scheme, found, unquote(user), unquote(parts.path[1:]) or "/", tuple(sorted(options.items())))

    def __repr__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        shown = "&".join(f"{name}={value}" for name, value in self.options if name not in _SECRETS)
        vhost = "" if self.vhost == "/" else f"/{self.vhost}"
        return f"{self.scheme}://{user}{self.where}{vhost}" + (f"?{shown}" if shown else "")

    __str__ = __repr__

    @property
    def where(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.hosts)

    def get(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)

    @property
    def prefix(self) -> str:
        """Stands before every name on the broker: a name space."""
        return self.get("prefix")

    @property
    def kind(self) -> str:
        """What queues are made of: replicated ones that count deliveries, or single ones that know priorities."""
        return self.get("queues", QUORUM)

    @property
    def patience(self) -> float:
        """Seconds that a broker may be unreachable before a call fails."""
        return float(self.get("patience", _SECONDS["patience"]))

    def parameters(self) -> list[Any]:
        """The client's own, secrets filled in: for the client alone, never to be shown or stored."""
        self._warn_of_plain_text()
        pika = library()
        password = secret(self.get("password"), "password") if self.user else "guest"
        common: dict[str, Any] = {
            "virtual_host": self.vhost,
            "credentials": pika.PlainCredentials(self.user or "guest", password, erase_on_connect=False),
            "heartbeat": int(self.get("heartbeat", _SECONDS["heartbeat"])),
            "socket_timeout": 5.0,
            "stack_timeout": 10.0,
            "client_properties": {"product": "penstock"},
        }
        context = self._context()
        return [
            pika.ConnectionParameters(host=host.strip("[]"), port=port, ssl_options=_tls(pika, context, host), **common)
            for host, port in self.hosts
        ]

    def _context(self) -> ssl.SSLContext | None:
        if self.scheme != "amqps":
            return None
        context = ssl.create_default_context(cafile=self.get("ca") or None)
        if self.get("cert"):
            password = secret(self.get("key_password"), "key_password") if self.get("key_password") else None
            context.load_cert_chain(self.get("cert"), self.get("key") or None, password)
        return context

    def _warn_of_plain_text(self) -> None:
        """Says, once per place in a program, that messages and passwords travel in the open."""
        open_ = [host for host, _ in self.hosts if not _LOOPBACK.fullmatch(host)]
        if self.scheme != "amqps" and open_:
            warnings.warn(f"messages and passwords go to {open_[0]} unencrypted; use amqps://", stacklevel=3)


def _tls(pika: Any, context: ssl.SSLContext | None, host: str) -> Any:
    return pika.SSLOptions(context, host.strip("[]")) if context else None


def _address(text: str, port: int) -> tuple[str, int]:
    found = HOST.fullmatch(text)
    if not found or not 0 < int(found[2] or port) < 65536:
        raise BadInput(f"{text!a} is no address of a RabbitMQ", hint="write host or host:port, several with commas between them")
    return found[1], int(found[2] or port)


def _checked(given: list[tuple[str, str]]) -> Mapping[str, str]:
    options = dict(given)
    if len(options) < len(given):
        names = [name for name, _ in given]
        raise BadInput(f"the amqp:// address gives {max(names, key=names.count)} twice")
    for name, value in given:
        if name not in _OPTIONS:
            raise BadInput(f"{name!a} is no option of a RabbitMQ", f"there are {', '.join(sorted(_OPTIONS))}")
        if not _PRINTABLE.fullmatch(value):
            raise BadInput(f"the option {name} of the RabbitMQ has a value that cannot be used")
        _check(name, value)
    return options


def _check(name: str, value: str) -> None:
    if name in _SECRETS:
        check_reference(name, value)
    elif name in _FILES and (not value.startswith("/") or value.startswith("//")):
        raise BadInput(f"{name}={value!a} is no absolute path of a file", hint=f"write {name}=/etc/ssl/NAME.pem")
    elif name == "queues" and value not in (QUORUM, CLASSIC):
        raise BadInput(f"queues={value} is not known", hint=f"choose {QUORUM} (replicated) or {CLASSIC} (with priorities)")
    elif name == "prefix" and (not _PREFIX.fullmatch(value) or value.startswith(("amq.", "penstock."))):
        raise BadInput(f"{value!a} cannot stand before names", hint="use up to 40 letters, digits, '.', '_' and '-'")
    elif name in _SECONDS and not (value.isascii() and value.isdecimal() and 0 < int(value) < 3600):
        raise BadInput(f"{name}={value} is no number of seconds that can be used", hint="1 to 3599")
