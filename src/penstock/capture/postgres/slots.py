"""Replication slots and publications of a server: made, described, dropped. Names are quoted, whatever they contain."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString

from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.lsn import lsn_of
from penstock.errors import AlreadyThere, NotFollowable, NotFound

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

PLUGIN = "pgoutput"
Table = tuple[str, str]  # schema, table

_SLOT = """
select plugin, database, active_pid, restart_lsn::text, confirmed_flush_lsn::text, wal_status,
       case when pg_is_in_recovery() then null else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint end,
       to_jsonb(s) ->> 'invalidation_reason'
from pg_replication_slots s where slot_name = %s"""


@dataclass(frozen=True)
class Slot:
    """A replication slot as the server describes it."""

    name: str
    plugin: str | None
    database: str | None
    reader: int | None  # the process of the server that reads it now
    restart_lsn: int | None  # the log is kept from here on
    confirmed_lsn: int | None  # what was confirmed; the next reader goes on here
    wal_status: str | None  # reserved, extended, unreserved, lost
    kept_bytes: int | None  # of the log, for this slot
    invalidated: str | None  # why

    @property
    def lost(self) -> bool:
        return self.wal_status == "lost" or self.invalidated is not None


def create_slot(connection: "Connection", name: str) -> int:
    """Makes a slot for pgoutput; changes that commit behind the position that is returned will come."""
    if describe_slot(connection, name):
        raise AlreadyThere(f"there is a replication slot {name!a} already")
    (level,) = _one(connection, "show wal_level")
    if level != "logical":
        raise wrong_level(level)
    with translated(f"create replication slot {name!a}"):
        (lsn,) = _one(connection, "select lsn::text from pg_create_logical_replication_slot(%s, %s)", name, PLUGIN)
    return lsn_of(lsn)


def drop_slot(connection: "Connection", name: str) -> None:
    """Drops it, and the server keeps its log for it no longer. SlotInUse while somebody reads it."""
    if not describe_slot(connection, name):
        raise NotFound(f"there is no replication slot {name!a}")
    with translated(f"drop replication slot {name!a}"):
        connection.execute("select pg_drop_replication_slot(%s)", (name,))


def describe_slot(connection: "Connection", name: str) -> Slot | None:
    with translated(f"describe replication slot {name!a}"):
        found = connection.execute(_SLOT, (name,)).fetchone()
    if found is None:
        return None
    plugin, database, reader, restart, confirmed, status, kept, reason = found
    positions = restart and lsn_of(restart), confirmed and lsn_of(confirmed)
    return Slot(name, plugin, database, reader, *positions, status, kept, reason)


def create_publication(connection: "Connection", name: str, tables: Sequence[Table]) -> None:
    """Publishes these tables; changes of partitions as changes of the table they are part of."""
    from psycopg import sql

    if not tables:
        raise NotFollowable(f"publication {name!a} has no tables")
    if describe_publication(connection, name) is not None:
        raise AlreadyThere(f"there is a publication {name!a} already")
    statement = sql.SQL("create publication {} for table {} with (publish_via_partition_root = true)")
    with translated(f"create publication {name!a}"):
        connection.execute(statement.format(sql.Identifier(name), sql.SQL(", ").join(sql.Identifier(*table) for table in tables)))


def drop_publication(connection: "Connection", name: str) -> None:
    from psycopg import sql

    if describe_publication(connection, name) is None:
        raise NotFound(f"there is no publication {name!a}")
    with translated(f"drop publication {name!a}"):
        connection.execute(sql.SQL("drop publication {}").format(sql.Identifier(name)))


def describe_publication(connection: "Connection", name: str) -> list[Table] | None:
    """The tables it publishes, in order; None if there is no such publication."""
    with translated(f"describe publication {name!a}"):
        if not connection.execute("select 1 from pg_publication where pubname = %s", (name,)).fetchone():
            return None
        tables = "select schemaname, tablename from pg_publication_tables where pubname = %s order by 1, 2"
        return [(schema, table) for schema, table in connection.execute(tables, (name,))]


def wrong_level(level: str) -> NotFollowable:
    return NotFollowable(
        f"the server's wal_level is {level!a}; changes can be followed with 'logical' only",
        hint="alter system set wal_level = 'logical', then restart the server",
    )


def _one(connection: "Connection", statement: LiteralString, *values: str) -> tuple[Any, ...]:
    found = connection.execute(statement, values or None).fetchone()
    assert found is not None
    return found
