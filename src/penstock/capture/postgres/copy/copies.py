"""The copies of the tables of a publication, one table behind the other, chunk by chunk, merged with the stream."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.capture import port
from penstock.capture.port import SnapshotProgress, Table
from penstock.capture.postgres.copy.copying import CHUNK, ColumnsChanged, CopiedTable, Piece, read_chunk
from penstock.capture.postgres.copy.published import about_rows, published_columns
from penstock.capture.postgres.copy.snapshots import ChunkMerge, Settled, touched, visible
from penstock.capture.postgres.copy.spool import chunk_batch, emptied_batch
from penstock.capture.postgres.decode.changes import Batch
from penstock.capture.postgres.decode.messages import Relation
from penstock.capture.postgres.keys import Keys
from penstock.capture.postgres.position import Copied, WalPosition, named, table_of
from penstock.capture.postgres.stream.converting import Shape
from penstock.capture.postgres.values.json_values import json_objects, json_values
from penstock.capture.postgres.values.types import Types
from penstock.capture.postgres.wal import running_now, visible_now
from penstock.core.arrow import one_array, values_in

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.capture.postgres.connecting import Connection

BYTES = 16 << 20  # that a chunk should have
FIRST = 2_000  # rows of the first one
AGAIN = 0.05  # seconds until it is looked again whether all that was streamed is visible
GONE = "gone"  # the identity of a table that was published once


class Copies:
    """What is still to be copied, and the chunk that waits until the stream has passed it."""

    def __init__(
        self, connection: "Connection", publication: str, types: Types, keys: Keys, at: WalPosition, most: int = CHUNK
    ) -> None:
        self._connection, self._publication, self._types, self._keys, self._most = connection, publication, types, keys, most
        self._copied = dict(at.copied)
        self._recent: set[int] | None = set() if not at.lsn and not at.copied else None
        self._recent = set(at.recent) if at.recent is not None else self._recent
        self._todo: list[Table] = []
        self._estimates: dict[Table, int] = {}
        self._merge: ChunkMerge | None = None
        self._piece: Piece | None = None
        self._of: CopiedTable | None = None
        self._limit, self._tried = min(FIRST, most), 0.0

    @property
    def waiting(self) -> bool:
        """Whether a chunk waits for the stream."""
        return self._piece is not None

    @property
    def left(self) -> bool:
        """Whether something is left to copy."""
        return bool(self._todo)

    @property
    def recent(self) -> tuple[int, ...] | None:
        """Transactions that were streamed and may not be visible yet; None where nothing is copied, as nobody looks."""
        return tuple(sorted(self._recent)) if self._todo and self._recent is not None else None

    def published(self, tables: Mapping[Table, str]) -> list[Table]:
        """The publication has these tables now: what is new among them is copied. Returns those that it has no longer."""
        gone = [table for table, known in self._known().items() if table not in tables and known.identity != GONE]
        for table in gone:
            self._forget(table)
        new = {table: identity for table, identity in tables.items() if self._is_new(table, identity)}
        self._queue(table for table in tables if table not in new and not self._copied[named(table)].done)
        if new and not self._todo and self._copied:
            self._recent = None  # nobody has looked lately what is visible
        for table, identity in new.items():
            replaces = named(table) in self._copied
            self._forget(table)
            self._copied[named(table)] = Copied(identity=identity, replaces=replaces)
        self._queue(new)
        self._estimates |= {table: about_rows(self._connection, table) for table in self._todo if table not in self._estimates}
        return gone

    def read(self) -> None:
        """Reads the next chunk, if there is one to read and it can be read now."""
        if not self._todo or self._piece or self._state.replaces or time.monotonic() - self._tried < AGAIN:
            return
        merge = self._merge = self._merge or ChunkMerge(self._hidden())
        if not merge.may_open(visible_now(self._connection)):
            self._tried = time.monotonic()
            return
        of = self._of = self._of or self._described(self._todo[0])
        try:
            piece = read_chunk(self._connection, of, self._state.after, self._limit, 2 * BYTES)
        except ColumnsChanged:
            self._of, self._tried = None, time.monotonic()
            return
        self._piece = piece
        merge.open(piece.chunk)

    def told(self, decoded: Batch, open_xid: int | None, shape: Callable[[Relation], Shape]) -> None:
        """The stream has these changes. open_xid: the transaction of the last ones, if it goes on."""
        if not self._todo:
            return
        if self._recent is not None:
            xids = self._recent.union(decoded.transactions.xid.tolist(), [] if open_xid is None else [open_xid])
            now = visible_now(self._connection)
            self._recent = {xid for xid in xids if not visible(xid, now)}
        if self._merge is None:
            return
        for changes in decoded.tables:
            if (changes.relation.schema, changes.relation.table) == self._todo[0]:
                self._merge.changed(*touched(changes, shape(changes.relation).key))
        for truncate in decoded.truncates:
            if (truncate.relation.schema, truncate.relation.table) == self._todo[0]:
                self._merge.truncated(truncate.xid)

    def emptied(self, position: WalPosition) -> port.Batch | None:
        """Before a table is copied whose topic has rows of an earlier one of its name: all of those go."""
        if not self._todo or not self._state.replaces:
            return None
        table = self._todo[0]
        self._copied[named(table)] = replace(self._state, replaces=False)
        at = replace(position, copied=dict(self._copied), recent=self.recent, time=max(position.time, time.time_ns() // 1000))
        return replace(emptied_batch(table, f"snapshot:{named(table)}:0", at.lsn, at.time), position=at.json())

    def settled(self, passed: int, position: WalPosition) -> port.Batch | None:
        """The rows of the chunk, once the stream has come past it: a batch behind which the copy has come further."""
        settled = self._merge.settled(passed) if self._merge else None
        if settled is None or self._of is None or self._piece is None:
            return None
        of, piece, before = self._of, self._piece, self._state
        self._piece = None
        count, done = piece.chunk.rows.num_rows, piece.last
        after = _last(piece.chunk.rows, of.order) if count else before.after
        chunks, rows = before.chunks + 1, before.rows + count
        self._copied[named(of.table)] = Copied(done, chunks, rows, None if done else after, before.identity, of.key)
        self._adapt(piece)
        if done:
            self._leave()
        at = replace(position, copied=dict(self._copied), recent=self.recent, time=max(position.time, piece.time))
        return self._batch(of, settled, f"snapshot:{named(of.table)}:{chunks}", at)

    def go_on(self, position: WalPosition) -> None:
        """What was read before this start is written."""
        self._copied |= position.copied
        self._todo = [table for table in self._todo if not self._copied.get(named(table), Copied()).done]

    def progress(self) -> list[SnapshotProgress]:
        found = [(table, self._copied[named(table)].rows) for table in self._todo]
        return [SnapshotProgress(table, rows, max(rows, self._estimates.get(table, 0))) for table, rows in found]

    @property
    def _state(self) -> Copied:
        """Of the table that is copied now."""
        return self._copied[named(self._todo[0])]

    def _known(self) -> dict[Table, Copied]:
        return {table_of(name): known for name, known in self._copied.items()}

    def _is_new(self, table: Table, identity: str) -> bool:
        known = self._copied.get(named(table))
        return known is None or known.identity != identity

    def _queue(self, tables: Iterable[Table]) -> None:
        self._todo += [table for table in tables if table not in self._todo]

    def _forget(self, table: Table) -> None:
        """What is known of it does not count any more, but that it was there."""
        if named(table) in self._copied:
            self._copied[named(table)] = Copied(identity=GONE)
        if self._todo and self._todo[0] == table:
            self._leave()
        elif table in self._todo:
            self._todo.remove(table)

    def _leave(self) -> None:
        """The table that is copied now is done with."""
        self._todo.pop(0)
        self._merge = self._of = self._piece = None
        self._limit = min(FIRST, self._most)

    def _batch(self, of: CopiedTable, settled: Settled, id: str, at: WalPosition) -> port.Batch:
        shape = self._shape(of)
        values = [json_values(one_array(settled.rows[i]), of_type) for i, of_type in enumerate(shape.types)]
        keys = json_objects(of.key, [values[i] for i in shape.key])
        made = chunk_batch(of.table, keys, json_objects(shape.names, values), id, at.lsn or at.end, at.time)
        return replace(made, position=at.json(), tables={of.table: shape.facts})

    def _adapt(self, piece: Piece) -> None:
        """Chunks as large as they should be, by the rows of the last one."""
        size, count = max(1, piece.chunk.rows.nbytes), max(1, piece.chunk.rows.num_rows)
        self._limit = max(1, min(self._most, 4 * count, count * BYTES // size))

    def _hidden(self) -> list[int]:
        """Transactions that were streamed and may not be visible yet, although they were told to no merge."""
        if self._recent is not None:
            return sorted(self._recent)
        found = [xid & 0xFFFFFFFF for xid in running_now(self._connection)]
        self._recent = set(found)
        return found

    def _described(self, table: Table) -> CopiedTable:
        key = self._keys.of_table(table)
        return CopiedTable(table, published_columns(self._connection, self._publication, table), key.columns, key.by_index)

    def _shape(self, of: CopiedTable) -> Shape:
        types = self._types.all(column.type for column in of.columns)
        columns, modifiers = tuple(column.name for column in of.columns), tuple(column.modifier for column in of.columns)
        key = tuple(columns.index(name) for name in of.key)
        return Shape(columns, tuple(types[column.type] for column in of.columns), modifiers, key)


def _last(rows: "pa.Table", names: Sequence[str]) -> tuple[str, ...]:
    last = rows.slice(rows.num_rows - 1)
    return tuple(values_in(last[name], str)[0] for name in names)
