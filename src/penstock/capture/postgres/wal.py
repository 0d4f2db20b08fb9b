"""How far a server's write-ahead log has come, and which transactions are visible; also on a standby."""

from typing import TYPE_CHECKING

from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.copy.snapshots import Snapshot
from penstock.capture.postgres.lsn import lsn_of

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

SHORT_HEADER, LONG_HEADER = 24, 40  # bytes at the beginning of a page of the log, and of the first page of a file

_END = """
select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_insert_lsn() end::text,
       current_setting('wal_block_size')::bigint, (select setting::bigint from pg_settings where name = 'wal_segment_size')"""
# A standby does not say which transactions run: there only those count as visible that are older than all of them.
SNAPSHOT = """
select case when pg_is_in_recovery() then pg_snapshot_xmin(s)::text || ':' || pg_snapshot_xmin(s)::text || ':' else s::text end
from pg_current_snapshot() s"""

_RUNNING = """
select x::text::bigint from pg_current_snapshot() s, pg_snapshot_xip(s) x where not pg_is_in_recovery() union all
select pg_snapshot_xmax(s)::text::bigint - 1 from pg_current_snapshot() s
where pg_is_in_recovery() and pg_snapshot_xmin(s) < pg_snapshot_xmax(s)"""


def end_of_log(connection: "Connection") -> int:
    """A position that all transactions that are visible by now lie before, and that is reached without anything new."""
    with translated("look at the end of the server's log"):
        ((end, page, segment),) = connection.execute(_END)
    return before_header(lsn_of(end), page, segment)


def before_header(lsn: int, page: int, segment: int) -> int:
    """The end of what was written. Where that is the end of a page, the place for the next record lies behind the header of the
    next one: nothing gets there until there is a next record."""
    if lsn % segment == LONG_HEADER:
        return lsn - LONG_HEADER
    return lsn - SHORT_HEADER if lsn % page == SHORT_HEADER else lsn


def visible_now(connection: "Connection") -> Snapshot:
    with translated("look which transactions are visible"):
        ((text,),) = connection.execute(SNAPSHOT)
    return Snapshot.parse(text)


def running_now(connection: "Connection") -> list[int]:
    """Transactions that have not ended, as far as anybody can see; on a standby the last one, behind which none of them lies."""
    with translated("look which transactions run"):
        rows = connection.execute(_RUNNING).fetchall()
    return [xid for (xid,) in rows]


def on_standby(connection: "Connection") -> bool:
    with translated("look whether the server is a standby"):
        ((found,),) = connection.execute("select pg_is_in_recovery()")
    return bool(found)
