"""An outbox in PostgreSQL as a reader sees it: what lies between two snapshots, transactions in the order of their last changes.

Neither is the greatest seq so far a position, as one with a smaller seq may commit later; nor is the id of a transaction an order,
as one with a greater id may change a row first. What is visible now and was not at the last look is exact, whoever commits when;
and of two transactions that changed the same row the second made its change, and so its last one, behind all of the first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.copy.snapshots import Snapshot
from penstock.capture.triggers.postgres.outbox_sql import OutboxSql
from penstock.capture.triggers.postgres.records import RecordShape
from penstock.errors import SlotLost

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

BYTES = 16 << 20  # of rows that are given out together
REMOVED = 10_000  # rows that are removed together
Place = tuple[int, int]  # the greatest seq of a transaction, and the seq of a row
BEFORE_ALL: Place = (0, 0)

_BETWEEN = """
    txid >= pg_snapshot_xmin('{earlier}') and txid < pg_snapshot_xmax('{later}')
    and not pg_visible_in_snapshot(txid, '{earlier}') and pg_visible_in_snapshot(txid, '{later}')"""
_ROWS = """
copy (
    select last, seq, txid::text, (extract(epoch from at) * 1000000)::bigint, shape, op, before, after
    from (select *, max(seq) over (partition by txid) as last from {schema}.outbox where {between}) as found
    where (last, seq) > ({after}) {upto} order by last, seq
) to stdout (format csv, force_quote *)"""
_NEWS = "select pg_current_snapshot()::text, exists (select from {schema}.outbox where {between})"
_REMOVE = """
with gone as (
    delete from {schema}.outbox where ctid = any(array(
        select ctid from {schema}.outbox
        where (txid, seq) > (%s::text::xid8, %s) and txid < pg_snapshot_xmax('{seen}') and pg_visible_in_snapshot(txid, '{seen}')
        order by txid, seq limit {limit}))
    returning txid, seq)
select txid::text, seq, (select count(*) from gone) from gone order by gone.txid desc, seq desc limit 1"""


@dataclass(frozen=True)
class About:
    """An outbox as it says itself."""

    id: str
    windows: int  # of those that were removed from it


class Outbox:
    """Reads and empties it."""

    def __init__(self, connection: "Connection", sql: OutboxSql, bound: int = BYTES) -> None:
        """bound: the bytes of rows that are given out together."""
        self._connection, self._schema, self._bound = connection, sql.quoted, bound
        self.known: dict[int, RecordShape] = {}  # shapes by their numbers

    def about(self) -> About:
        """SlotLost if it is not there."""
        import psycopg

        try:
            found = self._connection.execute(f"select id::text, windows from {self._schema}.about".encode()).fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            found = None
        except psycopg.Error as error:
            with translated("look at the outbox"):
                raise error
        if found is None:
            raise SlotLost(
                f"the outbox {self._schema} is not there any more: changes since then are missing",
                hint="`penstock cdc remove` and `cdc add` begin anew",
            )
        return About(*found)

    def news(self, since: str) -> tuple[str, bool]:
        """A snapshot taken now, and whether it sees anything that an earlier one did not."""
        between = f"txid >= pg_snapshot_xmin('{_safe(since)}') and not pg_visible_in_snapshot(txid, '{since}')"
        with translated("look for changes"):
            ((snapshot, any_new),) = self._connection.execute(_NEWS.format(schema=self._schema, between=between).encode())
        return snapshot, any_new

    def read(self, earlier: str, later: str, after: Place = BEFORE_ALL, upto: Place | None = None) -> Iterator[tuple[bytes, bool]]:
        """What the later snapshot sees and the earlier does not, behind a place and up to one, as CSV in parts; with each part
        whether it is the last. The connection is taken until the last one was given."""
        between = _BETWEEN.format(earlier=_safe(earlier), later=_safe(later))
        limit = f"and (last, seq) <= ({upto[0]}, {upto[1]})" if upto else ""
        statement = _ROWS.format(schema=self._schema, between=between, after=f"{after[0]}, {after[1]}", upto=limit)
        part = bytearray()
        with translated("read the outbox"), self._connection.cursor().copy(statement.encode()) as copy:
            for row in copy:  # one at a time, as the server sends them
                if len(part) >= self._bound and upto is None:
                    yield bytes(part), False
                    part.clear()
                part += row
        if part:
            yield bytes(part), True

    def look_at_shapes(self) -> None:
        """Gets to know all shapes that are visible."""
        statement = f"select id, relation::bigint, root_schema, root_table, columns from {self._schema}.shapes"
        with translated("look at the shapes of rows"):
            for number, *told in self._connection.execute(statement.encode()):
                if number not in self.known:
                    self.known[number] = RecordShape.of(*told)

    def remove(self, seen: str, windows: int, behind: tuple[str, int]) -> tuple[str, int] | None:
        """Removes some of what a snapshot sees, behind a transaction and a seq; where it came to, None if there is no more."""
        statement = _REMOVE.format(schema=self._schema, seen=_safe(seen), limit=REMOVED)
        with translated("empty the outbox"), self._connection.transaction():
            self._connection.execute(f"update {self._schema}.about set windows = {windows} where windows < {windows}".encode())
            found = self._connection.execute(statement.encode(), behind).fetchone()
        return None if found is None or found[2] < REMOVED else (found[0], found[1])

    def size(self) -> int:
        """Its bytes on the server's disk."""
        with translated("look at the size of the outbox"):
            ((size,),) = self._connection.execute("select pg_total_relation_size(%s)", (f"{self._schema}.outbox",))
        return int(size)


def _safe(snapshot: str) -> str:
    """The text of a snapshot, which is put into statements; BadInput if it is none."""
    return str(Snapshot.parse(snapshot))
