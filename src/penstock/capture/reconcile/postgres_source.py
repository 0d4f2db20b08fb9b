"""A PostgreSQL at one snapshot, for a reconcile: a transaction that only reads, held open until everything is compared."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.capture.definition import CaptureDefinition
from penstock.capture.port import Flags, Places, Table
from penstock.capture.postgres.connecting import connect, translated
from penstock.capture.postgres.copy.published import about_rows, published_columns, published_tables
from penstock.capture.postgres.copy.snapshots import Snapshot
from penstock.capture.postgres.keys import Key, Keys
from penstock.capture.postgres.kind import slot_of
from penstock.capture.postgres.lsn import lsn_text
from penstock.capture.postgres.position import WalPosition, named
from penstock.capture.postgres.slots import describe_slot
from penstock.capture.postgres.stream.converting import Shape
from penstock.capture.postgres.values.json_values import json_objects, json_values
from penstock.capture.postgres.values.types import Types
from penstock.capture.postgres.wal import end_of_log
from penstock.capture.reconcile.csv_ranges import csv_ranges
from penstock.capture.reconcile.source import Described, Rows
from penstock.capture.writing.journal import CaptureState
from penstock.core.arrow import one_array
from penstock.errors import NotFollowable

if TYPE_CHECKING:
    import pyarrow as pa

_BITS = 0xFFFFFFFF  # of a transaction's id that the log has
# Ids come again after some four billion transactions, which write more bytes than this; none stays invisible so long.
_OLD = 64 << 30
# The transaction waits while the log is read: nobody should end it for that.
_PATIENT = """
select set_config(name, '0', false) from pg_settings
where name in ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout', 'lock_timeout')"""

_NOW = """
select pg_current_snapshot()::text, (extract(epoch from clock_timestamp()) * 1000000)::bigint, current_database()::text"""


class TypedColumn(Protocol):
    """A column of a table."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> int: ...
    @property
    def modifier(self) -> int: ...


class AtSnapshot(ABC):
    """Taken as it is made. Disconnected if the connection ends: everything has to be compared anew then."""

    def __init__(self, definition: CaptureDefinition) -> None:
        self._connection = connect(definition.url, f"penstock reconcile {definition.name}", password=definition.secret.read())
        try:
            with translated("take a snapshot of the database"):
                self._connection.execute(_PATIENT)
                self._connection.execute("begin isolation level repeatable read read only")
                ((text, self.time, self.database),) = self._connection.execute(_NOW)
            self.seen = Snapshot.parse(text)
            self.high = end_of_log(self._connection)
        except BaseException:
            self._connection.close()
            raise
        self._types, self._keys = Types(self._connection), Keys(self._connection)
        self._tables: dict[Table, tuple[Sequence[TypedColumn], Key]] = {}

    @property
    def snapshot(self) -> str:
        return str(self.seen)

    @property
    def position(self) -> str:
        return lsn_text(self.high)

    def describe(self, table: Table) -> Described:
        shape = self._shape(table)
        return Described(shape.names, shape.facts, about_rows(self._connection, table))

    def ranges(self, table: Table) -> Iterator[Rows]:
        shape = self._shape(table)
        with translated(f"read table {'.'.join(table)}"):
            for rows in csv_ranges(self._connection, self._statement(table), shape.names):
                yield _converted(rows, shape)

    def close(self) -> None:
        self._connection.close()

    @abstractmethod
    def _columns(self, table: Table) -> "Sequence[TypedColumn]":
        """Those that the capture writes. NotFollowable if it does not know the table."""

    def _described(self, table: Table) -> "tuple[Sequence[TypedColumn], Key]":
        if table not in self._tables:
            self._tables[table] = self._columns(table), self._keys.of_table(table)
        return self._tables[table]

    def _shape(self, table: Table) -> Shape:
        columns, key = self._described(table)
        types = self._types.all(column.type for column in columns)
        names, modifiers = tuple(column.name for column in columns), tuple(column.modifier for column in columns)
        places = tuple(names.index(name) for name in key.columns)
        return Shape(names, tuple(types[column.type] for column in columns), modifiers, places)

    def _statement(self, table: Table) -> Any:
        from psycopg import sql

        columns, key = self._described(table)
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
        order = sql.SQL(", ").join(sql.Identifier(name) for name in key.by_index)
        statement = sql.SQL("copy (select {} from {} order by {}) to stdout (format csv, force_quote *)")
        return statement.format(names, sql.Identifier(*table), order)


class PostgresSnapshot(AtSnapshot):
    """For captures that read the server's log. One that says it has caught up has everything that the snapshot sees."""

    def __init__(self, definition: CaptureDefinition) -> None:
        self._slot = self._publication = slot_of(definition)
        super().__init__(definition)

    believes = True

    def sees(self, xids: Places, lsns: Places) -> Flags:
        there = (xids >= 0) & (lsns >= self.high - _OLD)
        found = np.ones(len(xids), np.bool_)
        found[there] = self.seen.sees((xids[there] & _BITS).astype(np.uint32))
        return found

    def copied(self, state: CaptureState, tables: Sequence[Table]) -> bool:
        if state.position is None:
            return False
        found, now = WalPosition.of(state.position).copied, published_tables(self._connection, self._publication)
        done = {name for name, each in found.items() if each.done}
        return all(named(table) in done and found[named(table)].identity == now.get(table) for table in tables)

    def reached(self, state: CaptureState) -> bool:
        """What a slot was told is durable here: it is confirmed behind the commit point, never before."""
        if state.position is None:
            return False
        if WalPosition.of(state.position).end >= self.high:
            return True
        slot = describe_slot(self._connection, self._slot)
        return slot is not None and slot.confirmed_lsn is not None and slot.confirmed_lsn >= self.high

    def _columns(self, table: Table) -> "Sequence[TypedColumn]":
        columns = published_columns(self._connection, self._publication, table)
        if not columns:
            raise NotFollowable(f"there is no table {'.'.join(table)} in publication {self._publication!a}")
        return columns


def _converted(rows: "pa.Table", shape: Shape) -> Rows:
    values = [json_values(one_array(rows.column(i)), of_type) for i, of_type in enumerate(shape.types)]
    keys = json_objects([shape.names[i] for i in shape.key], [values[i] for i in shape.key])
    return Rows(keys, json_objects(shape.names, values))
