"""Connections to PostgreSQL, in which values are written in one and the same way; errors are translated here."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.capture.postgres.answering import opened
from penstock.errors import CaptureError, Disconnected, NotFollowable, PenstockError, SlotInUse, SlotLost, install

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

# What decides how a value looks as text. A snapshot and the stream must write the same value in the same way.
SESSION = {
    "DateStyle": "ISO,MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "xmlbinary": "base64",
}
LOOKING = 60.0  # seconds that a statement may take which only looks at what there is
NEW_SNAPSHOT = "changes since then are missing: take a new snapshot with a new slot"
# libpq says nothing but a sentence when it cannot connect. These do not pass by themselves.
_REFUSED = re.compile(
    r"authentication failed|pg_hba\.conf|no password supplied|(database|role) .* does not exist|permission denied"
)


def connect(
    url: str, name: str = "penstock", replication: bool = False, password: str | None = None, within: float | None = None
) -> "Connection":
    """A connection that commits each statement. Disconnected if the server does not answer, now or later, NotFollowable if it does
    not let us in. One for replication takes the simple protocol only, so that values are put into its statements on this side.
    password: where libpq is not to look for it in its usual places. within: seconds that a statement may take; where rows are
    copied, locks awaited or slots made it may take as long as it takes."""
    psycopg = _library()
    try:
        given = psycopg.conninfo.conninfo_to_dict(url)
        mine: dict[str, Any] = {"client_encoding": "UTF8", "options": _options(given, within), "application_name": name}
        mine |= {"replication": "database", "cursor_factory": psycopg.ClientCursor} if replication else {}
        mine |= {} if password is None else {"password": password}
        return opened(url, given, mine)
    except psycopg.ProgrammingError:  # its text may show the URL, and with it the password
        raise NotFollowable("the URL of the database cannot be read", hint="postgresql://user@host:5432/database") from None
    except psycopg.OperationalError as error:
        kind = NotFollowable if _REFUSED.search(str(error)) else Disconnected
        raise kind("PostgreSQL cannot be reached", *_lines(error)) from error


@contextmanager
def connected(url: str, name: str, password: str | None, within: float | None = None) -> "Iterator[Connection]":
    """The same for a while."""
    connection = connect(url, name, password=password, within=within)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def translated(what: str) -> Iterator[None]:
    """What psycopg raises inside comes out as one of ours."""
    psycopg = _library()
    try:
        yield
    except psycopg.Error as error:
        raise of(error, what) from error


def of(error: "psycopg.Error", what: str) -> PenstockError:
    """What an error of the server or of the connection means. `what` was being done, in lower case."""
    state, detail = error.sqlstate or "", _lines(error)
    if state == "55006":
        return SlotInUse(
            f"cannot {what}: it is in use", *detail, hint="stop the other reader; after a kill the server lets go by itself"
        )
    if state == "42501":
        return NotFollowable(
            f"cannot {what}: the user may not", *detail, hint="grant it: alter role … replication; or own the tables"
        )
    if state == "57014" and "statement timeout" in str(error):
        hint = "does another session hold a lock for long? select * from pg_stat_activity where wait_event_type = 'Lock';"
        return Disconnected(f"cannot {what}: the server has not answered in time", *detail, hint=hint)
    if state == "58P01":
        return SlotLost(f"cannot {what}: the log that it needs is gone", *detail, hint=NEW_SNAPSHOT)
    if not state or state[:2] in ("08", "57", "53", "58") or state == "40001":
        return Disconnected(f"cannot {what}: the connection or the server failed", *detail)
    return CaptureError(f"cannot {what}", *detail, f"SQLSTATE {state}")


def _library() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise CaptureError("PostgreSQL's client is not installed", str(error), hint=install("'psycopg[binary]'")) from error
    return psycopg


def _options(given: dict[str, Any], within: float | None) -> str:
    """Ours stand last, where they count."""
    settings = SESSION | ({} if within is None else {"statement_timeout": f"{within * 1000:.0f}"})
    mine = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return f"{given.get('options') or ''} {mine}".strip()


def _lines(error: Exception) -> list[str]:
    """What was said, in lines; libpq's sentences name host, user and database, never the password."""
    return [line.strip() for line in str(error).splitlines() if line.strip()]
