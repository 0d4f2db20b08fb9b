"""An outbox in a file of SQLite as a reader sees it: rows in the order of their commits."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.capture.port import CREATE, DELETE, UPDATE, Changes
from penstock.capture.sqlite.tables import MAIN, Row
from penstock.capture.sqlite.values import json_keys, json_rows
from penstock.capture.triggers.ordering import in_order
from penstock.capture.triggers.sqlite.outbox_sql import SqliteOutboxSql
from penstock.capture.triggers.sqlite.setting_up import Shape
from penstock.errors import SlotLost

ROWS, BYTES = 20_000, 16 << 20  # that are given out together
REMOVED = 5_000  # rows that are removed together, while nobody else can write
_OPS = {"c": CREATE, "u": UPDATE, "d": DELETE}
_SEQ, _SHAPE, _OP, _AT, _VALUES = range(5)


@dataclass(frozen=True)
class About:
    """An outbox as it says itself."""

    id: str
    windows: int  # of those that were removed from it
    seq: int  # the greatest that was ever given


class SqliteOutbox:
    """Reads and empties it, in the transactions of others."""

    def __init__(self, sql: SqliteOutboxSql, bound: int = ROWS) -> None:
        """bound: how many rows are given out together."""
        self._sql, self._bound = sql, bound

    def about(self, connection: sqlite3.Connection) -> About:
        """SlotLost if it is not there."""
        name = f"{self._sql.name}_about"
        found = None
        if connection.execute("select 1 from sqlite_master where name = ?", (name,)).fetchone():
            found = connection.execute(f"select id, windows from {self._sql.about}").fetchone()
        if found is None:
            raise SlotLost(
                f"the outbox {self._sql.name} is not there any more: changes since then are missing",
                hint="`penstock cdc remove` and `cdc add` begin anew",
            )
        sequence = "select seq from sqlite_sequence where name = ?"
        seq = connection.execute(sequence, (f"{self._sql.name}_outbox",)).fetchone()
        return About(found[0], found[1], seq[0] if seq else 0)

    def end(self, connection: sqlite3.Connection) -> int:
        """The greatest seq of a change; 0 if there is none."""
        found = connection.execute(f"select seq from {self._sql.outbox} where op <> 'm' order by seq desc limit 1").fetchone()
        return int(found[0]) if found else 0

    def rows(self, connection: sqlite3.Connection, after: int, upto: int, bounded: bool = True) -> list[Row]:
        """The changes behind one seq and up to another, in parts of about BYTES if bounded."""
        query = f"select * from {self._sql.outbox} where seq > ? and seq <= ? and op <> 'm' order by seq"
        found, size, cursor = list[Row](), 0, connection.execute(query, (after, upto))
        while more := cursor.fetchmany(min(500, self._bound)):
            found += more
            size += sum(len(value) for row in more for value in row if isinstance(value, str | bytes))
            if bounded and (size > BYTES or len(found) >= self._bound):
                break
        return found

    def width(self, connection: sqlite3.Connection) -> int:
        """For how many columns of a table there is room."""
        return sum(row[1].startswith("old") for row in connection.execute(f"pragma table_info({self._sql.outbox})"))

    def remove(self, connection: sqlite3.Connection, upto: int, windows: int) -> bool:
        """Removes some rows up to a seq; whether there may be more."""
        connection.execute(f"update {self._sql.about} set windows = ? where windows < ?", (windows, windows))
        some = f"select seq from {self._sql.outbox} where seq <= ? order by seq limit {REMOVED}"
        return connection.execute(f"delete from {self._sql.outbox} where seq in ({some})", (upto,)).rowcount >= REMOVED


def changes_of(rows: Sequence[Row], shapes: Mapping[int, Shape]) -> list[Changes]:
    """Rows of an outbox as changes, in one transaction."""
    by_shape: dict[int, list[Row]] = {}
    for row in rows:
        by_shape.setdefault(row[_SHAPE], []).append(row)
    return [in_order(_changes(mine, shapes[number])) for number, mine in by_shape.items()]


def times_of(rows: Sequence[Row]) -> int:
    return max(int(row[_AT]) for row in rows)


def seq_of(row: Row) -> int:
    return int(row[_SEQ])


def _changes(rows: Sequence[Row], shape: Shape) -> Changes:
    """A change of the key is a delete of the old one and a create of the new one."""
    key = [shape.columns.index(name) for name in shape.key]
    changes = list[tuple[int, str, Row | None, Row | None]]()
    for row in rows:
        old, new = row[_VALUES::2][: len(shape.columns)], row[_VALUES + 1 :: 2][: len(shape.columns)]
        seq, op = row[_SEQ], row[_OP]
        if op == "u" and any(old[i] != new[i] for i in key):
            changes += [(seq, "d", old, None), (seq, "c", None, new)]
        else:
            changes.append((seq, op, None if op == "c" else old, None if op == "d" else new))
    keys = [tuple((new or old or ())[i] for i in key) for _, _, old, new in changes]
    return Changes(
        (MAIN, shape.table),
        np.array([_OPS[op] for _, op, _, _ in changes], np.uint8),
        json_keys(shape.table, shape.key, keys),
        _objects(shape, [old for _, _, old, _ in changes]),
        _objects(shape, [new for _, _, _, new in changes]),
        np.zeros(len(changes), np.int64),
        np.array([seq for seq, _, _, _ in changes], np.int64),
    )


def _objects(shape: Shape, rows: Sequence[Row | None]) -> pa.Array:
    there = np.array([row is not None for row in rows], np.bool_)
    found = json_rows(shape.columns, [row for row in rows if row is not None])
    return found if there.all() else found.take(pa.array(np.cumsum(there) - 1, pa.int64(), mask=~there))
