"""How a MySQL or MariaDB is reached: what its URL says, the session that is set up there, and its errors in our words."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from penstock.errors import BadInput, SinkError, SinkUnavailable, install
from penstock.sinks.stores.places import Password, Place

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

    MysqlConnection = Connection[Cursor]

PORT = 3306
CONNECT_SECONDS = 10
LOCK_SECONDS = 10  # that we wait for a row which somebody else holds
_PATHS = ("ssl-ca", "ssl-cert", "ssl-key", "socket")
_SECONDS = ("connect-timeout", "read-timeout", "write-timeout")
_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
# Nothing is cut, rounded to a zero date or taken by another engine in silence; a backslash is a character as any other.
_SQL_MODE = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_BACKSLASH_ESCAPES"
# Errors that pass: no connections left, a shutdown, a full disk, a deadlock, a lock, a server that is read-only for now.
_PASSING = frozenset({1020, 1021, 1040, 1041, 1053, 1077, 1114, 1129, 1184, 1203, 1205, 1213, 1290, 1792, 1836, 1927, 4031})
# Errors of a row beside those that the client counts among data and integrity: values, checks, JSON, what a trigger refuses.
_OF_ROWS = frozenset({1366, 1644, 1690, 3140, 3819, 4025})


@dataclass(frozen=True)
class MysqlServer:
    """A server, and who we are there. kind: as people are told of it, MySQL or MariaDB."""

    kind: str
    url: str = field(repr=False)
    password: str | None = None

    def __post_init__(self) -> None:
        Password(self.password, self.place)
        if self._parts.scheme not in ("mysql", "mariadb"):
            raise BadInput(f"the URL of a {self.kind} begins with mysql:// or mariadb://", hint="mysql://user@host:3306/database")
        _checked(self.kind, self._options)

    @property
    def place(self) -> Place:
        return Place.of(self.url, self.kind, PORT)

    @property
    def database(self) -> str | None:
        return unquote(self._parts.path.strip("/")) or None

    def connect(self, program: str) -> "MysqlConnection":
        """A new connection that commits each statement by itself. program: who we are, for those who look at the server."""
        library, given, secret = client(), self._options, Password(self.password, self.place).read()
        seconds = {name.replace("-", "_"): float(given[name]) for name in _SECONDS if name in given}
        made: MysqlConnection = library.connect(
            host=self._parts.hostname,
            port=self._parts.port or PORT,
            user=unquote(self._parts.username) if self._parts.username else None,
            password=(secret or "").encode(),
            database=self.database,
            unix_socket=given.get("socket"),
            charset="utf8mb4",
            autocommit=True,
            program_name=program,
            **({"connect_timeout": CONNECT_SECONDS} | seconds),
            **_tls(given),
        )
        settings = f"sql_mode = '{_SQL_MODE}', time_zone = '+00:00', innodb_lock_wait_timeout = {LOCK_SECONDS}"
        made.query(f"SET SESSION {settings}, max_error_count = 65535, sql_notes = 1")
        made.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return made

    @contextmanager
    def translated(self, called: str, doing: str) -> Iterator[None]:
        """SinkUnavailable for what passes by itself, SinkError for anything else."""
        library = client()
        try:
            yield
        except library.MySQLError as error:
            code, text = _said(error)
            detail = Password(self.password, self.place).hidden(text)
            raise (SinkUnavailable if _passes(code) else SinkError)(
                f"{called} cannot {doing}", *([detail] if detail else []), *([f"error {code}"] if code else [])
            ) from error
        except RuntimeError as error:
            if "cryptography" not in str(error):
                raise
            raise SinkError(f"{called} cannot {doing}", str(error), hint=install("cryptography")) from error
        except OSError as error:  # a certificate that is not there, or is none
            raise SinkError(f"{called} cannot {doing}", str(error)) from error

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def _options(self) -> dict[str, str]:
        return dict(parse_qsl(self._parts.query, keep_blank_values=True))


def refuses_a_row(error: Exception) -> bool:
    """Whether the error says that a value does not fit, and not that something is wrong with the statement or the server."""
    library = client()
    return isinstance(error, library.DataError | library.IntegrityError) or _said(error)[0] in _OF_ROWS


def reason_of(error: Exception) -> str:
    return _said(error)[1]


def client() -> Any:
    try:
        import pymysql
    except ImportError as error:
        raise SinkError("MySQL's client is not installed", hint=install("PyMySQL")) from error
    return pymysql


def _said(error: Exception) -> tuple[int, str]:
    """The number of an error, 0 where there is none, and its text."""
    code, *rest = error.args or (0,)
    return (code, str(rest[0]) if rest else "") if isinstance(code, int) else (0, str(error))


def _passes(code: int) -> bool:
    return code in _PASSING or 2000 <= code < 3000 or not code  # those of the client itself: the connection is gone


def _checked(kind: str, options: dict[str, str]) -> None:
    for name, value in options.items():
        if name not in (*_PATHS, *_SECONDS, "ssl-mode"):
            known = ", ".join((*_PATHS, *_SECONDS, "ssl-mode"))
            raise BadInput(f"option {name!r} of the URL of a {kind} is not known", hint=f"known are {known}")
        if name in _SECONDS and not (value.replace(".", "", 1).isdecimal() and float(value) > 0):
            raise BadInput(f"{name}={value} in the URL of a {kind} is no number of seconds")
        if name == "ssl-mode" and value.upper() not in _MODES:
            raise BadInput(f"ssl-mode={value} in the URL of a {kind} is not known", hint=f"use one of {', '.join(_MODES)}")


def _tls(options: dict[str, str]) -> dict[str, Any]:
    """What the client is told. Without a word it uses TLS where the server offers it, as MySQL's own clients do."""
    named = any(name in options for name in ("ssl-ca", "ssl-cert", "ssl-key"))
    mode = options.get("ssl-mode", "VERIFY_IDENTITY" if "ssl-ca" in options else "REQUIRED" if named else "PREFERRED").upper()
    if mode in ("DISABLED", "PREFERRED"):
        return {"ssl_disabled": True} if mode == "DISABLED" else {}
    context = ssl.create_default_context(cafile=options.get("ssl-ca"))
    context.check_hostname = mode == "VERIFY_IDENTITY"
    context.verify_mode = ssl.CERT_NONE if mode == "REQUIRED" else ssl.CERT_REQUIRED
    if "ssl-cert" in options:
        context.load_cert_chain(options["ssl-cert"], options.get("ssl-key"))
    return {"ssl": context}
