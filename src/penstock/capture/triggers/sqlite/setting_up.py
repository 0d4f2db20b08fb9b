"""An outbox in a file of SQLite, looked at, made and removed."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import Finding
from penstock.capture.postgres.kind import slot_of
from penstock.capture.sqlite.connecting import SqliteFile, path_of
from penstock.capture.sqlite.tables import SqliteTable, described, quoted
from penstock.capture.triggers.sqlite.outbox_sql import EVENTS, SqliteOutboxSql
from penstock.errors import AlreadyThere, NotFollowable

OLDEST = (3, 35, 0)  # columns can be dropped, and triggers be relied on meanwhile


@dataclass(frozen=True)
class Shape:
    """The columns that a table had when its triggers were made."""

    number: int
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


def file_of(definition: CaptureDefinition) -> Path:
    return Path(definition.options["path"]) if "path" in definition.options else path_of(definition.url)


def outbox_of(definition: CaptureDefinition) -> SqliteOutboxSql:
    return SqliteOutboxSql(slot_of(definition))


def owner_of(definition: CaptureDefinition) -> str:
    return f"penstock capture {definition.name} {definition.id}"


@contextmanager
def opened(path: Path, writes: bool = False) -> Iterator[SqliteFile]:
    file = SqliteFile(path, writes)
    try:
        yield file
    finally:
        file.close()


def checked(definition: CaptureDefinition) -> list[Finding]:
    """Looks, and changes nothing."""
    found = [Finding("ok", f"SQLite {sqlite3.sqlite_version}")]
    if sqlite3.sqlite_version_info < OLDEST:
        found = [Finding("error", f"SQLite {sqlite3.sqlite_version} is too old; 3.35 is the oldest")]
    with opened(file_of(definition), writes=True) as file, file.reading() as connection:
        ((mode,),) = connection.execute("pragma journal_mode").fetchall()
        if mode != "wal":
            what = f"journal_mode is {mode!a}: who reads and who writes wait for each other"
            found.append(Finding("warning", what, ["pragma journal_mode = wal;"]))
        for _, name in definition.tables:
            found += _findings(connection, name)
    return found


def shapes_of(connection: sqlite3.Connection, outbox: SqliteOutboxSql) -> dict[int, Shape]:
    """All that were ever noted down."""
    found = connection.execute(f"select id, name, columns from {outbox.shapes}").fetchall()
    told = [(number, name, orjson.loads(columns)) for number, name, columns in found]
    return {number: Shape(number, name, tuple(of["columns"]), tuple(of["key"])) for number, name, of in told}


def installed(connection: sqlite3.Connection, outbox: SqliteOutboxSql) -> dict[str, Shape]:
    """The last shape of each table whose triggers are there."""
    there = {name for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'")}
    shapes = {shape.table: shape for shape in shapes_of(connection, outbox).values()}
    return {name: shape for name, shape in shapes.items() if all(outbox.trigger(name, "after", event) in there for event in EVENTS)}


def planned(connection: sqlite3.Connection, definition: CaptureDefinition) -> list[str]:
    """What is missing, executed as one transaction."""
    outbox, owner = outbox_of(definition), owner_of(definition)
    mine = _owner(connection, outbox)
    if mine is not None and mine != owner:
        raise AlreadyThere(
            f"there is an outbox {outbox.name} in the file already, and it is not this capture's", hint="choose another name"
        )
    there = installed(connection, outbox) if mine is not None else {}
    numbers = iter(range(len(shapes_of(connection, outbox)) + 1 if mine is not None else 1, 1 << 31))
    made = [] if mine is not None else outbox.tables(owner.replace("'", ""))
    tables = [described(connection, name) for _, name in definition.tables]
    missing = [of for of in tables if of.name not in there or not _same(of, there[of.name])]
    wide = _width(connection, outbox) if mine is not None else 0
    made += outbox.columns(wide, max((len(of.columns) for of in missing), default=0))
    return made + [statement for of in missing for statement in followed(outbox, of, next(numbers))]


def followed(outbox: SqliteOutboxSql, of: SqliteTable, shape: int) -> list[str]:
    """Notes down a table's columns and makes its triggers, in place of those that are there."""
    told = orjson.dumps({"columns": of.columns, "key": of.key}).decode().replace("'", "''")
    name = of.name.replace("'", "''")
    return [
        *outbox.without(of.name),
        f"insert into {outbox.shapes} values ({shape}, '{name}', '{told}');",
        *outbox.triggers(of, shape),
    ]


def make(definition: CaptureDefinition) -> None:
    with opened(file_of(definition), writes=True) as file, file.writing() as connection:
        for statement in planned(connection, definition):
            connection.execute(statement)


def remove(definition: CaptureDefinition) -> list[str]:
    """Removes triggers and the outbox; says what it has removed. An outbox of somebody else stays."""
    outbox = outbox_of(definition)
    with opened(file_of(definition), writes=True) as file, file.writing() as connection:
        owner = _owner(connection, outbox)
        if owner is None:
            return []
        if owner != owner_of(definition):
            return [f"the outbox {outbox.name} was made by somebody else and stays"]
        tables = sorted({shape.table for shape in shapes_of(connection, outbox).values()})
        for statement in [*(each for table in tables for each in outbox.without(table)), *outbox.gone()]:
            connection.execute(statement)
    return [*(f"triggers on {quoted(table)} are dropped" for table in tables), f"the outbox {outbox.name} is dropped"]


def _same(of: SqliteTable, shape: Shape) -> bool:
    return (of.columns, of.key) == (shape.columns, shape.key)


def _owner(connection: sqlite3.Connection, outbox: SqliteOutboxSql) -> str | None:
    name = f"{outbox.name}_about"
    if not connection.execute("select 1 from sqlite_master where name = ?", (name,)).fetchone():
        return None
    found = connection.execute(f"select owner from {outbox.about}").fetchone()
    return str(found[0]) if found else ""


def _width(connection: sqlite3.Connection, outbox: SqliteOutboxSql) -> int:
    """For how many columns there is room."""
    return sum(row[1].startswith("old") for row in connection.execute(f"pragma table_info({outbox.outbox})"))


def _findings(connection: sqlite3.Connection, name: str) -> Iterator[Finding]:
    try:
        of = described(connection, name)
    except NotFollowable as error:
        yield Finding("error", error.what, [error.hint] if error.hint else [])
        return
    yield Finding("ok", f"table {name} can be followed")
    if of.odd:
        what = f"table {name}: a row that REPLACE removes because of an index over expressions ({', '.join(of.odd)}) is not noticed"
        yield Finding("warning", what)
