"""How a PostgreSQL is reached: what its URL says, its password by reference, and the session that is set up there."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.errors import BadInput, SinkError, install
from penstock.sinks.stores.places import Password, Place

if TYPE_CHECKING:
    import psycopg

    PostgresConnection = psycopg.Connection[tuple[Any, ...]]

PORT = 5432
CONNECT_SECONDS = 10
_SESSION = "-c TimeZone=UTC -c DateStyle=ISO -c client_min_messages=warning"


@dataclass(frozen=True)
class PostgresDatabase:
    """A database, and who we are there."""

    url: str = field(repr=False)
    password: str | None = None

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("postgresql", "postgres"):  # words such as password=… would be shown
            raise BadInput("the URL of a PostgreSQL begins with postgresql://", hint="postgresql://user@host:5432/database")
        assert self.secret

    @property
    def place(self) -> Place:
        return Place.of(self.url, "PostgreSQL", PORT)

    @property
    def secret(self) -> Password:
        return Password(self.password, self.place)

    def connect(self, program: str, defaults: str = "", session: str = "", autocommit: bool = False) -> "PostgresConnection":
        """A new connection. program: who we are, for those who look at the server. defaults: settings of the session where the URL
        has none; session: settings whatever it has."""
        psycopg = client()
        given = psycopg.conninfo.conninfo_to_dict(self.url)
        mine: dict[str, Any] = {"client_encoding": "UTF8", "application_name": program[:63]}
        mine |= {"options": " ".join(filter(None, [defaults, given.get("options"), _SESSION, session]))}
        mine |= {} if "connect_timeout" in given else {"connect_timeout": CONNECT_SECONDS}
        mine |= {} if self.secret.absent else {"password": self.secret.read()}
        made: PostgresConnection = psycopg.connect(self.url, autocommit=autocommit, **mine)
        return made


def client() -> Any:
    try:
        import psycopg
        import psycopg.errors
    except ImportError as error:
        raise SinkError("PostgreSQL's client is not installed", hint=install("'psycopg[binary]'")) from error
    return psycopg
