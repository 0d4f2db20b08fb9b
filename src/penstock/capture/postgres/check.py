"""Looks whether a PostgreSQL can be followed, before anything is changed: each finding with the statements that mend it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.capture.kind import Finding
from penstock.capture.port import Table
from penstock.capture.postgres.check_tables import check_tables
from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.slots import describe_publication, describe_slot

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

OLDEST = 150000  # catalogs before do not tell which columns are published
MUCH = 1 << 30  # bytes of the server's log that a slot keeps
RELOAD = "select pg_reload_conf();"
_SERVER = """
select current_setting('server_version'), current_setting('server_version_num')::int, current_database(),
       quote_ident(current_database()), quote_ident(current_user), r.rolsuper, r.rolsuper or r.rolreplication,
       exists (select from pg_roles m where m.rolname = 'rds_replication'),
       exists (select from pg_roles m where m.rolname = 'rds_replication' and pg_has_role(current_user, m.oid, 'member')),
       has_database_privilege(current_database(), 'create'), pg_is_in_recovery(), current_setting('server_encoding')
from pg_roles r where r.rolname = current_user"""
_OTHERS = """
select slot_name, active, wal_status, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint
from pg_replication_slots where slot_name <> %s order by 1"""
_PUBLICATION = """
select pubviaroot and pubinsert and pubupdate and pubdelete and pubtruncate from pg_publication where pubname = %s"""


@dataclass(frozen=True)
class Server:
    """The server, and what the user may do there."""

    version: str
    number: int
    database: str
    quoted_database: str
    user: str  # quoted
    superuser: bool
    replicates: bool
    is_rds: bool
    replicates_on_rds: bool
    creates: bool
    standby: bool
    encoding: str


def check_database(connection: "Connection", tables: Sequence[Table], name: str, mine: bool) -> list[Finding]:
    """Everything that is looked at. name: of the slot and the publication; mine: they are this capture's, if they are there."""
    look = _Look(connection, tables, name, mine)
    found = [*look.server_itself()]
    if look.server.standby or look.server.number < OLDEST:
        return found
    return [*found, *look.log(), *look.rights(), *look.room(), *look.slots(), *look.habits(), *look.each_table()]


class _Look:
    def __init__(self, connection: "Connection", tables: Sequence[Table], name: str, mine: bool) -> None:
        self._connection, self._tables, self._name, self._mine = connection, tables, name, mine

    @cached_property
    def server(self) -> Server:
        with translated("look at the server"):
            found = self._connection.execute(_SERVER).fetchone()
        assert found
        return Server(*found)

    @cached_property
    def _settings(self) -> dict[str, str]:
        with translated("look at the server's settings"):
            return {str(name): str(value) for name, value in self._connection.execute("select name, setting from pg_settings")}

    @cached_property
    def _published(self) -> list[Table] | None:
        return describe_publication(self._connection, self._name)

    def server_itself(self) -> Iterator[Finding]:
        server, info = self.server, self._connection.info
        yield Finding(
            "ok", f"PostgreSQL {server.version} at {info.host}:{info.port}, database {server.database}, user {server.user}"
        )
        if server.number < OLDEST:
            yield Finding("error", "the server is older than PostgreSQL 15", ["penstock cdc add … --engine triggers"])
        if server.standby:
            yield Finding("error", "this server is a standby: changes are followed on the primary, where they are made")
        if server.encoding == "SQL_ASCII":
            yield Finding("warning", "the database's encoding is SQL_ASCII: text that is not UTF-8 cannot be read")

    def log(self) -> Iterator[Finding]:
        level = self._settings["wal_level"]
        if level == "logical":
            yield Finding("ok", "wal_level is 'logical'")
            return
        mend = ["alter system set wal_level = 'logical';", "-- then restart the server"]
        if "rds.logical_replication" in self._settings:
            mend = ["-- in the parameter group: rds.logical_replication = 1, then reboot the instance"]
        elif "cloudsql.logical_decoding" in self._settings:
            mend = ["-- as a flag of the instance: cloudsql.logical_decoding = on, then restart it"]
        yield Finding("error", f"wal_level is '{level}': changes can be followed with 'logical' only", mend)

    def rights(self) -> Iterator[Finding]:
        server = self.server
        if server.replicates or server.replicates_on_rds:
            how = "is superuser" if server.superuser else "may replicate"
            yield Finding("ok", f"user {server.user} {how}")
        else:
            mend = f"grant rds_replication to {server.user};" if server.is_rds else f"alter role {server.user} replication;"
            yield Finding("error", f"user {server.user} may not replicate", [mend])
        if not server.creates and self._published is None:
            mend = f"grant create on database {server.quoted_database} to {server.user};"
            yield Finding("error", f"user {server.user} may not make a publication in this database", [mend])

    def room(self) -> Iterator[Finding]:
        """Slots and senders that are free."""
        with translated("count slots and senders"):
            ((slots, senders),) = self._connection.execute(
                "select (select count(*) from pg_replication_slots), (select count(*) from pg_stat_replication)"
            )
        there = self._mine and describe_slot(self._connection, self._name) is not None
        for setting, used, needed in (("max_replication_slots", slots, not there), ("max_wal_senders", senders, True)):
            most = int(self._settings[setting])
            mend = [f"alter system set {setting} = {most + 10};", "-- then restart the server"]
            if used >= most and needed:
                yield Finding("error", f"{setting} is {most}, and all of them are used", mend)
            else:
                yield Finding("ok", f"{setting} is {most}, {most - used} free")

    def slots(self) -> Iterator[Finding]:
        own = describe_slot(self._connection, self._name)
        drop = f"select pg_drop_replication_slot('{self._name}');"
        if own and not self._mine:
            what = f"there is a replication slot {self._name} already, of another capture of this name or left behind by one"
            yield Finding("error", what, ["-- if nobody needs it any more:", drop])
        elif own and own.lost:
            yield Finding("error", f"replication slot {self._name} was invalidated ({own.invalidated or own.wal_status})")
        yield from self._publication()
        with translated("look at the slots"):
            others = self._connection.execute(_OTHERS, (self._name,)).fetchall()
        for name, active, status, kept in others:
            drop = "select pg_drop_replication_slot('{}');".format(name.replace("'", "''"))
            if status == "lost" or (not active and kept >= MUCH) or kept >= 10 * MUCH:
                state = (
                    "is lost"
                    if status == "lost"
                    else f"{'is read, and' if active else 'is read by nobody and'} keeps {_size(kept)} of log"
                )
                yield Finding("warning", f"replication slot {name} {state}", ["-- if nobody needs it any more:", drop])

    def _publication(self) -> Iterator[Finding]:
        """One that somebody else has made is taken, if it publishes what is needed."""
        if self._published is None:
            return
        with translated("look at the publication"):
            ((whole,),) = self._connection.execute(_PUBLICATION, (self._name,))
        if not whole:
            options = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
            what = f"publication {self._name} leaves out some kinds of changes, or publishes partitions under their own names"
            yield Finding("error", what, [f"alter publication {self._name} set ({options});"])

    def habits(self) -> Iterator[Finding]:
        """Settings that cost something later."""
        if self._settings["max_slot_wal_keep_size"] == "-1":
            what = "max_slot_wal_keep_size is unlimited: while a capture is stopped the server's log grows until its disk is full"
            yield Finding("warning", what, ["alter system set max_slot_wal_keep_size = '50GB';", RELOAD])
        idle = self._settings.get("idle_replication_slot_timeout", "0")
        if idle != "0":
            what = f"idle_replication_slot_timeout is {idle} s: a capture that is stopped for longer loses its slot"
            yield Finding("warning", what, ["alter system set idle_replication_slot_timeout = 0;", RELOAD])
        if self._settings["synchronous_commit"] == "off":
            what = "synchronous_commit is off: changes come about 170 ms later, as the server sends what is on its disk"
            yield Finding("warning", what, ["alter system set synchronous_commit = 'on';", RELOAD])

    def each_table(self) -> Iterator[Finding]:
        if self._tables:
            yield from check_tables(self._connection, self._tables, self._published or (), self._name, self.server.user)


def _size(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB"
