"""The copies of the tables of a publication, one table behind the other, chunk by chunk, merged with the stream."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.capture import port
from penstock.capture.port import SnapshotProgress, Table, TableFacts
from penstock.capture.postgres.changes import Batch
from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.converting import Shape
from penstock.capture.postgres.copying import CHUNK, CopiedTable, published_columns, read_chunk
from penstock.capture.postgres.json_values import json_objects, json_values
from penstock.capture.postgres.keys import Keys
from penstock.capture.postgres.messages import Relation
from penstock.capture.postgres.position import Copied, WalPosition
from penstock.capture.postgres.snapshots import Chunk, ChunkMerge, Snapshot, touched, visible
from penstock.capture.postgres.spool import chunk_batch
from penstock.capture.postgres.types import Types
from penstock.core.arrow import one_array, values_in

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.capture.postgres.connecting import Connection

BYTES = 16 << 20  # that a chunk should have
FIRST = 2_000  # rows of the first one
AGAIN = 0.05  # seconds until it is looked again whether all that was streamed is visible
MANY = 10_000  # transactions that are remembered before it is looked which of them are visible


class Copies:
    """What is still to be copied, and the chunk that waits until the stream has passed it."""

    def __init__(
        self,
        connection: "Connection",
        publication: str,
        tables: Sequence[Table],
        types: Types,
        keys: Keys,
        at: WalPosition,
    ) -> None:
        self._connection, self._publication, self._types, self._keys = connection, publication, types, keys
        self._todo = [table for table in tables if not at.copied.get(".".join(table), Copied()).done]
        self._copied = dict(at.copied)
        self._streamed: set[int] | None = set() if not at.lsn else None  # None: nobody knows what was streamed before this start
        self._merge: ChunkMerge | None = None
        self._chunk: Chunk | None = None
        self._of: CopiedTable | None = None
        self._limit, self._tried = FIRST, 0.0

    @property
    def waiting(self) -> bool:
        """Whether a chunk waits for the stream."""
        return self._chunk is not None

    def read(self) -> bool:
        """Reads the next chunk, if there is one to read and it can be read now."""
        if not self._todo or self._chunk or time.monotonic() - self._tried < AGAIN:
            return False
        merge = self._merge = self._merge or ChunkMerge(self._hidden())
        if not merge.may_open(self._snapshot()):
            self._tried = time.monotonic()
            return False
        of = self._of = self._of or self._described(self._todo[0])
        done = self._copied.get(".".join(of.table), Copied())
        chunk = read_chunk(self._connection, of, done.after, self._limit)
        self._chunk = chunk
        merge.open(chunk)
        return True

    def told(self, decoded: Batch, shape: Callable[[Relation], Shape]) -> None:
        """The stream has these changes."""
        if not self._todo:
            return
        if self._streamed is not None:
            self._streamed.update(decoded.transactions.xid.tolist())
            if len(self._streamed) > MANY:
                now = self._snapshot()
                self._streamed = {xid for xid in self._streamed if not visible(xid, now)}
        if self._merge is None:
            return
        for changes in decoded.tables:
            if (changes.relation.schema, changes.relation.table) == self._todo[0]:
                self._merge.changed(*touched(changes, shape(changes.relation).key))
        for truncate in decoded.truncates:
            if (truncate.relation.schema, truncate.relation.table) == self._todo[0]:
                self._merge.truncated(truncate.xid)

    def settled(self, passed: int, position: WalPosition) -> port.Batch | None:
        """The rows of the chunk, once the stream has come past it: a batch behind which the copy has come further."""
        settled = self._merge.settled(passed) if self._merge else None
        if settled is None or self._of is None or self._chunk is None:
            return None
        of, chunk = self._of, self._chunk
        self._chunk = None
        name = ".".join(of.table)
        before = self._copied.get(name, Copied())
        count, done = chunk.rows.num_rows, chunk.rows.num_rows < self._limit
        after = _last(chunk.rows, of.order) if count else before.after
        self._copied[name] = Copied(done, before.chunks + 1, before.rows + count, None if done else after)
        self._adapt(chunk)
        if done:
            self._todo.pop(0)
            self._merge = self._of = None
            self._limit = FIRST
        types = self._types.all(column.type for column in of.columns)
        values = {column.name: json_values(one_array(settled.rows[column.name]), types[column.type]) for column in of.columns}
        keys = json_objects(of.key, [values[key] for key in of.key])
        rows = json_objects(list(values), list(values.values()))
        id = f"snapshot:{name}:{before.chunks + 1}"
        at = max(position.time, time.time_ns() // 1000)  # of what comes behind, too: a newer row never has an older time
        made = chunk_batch(of.table, keys, rows, id, position.lsn, at)
        behind = replace(position, copied=dict(self._copied), time=at)
        return replace(made, position=behind.json(), tables={of.table: self._facts(of)})

    def go_on(self, position: WalPosition) -> None:
        """A chunk that was read before this start is written."""
        self._copied = dict(position.copied)
        self._todo = [table for table in self._todo if not self._copied.get(".".join(table), Copied()).done]

    def progress(self) -> list[SnapshotProgress]:
        return [
            SnapshotProgress(table, self._copied.get(".".join(table), Copied()).rows, self._estimate(table)) for table in self._todo
        ]

    def _adapt(self, chunk: Chunk) -> None:
        size = max(1, chunk.rows.nbytes)
        self._limit = max(100, min(CHUNK, 4 * self._limit, self._limit * BYTES // size))

    def _hidden(self) -> list[int]:
        """Transactions that were streamed and may not be visible yet, although they were told to no merge."""
        now = self._snapshot()
        running = [xid & 0xFFFFFFFF for xid in now.running]
        return running if self._streamed is None else [xid for xid in self._streamed if not visible(xid, now)]

    def _snapshot(self) -> Snapshot:
        with translated("look which transactions are visible"):
            ((text,),) = self._connection.execute("select pg_current_snapshot()::text")
        return Snapshot.parse(text)

    def _described(self, table: Table) -> CopiedTable:
        key = self._keys.of_table(table)
        return CopiedTable(table, published_columns(self._connection, self._publication, table), key.columns, key.by_index)

    def _facts(self, of: CopiedTable) -> TableFacts:
        types = self._types.all(column.type for column in of.columns)
        columns, modifiers = tuple(column.name for column in of.columns), tuple(column.modifier for column in of.columns)
        key = tuple(columns.index(name) for name in of.key)
        return Shape(columns, tuple(types[column.type] for column in of.columns), modifiers, key).facts

    def _estimate(self, table: Table) -> int:
        statement = (
            "select greatest(reltuples, 0)::bigint from pg_class where oid = to_regclass(format('%%I.%%I', %s::text, %s::text))"
        )
        with translated("look at the size of a table"):
            found = self._connection.execute(statement, table).fetchone()
        return int(found[0]) if found else 0


def _last(rows: "pa.Table", names: Sequence[str]) -> tuple[str, ...]:
    last = rows.slice(rows.num_rows - 1)
    return tuple(values_in(last[name], str)[0] for name in names)
