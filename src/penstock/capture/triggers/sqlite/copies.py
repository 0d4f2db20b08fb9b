"""The copies of SQLite's tables, one behind the other, chunk by chunk, each read together with the end of the outbox."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.capture import port
from penstock.capture.port import SnapshotProgress, Table
from penstock.capture.postgres.copy.spool import chunk_batch
from penstock.capture.sqlite.tables import Row, SqliteTable, described, key_behind, quoted, read_rows
from penstock.capture.sqlite.values import json_keys, json_rows
from penstock.capture.triggers.position import Copied, named
from penstock.capture.triggers.sqlite.position import SqlitePosition
from penstock.capture.triggers.sqlite.setting_up import Shape
from penstock.core.time import Clock, SystemClock

ROWS = 10_000  # of a chunk: nobody's commit waits long for it


@dataclass(frozen=True)
class ReadChunk:
    """Rows of a table."""

    of: SqliteTable
    shape: int
    rows: Sequence[Row]
    done: bool  # there are no more


class Copies:
    """What is still to be copied; a table whose columns have changed is copied again."""

    def __init__(self, tables: Sequence[Table], clock: Clock | None = None) -> None:
        self._tables, self._clock = tables, clock or SystemClock()
        self._rows: dict[str, int] = {}

    def todo(self, position: SqlitePosition, shapes: Mapping[str, Shape]) -> list[Table]:
        return [table for table in self._tables if not _copied(position, table, shapes[table[1]].number).done]

    def read(self, connection: sqlite3.Connection, position: SqlitePosition, shapes: Mapping[str, Shape]) -> ReadChunk:
        (_, name), *_ = self.todo(position, shapes)
        of, shape = described(connection, name), shapes[name].number
        if name not in self._rows:
            ((self._rows[name],),) = connection.execute(f"select count(*) from {quoted(name)}").fetchall()
        rows = read_rows(connection, of, _copied(position, of.table, shape).after, ROWS)
        return ReadChunk(of, shape, rows, len(rows) < ROWS)

    def batch(self, chunk: ReadChunk, position: SqlitePosition) -> port.Batch:
        """The rows of a chunk as a transaction of their own behind the position; it has no intent yet."""
        of, name = chunk.of, named(chunk.of.table)
        before = _copied(position, of.table, chunk.shape)
        after = None if chunk.done else key_behind(of, chunk.rows)
        done = Copied(chunk.done, before.chunks + 1, before.rows + len(chunk.rows), after)
        number, time = position.transactions + 1, max(position.time, self._clock.now())
        copied, shapes = {**position.copied, name: done}, {**position.shapes, name: chunk.shape}
        behind = replace(position, transactions=number, time=time, copied=copied, shapes=shapes)
        places = [of.columns.index(column) for column in of.key]
        keys = json_keys(of.name, of.key, [tuple(row[i] for i in places) for row in chunk.rows])
        id = f"snapshot:{of.name}:{chunk.shape}:{done.chunks}"
        made = chunk_batch(of.table, keys, json_rows(of.columns, chunk.rows), id, number, time)
        return replace(made, position=behind.json(), tables={of.table: of.facts})

    def progress(self, position: SqlitePosition, shapes: Mapping[str, Shape]) -> list[SnapshotProgress]:
        return [
            SnapshotProgress(table, _copied(position, table, shapes[table[1]].number).rows, self._rows.get(table[1], 0))
            for table in self.todo(position, shapes)
        ]


def _copied(position: SqlitePosition, table: Table, shape: int) -> Copied:
    name = named(table)
    return position.copied.get(name, Copied()) if position.shapes.get(name) == shape else Copied()
