"""Which hosts may be called, and at which address: a name is resolved once, and what was checked is what is connected to."""

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from penstock.errors import BadInput
from penstock.sinks.actions.port import Refused, Unavailable

Resolve = Callable[[str, int], Sequence[str]]
_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def resolve(host: str, port: int) -> list[str]:
    """The addresses that the machine knows for a host."""
    import socket

    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True)
class Endpoint:
    """Where a request goes. The path may hold a secret, and is not shown."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> "Endpoint":
        """Reads a URL; BadInput, which does not repeat it, if it is none that can be called."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise BadInput("the URL of a receiver cannot be read") from None
        if parts.scheme not in _PORTS or not parts.hostname or not url.isprintable() or " " in url:
            raise BadInput(
                "a receiver needs a URL of http or https with a host", hint="write it like https://hooks.example.com/orders"
            )
        if parts.username is not None or parts.password is not None:
            raise BadInput(
                "the URL of a receiver has a user or a password, which would be stored with the flow",
                hint='give them as a header: headers={"Authorization": "env:NAME"}',
            )
        return cls(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], _path(parts))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def _path(parts: SplitResult) -> str:
    return f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"


@dataclass(frozen=True)
class Hosts:
    """An allow-list. A host that is named may have any address; one that is not may be called if no list was given, and all of its
    addresses are public. `*.example.com` names all hosts below example.com."""

    named: tuple[str, ...]

    @classmethod
    def of(cls, given: Iterable[str]) -> "Hosts":
        if isinstance(given, str):
            raise BadInput("hosts is a list of names", hint=f"write hosts=[{given!r}]")
        return cls(tuple(host.lower().strip("[]") for host in given))

    def names(self, host: str) -> bool:
        return any(host == name or (name[:2] == "*." and host.endswith(name[1:])) for name in self.named)

    def check(self, host: str) -> None:
        """Refuses a host outside the list, if there is one."""
        if self.named and not self.names(host):
            raise BadInput(f"host {host} is not among those that may be called", hint=f"name it: hosts=[{host!r}]")

    def address(self, endpoint: Endpoint, resolve: Resolve) -> str:
        """The address to connect to; Refused if the host may not be called there. The name is looked up this one time."""
        if self.named and not self.names(endpoint.host):
            raise Refused(f"host {endpoint.host} is not among those that may be called")
        try:
            found = resolve(endpoint.host, endpoint.port)
        except OSError as error:
            raise Unavailable(f"host {endpoint.host} cannot be found: {error.strerror or error}") from error
        if not found:
            raise Unavailable(f"host {endpoint.host} has no address")
        inner = [] if self.names(endpoint.host) else [a for a in found if not public(a)]
        if inner:
            raise Refused(
                f"host {endpoint.host} has the address {inner[0]}, which is not public; name it in hosts= if it may be called"
            )
        return found[0]


def public(address: str) -> bool:
    """Whether an address is one of the open internet, however it is wrapped."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1]
        if found in _NAT64:
            inner = ipaddress.IPv4Address(found.packed[-4:])
        if inner is not None:
            return public(str(inner))
        if found.is_site_local:
            return False
    return found.is_global and not found.is_multicast and not found.is_unspecified
