"""Tables of SQLite: described, found by patterns, read by their key."""

import base64
import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from penstock.capture.port import Table, TableFacts
from penstock.capture.postgres.values.types import ddl_columns
from penstock.errors import NotFollowable, NotFound

Row = tuple[Any, ...]
MAIN = "main"  # what SQLite calls the schema of the file itself
_HIDDEN = 1  # a column of a virtual table that is none
# How SQLite itself takes a declared type, the first that fits; what it leaves open stays text.
_TYPES = (("INT", "long"), ("CHAR|CLOB|TEXT", "string"), ("BLOB", "binary"), ("REAL|FLOA|DOUB", "double"))
_NUMERIC = (("BOOL", "long"), ("DEC|NUM", "double"))


@dataclass(frozen=True)
class SqliteTable:
    """A table as it is now."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]  # as they were declared
    key: tuple[str, ...]
    unique: tuple[tuple[tuple[str, str], ...], ...] = ()  # columns and collations of other unique indexes
    odd: tuple[str, ...] = ()  # unique indexes over expressions

    @property
    def table(self) -> Table:
        return MAIN, self.name

    @property
    def facts(self) -> TableFacts:
        return TableFacts(ddl_columns([(name, ddl_type(of)) for name, of in zip(self.columns, self.types, strict=True)]), self.key)


def described(connection: sqlite3.Connection, name: str) -> SqliteTable:
    """NotFollowable if the table is not there, is none, or has no key."""
    found = connection.execute(
        "select type, sql from sqlite_master where name = ? and type in ('table', 'view')", (name,)
    ).fetchone()
    if found is None:
        raise NotFollowable(f"there is no table {name} any more", hint="was it renamed or dropped?")
    if found[0] != "table" or re.match(r"\s*create\s+virtual", str(found[1]), re.IGNORECASE):
        raise NotFollowable(f"{name} is no table of its own: nothing tells when its rows change")
    rows = [row for row in connection.execute(f"pragma table_xinfo({quoted(name)})") if row[6] != _HIDDEN]
    key = [row[1] for row in sorted((row for row in rows if row[5]), key=lambda row: int(row[5]))]
    if not key:
        hint = "SQLite adds none to a table that is there: make a new one with a primary key, and move the rows"
        raise NotFollowable(f"table {name} has no primary key: nothing tells which row a change is about", hint=hint)
    in_order = tuple(row[1] for row in rows if row[1] in key)
    unique, odd = _unique(connection, name)
    return SqliteTable(name, tuple(row[1] for row in rows), tuple(row[2] for row in rows), in_order, unique, odd)


def tables_of(connection: sqlite3.Connection, patterns: Sequence[str]) -> list[Table]:
    """The tables that patterns mean, in order. NotFound names a pattern that means none."""
    there = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table' order by 1") if _own(name)]
    found = set[str]()
    for pattern in patterns:
        plain = pattern.removeprefix(f"{MAIN}.").strip('"')
        meant = [name for name in there if fnmatchcase(name, plain)] or [n for n in there if fnmatchcase(n.lower(), plain.lower())]
        if not meant:
            hint = f"there are: {', '.join(there[:10])}" if there else "it has no tables"
            raise NotFound(f"{pattern!a} means no table of the database", hint=hint)
        found.update(meant)
    return [(MAIN, name) for name in sorted(found)]


def in_main(tables: Iterable[Table]) -> tuple[Table, ...]:
    """The same tables, each with the schema of the file itself, which may be left out. NotFollowable if one is of another."""
    found = tuple(tables)
    for schema, name in found:
        if schema not in ("", MAIN):
            raise NotFollowable(
                f"table {schema}.{name} is not in the file: only those of schema {MAIN} are", hint=f"leave {schema} out"
            )
    return tuple((MAIN, name) for _, name in found)


def read_rows(connection: sqlite3.Connection, of: SqliteTable, after: Sequence[Any] | None, limit: int) -> list[Row]:
    """At most so many rows behind a key, in the order of keys."""
    key = ", ".join(map(quoted, of.key))
    behind = f"where ({key}) > ({', '.join('?' * len(of.key))})" if after is not None else ""
    statement = f"select {', '.join(map(quoted, of.columns))} from {quoted(of.name)} {behind} order by {key} limit {limit}"
    return connection.execute(statement, [unpacked(each) for each in after or ()]).fetchall()


def key_behind(of: SqliteTable, rows: Sequence[Row]) -> tuple[Any, ...]:
    """The key of the last row, as JSON can have it."""
    return tuple(packed(rows[-1][of.columns.index(name)]) for name in of.key)


def packed(value: object) -> object:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def unpacked(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def ddl_type(declared: str) -> str:
    """The type in the schema of a topic. A column may hold other values than it was declared for; those of STRICT tables do not."""
    for words, meant in (*_TYPES, *_NUMERIC):
        if re.search(words, declared, re.IGNORECASE):
            return meant
    return "string"


def quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _own(name: str) -> bool:
    return not name.startswith(("sqlite_", "penstock_"))


def _unique(connection: sqlite3.Connection, name: str) -> tuple[tuple[tuple[tuple[str, str], ...], ...], tuple[str, ...]]:
    """The unique indexes beside the key: those over columns, and the names of those over expressions."""
    found, odd = list[tuple[tuple[str, str], ...]](), list[str]()
    for _, index, unique, origin, *_ in connection.execute(f"pragma index_list({quoted(name)})").fetchall():
        if unique and origin != "pk":
            parts = [row for row in connection.execute(f"pragma index_xinfo({quoted(index)})") if row[5]]
            if all(row[2] is not None for row in parts):
                found.append(tuple((row[2], row[4]) for row in parts))
            else:
                odd.append(index)
    return tuple(found), tuple(odd)
