"""The replication connection: the messages of a slot in their order, from what was confirmed last on.

    with Replication(url, "penstock_shop", ["penstock_shop"]) as stream:
        messages = stream.next(1.0)
        ...                                  # decoded, and durable
        stream.confirm(end_lsn)

What was not confirmed comes again with the next connection. The socket is read and answered in a thread of its own, however slow
whoever takes the messages may be."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.capture.postgres.connecting import NEW_SNAPSHOT, connect, of
from penstock.capture.postgres.lsn import lsn_text
from penstock.capture.postgres.slots import describe_slot, wrong_level
from penstock.capture.postgres.stream.inbox import Inbox
from penstock.capture.postgres.stream.receiver import Receiver
from penstock.errors import CaptureError, NotFollowable, PenstockError, SlotInUse, SlotLost

if TYPE_CHECKING:
    import psycopg

    from penstock.capture.postgres.connecting import Connection

BOUND = 32 << 20  # bytes that wait for whoever takes them
OFTEN = 10.0  # seconds between two reports, or a quarter of the server's patience
SILENCE = 60.0
# Nothing may be asked on this connection that opens a user's table, as pg_publication_tables does: the process of the server that
# decodes would remember the table as it is now, and send older rows with columns that they did not have.
_PUBLICATION = "select 1 from pg_publication where pubname = %s"
_READER = """
select a.usename, a.application_name, coalesce(host(a.client_addr), 'a local socket')
from pg_replication_slots s join pg_stat_activity a on a.pid = s.active_pid where s.slot_name = %s"""


@dataclass(frozen=True)
class System:
    """Which server this is. After a restore or a failover the timeline is another one, and positions may go back."""

    identifier: str
    timeline: int


class Replication:
    """The messages of pgoutput that the slot has for these publications, and what was written by pg_logical_emit_message."""

    def __init__(
        self,
        url: str,
        slot: str,
        publications: Sequence[str],
        *,
        start: int = 0,
        bound: int = BOUND,
        silence: float = SILENCE,
        password: str | None = None,
    ) -> None:
        self.slot = slot
        self._inbox = Inbox(bound)
        connection = connect(url, f"penstock {slot}", replication=True, password=password)
        try:
            self.system, every = _look(connection, publications)
            _start(connection, slot, publications, start)
        except BaseException:
            connection.close()
            raise
        self._receiver: Receiver | None = Receiver(connection, self._inbox, every, silence)

    @property
    def end(self) -> int:
        """How far the server's log was sent, as it said last."""
        return self._inbox.end

    @property
    def passed(self) -> int:
        """Everything that was committed before this position has been given out by `next`."""
        return self._inbox.passed

    @property
    def held(self) -> int:
        """How many bytes wait to be taken."""
        return self._inbox.held

    def next(self, wait: float) -> list[bytes]:
        """The messages that have come, gathered for a moment; none if none came within `wait` seconds. An error of the connection
        or of the server is raised once all messages before it were given out: Disconnected where a new connection may help."""
        if self._receiver is None:
            raise CaptureError(f"the connection of replication slot {self.slot!a} is closed")
        taken = self._inbox.take(wait)
        self._receiver.go_on()
        return taken

    def ask(self) -> None:
        """Asks the server how far it has come, so that `passed` moves on although nothing is changed."""
        if self._receiver:
            self._receiver.ask()

    def confirm(self, lsn: int) -> None:
        """What was committed before this position is durable here. The server may forget its log up to there."""
        if self._receiver:
            self._receiver.confirm(lsn)

    def close(self) -> None:
        if self._receiver:
            self._receiver.close()
            self._receiver = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _look(connection: "Connection", publications: Sequence[str]) -> tuple[System, float]:
    """Which server it is, and how often it wants to hear of us."""
    from psycopg import Error

    try:
        ((level,),) = connection.execute("show wal_level")
        if level != "logical":
            raise wrong_level(level)
        ((identifier, timeline, *_),) = connection.execute("IDENTIFY_SYSTEM")
        ((patience,),) = connection.execute("select setting::int from pg_settings where name = 'wal_sender_timeout'")
        missing = [name for name in publications if not connection.execute(_PUBLICATION, (name,)).fetchone()]
    except Error as error:
        raise of(error, "look at the server") from error
    for name in missing:
        raise NotFollowable(f"there is no publication {name!a}", hint="create it: create publication … for table …")
    return System(str(identifier), int(timeline)), min(OFTEN, patience / 4000) if patience else OFTEN


def _start(connection: "Connection", slot: str, publications: Sequence[str], start: int) -> None:
    from psycopg import Error, sql

    names = ",".join(f'"{name.replace(chr(34), 2 * chr(34))}"' for name in publications)
    options = sql.SQL("proto_version '1', publication_names {}, messages 'true'").format(_literal(names))
    statement = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})")
    try:
        connection.execute(statement.format(sql.Identifier(slot), sql.SQL(lsn_text(start)), options))
    except Error as error:
        raise _refused(connection, slot, error) from error


def _literal(text: str) -> Any:
    """The replication commands know no escapes but doubled quotes."""
    from psycopg import sql

    return sql.SQL("'" + text.replace("'", "''") + "'")


def _refused(connection: "Connection", slot: str, error: "psycopg.Error") -> PenstockError:
    """Why the server does not let us read the slot."""
    said = str(error).strip().splitlines()
    if error.sqlstate == "42704":
        return SlotLost(f"there is no replication slot {slot!a}", *said, hint=NEW_SNAPSHOT)
    if error.sqlstate == "55006":
        who = [
            f"{user}, {name or 'no application name'}, from {place}" for user, name, place in connection.execute(_READER, (slot,))
        ]
        hint = "stop the other reader; after a kill the server lets go by itself"
        return SlotInUse(f"replication slot {slot!a} is read by another process", *said, *who, hint=hint)
    if error.sqlstate == "55000":
        found = describe_slot(connection, slot)
        if found and found.lost:
            why = found.invalidated or "wal_removed"
            return SlotLost(f"replication slot {slot!a} was invalidated ({why})", *said, hint=NEW_SNAPSHOT)
        return NotFollowable(f"replication slot {slot!a} cannot be read here", *said)
    return of(error, f"read replication slot {slot!a}")
