"""Where a store is, without what must not be shown; and its password, by reference."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from penstock.errors import BadInput
from penstock.log.kafka.secrets import check_reference, secret

SECRET = re.compile(r"password|passwd|secret|token", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """As people are told of it: PostgreSQL db.example:5432/shop."""

    kind: str
    address: str

    @classmethod
    def of(cls, url: str, kind: str, port: int | None = None) -> "Place":
        """Refuses a URL with a password, and does not repeat it."""
        try:
            parts = urlsplit(url)
            hosts = parts.netloc.rpartition("@")[2]
            shown = hosts if parts.port or "," in hosts or not port or not hosts else f"{hosts}:{port}"
        except ValueError:
            raise BadInput(f"the URL of a {kind} cannot be read") from None
        if parts.password is not None or any(SECRET.search(name) for name, _ in parse_qsl(parts.query)):
            raise BadInput(
                f"the URL of a {kind} has a password, which would be stored and shown with the flow",
                "it was not used",
                hint='leave it out and name where it is: password="env:NAME", or password="file:/path"',
            )
        return cls(kind, f"{shown}{parts.path}".rstrip("/"))

    def __str__(self) -> str:
        return f"{self.kind} {self.address}".rstrip()


@dataclass(frozen=True)
class Password:
    """`env:NAME` or `file:/path`; None: the client library looks in its usual places."""

    reference: str | None
    place: Place

    def __post_init__(self) -> None:
        if self.reference is not None:
            check_reference("password", self.reference)

    @property
    def absent(self) -> bool:
        return self.reference is None

    def read(self) -> str | None:
        return None if self.reference is None else secret(self.reference, f"the password of {self.place}")

    def hidden(self, text: str) -> str:
        """A text of the client library or the server, in which the password would be shown as stars."""
        found = self.read() if self.reference else None
        return text.replace(found, "***") if found else text
