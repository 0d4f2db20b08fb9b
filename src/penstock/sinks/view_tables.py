"""The tables of a view's database, as SQL.

`current` holds the row of each key, clustered by it. A version that was replaced or deleted moves to `history`, so a view whose
rows never change writes each row once. `__since` and `__until` are the epochs between which a version was the current one.
`marker` has one line per delivered epoch, `meta` says what the view is. `__crc` is the checksum of a row; of one in history, with
what tells when the version ended above its lower 32 bits. It is null where an older Penstock wrote the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from penstock.core.columns import CRC, DELETED, LIVE, NUMBER, POSITION, SINCE, TIME, UNTIL
from penstock.core.schema import Schema
from penstock.sinks.sqlite_values import affinity

LOW = 0xFFFFFFFF  # the part of a checksum that is the row's own
ENDS = (1 << 30) - 1
KEPT_MARKERS = 10_000

_BOOKS = [
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE marker (epoch INTEGER PRIMARY KEY, incarnation TEXT NOT NULL, generation INTEGER NOT NULL, "
    f"inputs TEXT NOT NULL, clock INTEGER NOT NULL, frontier INTEGER NOT NULL, sums TEXT, {CRC} INTEGER)",
]


@dataclass(frozen=True)
class Layout:
    """Where the columns of a view are, and the statements that move rows."""

    schema: Schema
    key: tuple[str, ...]  # as the flow names it; () = the row's position
    updating: bool
    unique: bool = False
    checks: bool = True  # whether the file has a place for checksums

    @cached_property
    def clustered(self) -> tuple[str, ...]:
        """The key in the order of the disk: window_start first, since windows close together and are written together."""
        return tuple(sorted(self.key, key=lambda name: name != "window_start")) or (POSITION,)

    @cached_property
    def fields(self) -> list[pa.Field]:
        """The columns every version has: the schema's, then event time and, where it can tell two versions apart, position."""
        position = [] if self.unique and self.key else [pa.field(POSITION, pa.binary(), False)]
        return [*self.schema, pa.field(TIME, pa.int64(), False), *position]

    @cached_property
    def order(self) -> tuple[str, ...]:
        """What the versions of a key are ordered by."""
        return tuple(f.name for f in self.fields[len(self.schema.names) :])

    @property
    def names(self) -> list[str]:
        return [f.name for f in self.fields]

    @cached_property
    def checked(self) -> list[str]:
        """The columns that a checksum is over. The schema's come last: it grows at its end."""
        return [*self.order, *self.schema.names]

    def create(self) -> list[str]:
        columns, key = self._columns(), listed(self.clustered)
        return [
            *_BOOKS,
            f"CREATE TABLE current ({columns}, {SINCE} INTEGER NOT NULL, {CRC} INTEGER, PRIMARY KEY ({key})) WITHOUT ROWID",
            f"CREATE TABLE history ({NUMBER} INTEGER PRIMARY KEY, {columns}, {SINCE} INTEGER NOT NULL, {UNTIL} INTEGER NOT NULL, "
            f"{DELETED} INTEGER NOT NULL, {CRC} INTEGER)",
            f"CREATE INDEX history_by_key ON history ({key})",
        ]

    def create_incoming(self) -> list[str]:
        """Where the rows of one epoch are compared with the current ones: all of them, and the last of each key."""
        more = f"{CRC} INTEGER, {LIVE} INTEGER NOT NULL, {NUMBER} INTEGER NOT NULL"
        columns, key = f"{self._columns()}, {more}", listed(self.clustered)
        return [
            f"CREATE TEMP TABLE incoming ({columns}, PRIMARY KEY ({key}, {LIVE}, {listed(self.order)}, {NUMBER})) WITHOUT ROWID",
            f"CREATE TEMP TABLE latest ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID",
        ]

    def add_columns(self, old: Schema) -> list[str]:
        new = [f for f in self.schema if f.name not in old]
        return [f"ALTER TABLE {table} ADD COLUMN {_column(f)}" for f in new for table in ("current", "history")]

    def add_checks(self) -> list[str]:
        """Turns the tables of format 1, which had no checksums, into these."""
        check = f"{CRC} INTEGER"
        places = [("current", check), ("history", check), ("marker", "sums TEXT"), ("marker", check)]
        return [f"ALTER TABLE {table} ADD COLUMN {column}" for table, column in places]

    def insert_current(self) -> str:
        """One new row with a key that is not there; the checksum and the epoch are the last values."""
        return f"INSERT INTO current ({listed(self.names)}, {CRC}, {SINCE}) VALUES ({_marks(len(self.names) + 2)})"

    def insert_incoming(self) -> str:
        return f"INSERT INTO incoming ({listed(self.names)}, {CRC}, {LIVE}, {NUMBER}) VALUES ({_marks(len(self.names) + 3)})"

    def merge(self) -> list[str]:
        """Brings `incoming` into `current` and `history`; :epoch is the epoch."""
        key, history = listed(self.clustered), f"INSERT INTO history ({self._version()})"
        return [
            "DELETE FROM latest",
            # The last of each key stays, since it comes last.
            f"INSERT OR REPLACE INTO latest SELECT * FROM incoming ORDER BY {key}, {LIVE}, {listed(self.order)}, {NUMBER}",
            *([] if self.updating else self._keep_older()),
            f"{history} SELECT {self._of('c')}, c.{SINCE}, {_ended('c')} {self._met()}",
            f"{history} SELECT {self._of('l')}, :epoch, {_ended('l', 1)} FROM latest l WHERE l.{LIVE} = 0",
            f"DELETE FROM current WHERE ({key}) IN (SELECT {key} FROM latest WHERE {LIVE} = 0)",
            f"INSERT OR REPLACE INTO current ({listed(self.names)}, {CRC}, {SINCE}) "
            f"SELECT {self._of('l')}, l.{CRC}, :epoch FROM latest l WHERE l.{LIVE} = 1",
            "DELETE FROM incoming",
        ]

    def _keep_older(self) -> list[str]:
        """The current row has the greatest (time, position), in whatever order rows come: others are history at once."""
        older = f"({_of('l', self.order)}) < ({_of('c', self.order)})"
        history = f"INSERT INTO history ({self._version()})"
        return [
            f"{history} SELECT {self._of('i')}, :epoch, {_ended('i')} FROM incoming i CROSS JOIN latest l "
            f"WHERE {self.same_key('i', 'l')} AND i.{NUMBER} <> l.{NUMBER}",
            f"{history} SELECT {self._of('l')}, :epoch, {_ended('l')} {self._met()} AND {older}",
            f"DELETE FROM latest AS l WHERE EXISTS (SELECT 1 FROM current c WHERE {self.same_key('c', 'l')} AND {older})",
        ]

    def same_key(self, a: str, b: str) -> str:
        return " AND ".join(f"{a}.{quoted(name)} = {b}.{quoted(name)}" for name in self.clustered)

    def _met(self) -> str:
        # CROSS JOIN keeps the order: few new rows, each looked up among many.
        return f"FROM latest l CROSS JOIN current c WHERE {self.same_key('c', 'l')}"

    def _version(self) -> str:
        return f"{listed(self.names)}, {SINCE}, {UNTIL}, {DELETED}, {CRC}"

    def _of(self, table: str) -> str:
        return _of(table, self.names)

    def _columns(self) -> str:
        return ", ".join(_column(f) for f in self.fields)


def summed(table: str, number: str = "0", where: str = "1") -> str:
    """How many rows these are, the sum of their checksums, how many have none, and the sum of their numbers."""
    return (
        f"SELECT count(*), coalesce(sum({CRC} & {LOW}), 0), coalesce(sum({CRC} IS NULL), 0), coalesce(sum({number}), 0) "
        f"FROM {table} WHERE {where}"
    )


def _ended(table: str, deleted: int = 0) -> str:
    """The columns of a version that ends with this epoch: when it ended, whether by a delete, and its checksum with both."""
    return f":epoch, {deleted}, ({table}.{CRC} & {LOW}) + ((:epoch * 2 + {deleted}) % {ENDS}) * {LOW + 1}"


def quoted(name: str) -> str:
    return f'"{name}"'


def listed(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _of(table: str, names: Sequence[str]) -> str:
    return ", ".join(f"{table}.{quoted(name)}" for name in names)


def _column(f: pa.Field) -> str:
    return f"{quoted(f.name)} {affinity(f.type)}".rstrip()


def _marks(count: int) -> str:
    return ", ".join("?" * count)
