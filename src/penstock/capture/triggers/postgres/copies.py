"""The copies of tables, one behind the other, chunk by chunk. A chunk is read under the snapshot up to which the outbox is read
next: given out behind that, it needs no merging."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.capture import port
from penstock.capture.port import SnapshotProgress, Table
from penstock.capture.postgres.copy.spool import chunk_batch
from penstock.capture.postgres.tables import StoredTable, described, estimated_rows, facts_of, json_rows, last_key, read_rows
from penstock.capture.postgres.values.types import Types
from penstock.capture.triggers.position import Copied, named
from penstock.capture.triggers.postgres.position import OutboxPosition
from penstock.core.time import Clock, SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.capture.postgres.connecting import Connection

BYTES = 16 << 20  # that a chunk should have
FIRST, MOST = 2_000, 50_000  # rows of the first one, and of any


@dataclass(frozen=True)
class ReadChunk:
    """Rows of a table, all columns as text."""

    of: StoredTable
    rows: "pa.Table"
    done: bool  # there are no more


class Copies:
    """What is still to be copied."""

    def __init__(self, tables: Sequence[Table], types: Types, clock: Clock | None = None) -> None:
        self._tables, self._types, self._clock = tables, types, clock or SystemClock()
        self._of: StoredTable | None = None
        self._limit = FIRST

    def todo(self, position: OutboxPosition) -> list[Table]:
        return [table for table in self._tables if not _copied(position, table).done]

    def read(self, connection: "Connection", position: OutboxPosition) -> ReadChunk:
        """The next chunk, in the transaction of the connection."""
        table = self.todo(position)[0]
        if self._of is None or self._of.table != table:
            self._of, self._limit = described(connection, table), FIRST
        rows, of = read_rows(connection, self._of, _copied(position, table).after, self._limit), self._of
        chunk = ReadChunk(of, rows, rows.num_rows < self._limit)
        self._limit = max(100, min(MOST, 4 * self._limit, self._limit * BYTES // max(1, rows.nbytes)))
        return chunk

    def batch(self, chunk: ReadChunk, position: OutboxPosition) -> port.Batch:
        """The rows of a chunk as a transaction of their own behind the position; it has no intent yet."""
        of, name = chunk.of, named(chunk.of.table)
        before = _copied(position, of.table)
        after = None if chunk.done else last_key(of, chunk.rows)
        done = Copied(chunk.done, before.chunks + 1, before.rows + chunk.rows.num_rows, after)
        number, time = position.transactions + 1, max(position.time, self._clock.now())
        behind = replace(position, transactions=number, time=time, copied={**position.copied, name: done})
        made = chunk_batch(
            of.table, *json_rows(of, self._types, chunk.rows), f"snapshot:{'.'.join(of.table)}:{done.chunks}", number, time
        )
        return replace(made, position=behind.json(), tables={of.table: facts_of(of, self._types)})

    def progress(self, connection: "Connection", position: OutboxPosition) -> list[SnapshotProgress]:
        return [
            SnapshotProgress(table, _copied(position, table).rows, estimated_rows(connection, table))
            for table in self.todo(position)
        ]


def _copied(position: OutboxPosition, table: Table) -> Copied:
    return position.copied.get(named(table), Copied())
