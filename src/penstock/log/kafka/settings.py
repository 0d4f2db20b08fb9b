"""How a Kafka broker is reached: addresses, and an allow-list of options. Secrets are named, never written.

    kafka://broker-1:9092,broker-2:9092?security=sasl_tls&ca=/etc/kafka/ca.pem&sasl=SCRAM-SHA-512&user=shop&password=env:KAFKA_PASSWORD

Options may also stand in a TOML file, `?settings=/etc/penstock/kafka.toml`. Nothing that names a class, a plugin, a command or a
place to fetch code or tokens from is on the list.
"""

import re
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from penstock.errors import BadInput
from penstock.log.kafka.secrets import check_private, check_reference, secret

SCHEME = "kafka"
PATIENCE = 60.0
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", re.ASCII)
_PREFIX = re.compile(r"[a-zA-Z0-9._-]{0,40}", re.ASCII)
_PRINTABLE = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")
_LOOPBACK = re.compile(r"(127\.[0-9.]+|localhost|\[::1\]):\d+", re.ASCII)
_PROTOCOLS = {"plaintext": "plaintext", "tls": "ssl", "sasl_tls": "sasl_ssl", "sasl_plaintext": "sasl_plaintext"}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Ours -> the client's. All others are refused.
_CLIENT = {
    "security": "security.protocol",
    "ca": "ssl.ca.location",
    "cert": "ssl.certificate.location",
    "key": "ssl.key.location",
    "key_password": "ssl.key.password",
    "sasl": "sasl.mechanism",
    "user": "sasl.username",
    "password": "sasl.password",
    "client_id": "client.id",
}
_OURS = ("prefix", "replication", "transaction_timeout", "registry", "registry_user", "registry_password", "registry_ca")
_FILES = ("ca", "cert", "key", "registry_ca")
_SECRETS = ("key_password", "password", "registry_password")


@dataclass(frozen=True)
class KafkaSettings:
    """Where the broker is and how it is spoken to. Comparable, picklable, and without a secret in it."""

    servers: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()
    patience: float = PATIENCE  # seconds without an answer after which the broker counts as away

    @classmethod
    def of(cls, url: str) -> "KafkaSettings":
        """What a `kafka://` URL says; BadInput, naming the option, for everything that is not on the list."""
        parts = urlsplit(url)
        if parts.scheme != SCHEME or not parts.netloc or parts.fragment:
            raise BadInput("that is not an address of a Kafka log", hint="write it like kafka://host:9092")
        if "@" in parts.netloc:
            raise BadInput("a kafka:// address takes no user and password", hint="write ?user=NAME&password=env:VARIABLE")
        if parts.path not in ("", "/"):
            raise BadInput(f"a kafka:// address has no path; found {parts.path!r}", hint="a name space for topics is ?prefix=NAME.")
        try:
            given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
        except ValueError as wrong:
            raise BadInput("the options of the kafka:// address cannot be read", str(wrong)) from wrong
        names = [name for name, _ in given]
        if len(set(names)) < len(names):
            raise BadInput(f"the kafka:// address gives {max(names, key=names.count)} twice")
        options = dict(given)
        file = options.pop("settings", None)
        if file is not None:
            options = _from_file(file) | options
        return cls(tuple(map(_address, parts.netloc.split(","))), tuple(sorted(_checked(options).items())))

    def __repr__(self) -> str:
        shown = "&".join(f"{name}={value}" for name, value in self.options if name not in _SECRETS)
        return f"kafka://{','.join(self.servers)}" + (f"?{shown}" if shown else "")

    __str__ = __repr__

    def get(self, name: str) -> str | None:
        return dict(self.options).get(name)

    @property
    def prefix(self) -> str:
        """Stands before the name of every topic on the broker: a name space."""
        return self.get("prefix") or ""

    @property
    def replication(self) -> int:
        """Copies of each partition of topics made here; -1: as many as the broker is set to."""
        return int(self.get("replication") or -1)

    @property
    def transaction_timeout(self) -> int:
        """Milliseconds after which the broker gives up a transaction whose producer is silent."""
        return int(self.get("transaction_timeout") or 20) * 1000

    @property
    def connection(self) -> "KafkaSettings":
        """What a client of the broker is opened with: programs with other names for their topics share it."""
        return KafkaSettings(self.servers, tuple((name, value) for name, value in self.options if name in _CLIENT))

    def with_options(self, **options: str) -> "KafkaSettings":
        return replace(self, options=tuple(sorted(_checked(dict(self.options) | options).items())))

    def client(self, **more: Any) -> dict[str, Any]:
        """The client's own options, secrets filled in: for the client alone, never to be shown or stored."""
        found: dict[str, Any] = {"bootstrap.servers": ",".join(self.servers), "log_level": 2, "reconnect.backoff.max.ms": 1_000}
        for name, value in self.options:
            if name in _CLIENT:
                value = secret(value, name) if name in _SECRETS else value
                if name == "key":
                    check_private(Path(value), name)
                found[_CLIENT[name]] = _PROTOCOLS[value] if name == "security" else value
        return found | more

    def warn_of_plain_text(self) -> None:
        """Says, once per place in a program, that records and passwords travel in the open."""
        if (self.get("security") or "plaintext") in ("tls", "sasl_tls"):
            return
        open_ = [server for server in self.servers if not _LOOPBACK.fullmatch(server)]
        if open_:
            warnings.warn(f"records go to {open_[0]} unencrypted; say ?security=tls or sasl_tls", stacklevel=3)


def _address(text: str) -> str:
    found = _ADDRESS.fullmatch(text)
    if not found or not 0 < int(found[2]) < 65536:
        raise BadInput(f"{text!a} is not an address of a Kafka broker", hint="write host:port, several with commas between them")
    return text


def _from_file(name: str) -> dict[str, str]:
    path = Path(_path("settings", name))
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, ValueError) as wrong:
        raise BadInput(f"the settings file {name} cannot be read", str(wrong)) from wrong
    for key, value in found.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise BadInput(f"the settings file {name} gives {key!a} something that is neither text nor a number")
    return {key: str(value) for key, value in found.items()}


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    for name, value in options.items():
        if name not in _CLIENT and name not in _OURS:
            raise BadInput(
                f"{name!a} is no option of a Kafka log",
                f"there are {', '.join(sorted([*_CLIENT, *_OURS, 'settings']))}",
                hint="other settings of clients, and names of classes, plugins or token services, are not taken",
            )
        if not _PRINTABLE.fullmatch(value):
            raise BadInput(f"the option {name} of the Kafka log has a value that cannot be used")
        _check(name, value)
    _check_together(options)
    return dict(options)


def _check(name: str, value: str) -> None:
    if name in _SECRETS:
        check_reference(name, value)
    elif name in _FILES:
        _path(name, value)
    elif name == "security" and value not in _PROTOCOLS:
        raise BadInput(f"security={value} is not known", hint=f"choose {', '.join(_PROTOCOLS)}")
    elif name == "sasl" and value not in _MECHANISMS:
        raise BadInput(f"sasl={value} is not on the list", hint=f"choose {', '.join(_MECHANISMS)}")
    elif name == "prefix" and (not _PREFIX.fullmatch(value) or value.startswith((".", "_penstock", "__"))):
        raise BadInput(f"{value!a} cannot be a prefix of topic names", hint="use up to 40 letters, digits, '.', '_' and '-'")
    elif name in ("replication", "transaction_timeout") and not (value.isascii() and value.isdecimal() and 0 < int(value) < 900):
        raise BadInput(f"{name}={value} is not a valid number", hint="replication: copies; transaction_timeout: seconds")
    elif name == "registry":
        _check_registry(value)


def _check_together(options: Mapping[str, str]) -> None:
    sasl = options.get("security", "").startswith("sasl")
    if sasl and not {"sasl", "user", "password"} <= set(options):
        raise BadInput("security with sasl needs sasl=, user= and password=")
    if not sasl and {"sasl", "user", "password"} & set(options):
        raise BadInput("user and password are used with security=sasl_tls only", hint="add security=sasl_tls")


def _check_registry(value: str) -> None:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise BadInput("registry= must be an http or https address without user, password and query")


def _path(name: str, value: str) -> str:
    """An absolute path of a file, and nothing that some library may take for more than that."""
    if not value.startswith("/") or value.startswith("//") or ":" in value:
        raise BadInput(f"{name}={value!a} is no absolute path of a file", hint=f"write {name}=/etc/kafka/NAME")
    return value
