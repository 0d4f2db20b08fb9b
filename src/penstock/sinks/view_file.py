"""The database file of a view: made whole or not at all, opened only if it is what it says."""

import contextlib
import errno
import functools
import json
import os
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.columns import CRC, NUMBER
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import BadSchema, DamagedView, Mismatch, SinkError, SinkUnavailable
from penstock.sinks.port import SinkSpec
from penstock.sinks.view_checks import Sum, Sums, line_check
from penstock.sinks.view_tables import Layout, summed
from penstock.storage.home import make_private

APPLICATION = 0x50454E53  # "PENS", in the file's header
FORMAT = 2
UNCHECKED = 1  # the format without checksums, which is still read, and becomes this one when its flow runs
MARKER = "epoch, incarnation, generation, inputs, clock, frontier"
_SEALS = ("tables", "checksum", "epoch")  # lines of meta about the others, and the last epoch once more
_SETTINGS = ["PRAGMA synchronous = FULL", "PRAGMA cache_size = -65536", "PRAGMA foreign_keys = OFF", "PRAGMA temp_store = FILE"]

_NO_ROOM = 4874  # SQLITE_IOERR_SHMSIZE: the index of the log has no room
_PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, _NO_ROOM)
_MAKE_ROOM = "make room on the disk: nothing of the epoch was written; a live run goes on by itself, and the next start writes it"


@dataclass(frozen=True)
class Meta:
    """What a view is, as its database says."""

    flow: str
    name: str
    schema: Schema
    key: tuple[str, ...]
    updating: bool
    unique: bool

    @classmethod
    def of(cls, spec: SinkSpec) -> "Meta":
        """The schema goes through its text, as it will when it is read back."""
        return cls(spec.flow, spec.name, Schema.of(spec.schema.ddl()), spec.key, spec.updating, spec.unique)

    @property
    def layout(self) -> Layout:
        return Layout(self.schema, self.key, self.updating, self.unique)

    def lines(self) -> list[tuple[str, str]]:
        facts = {name: getattr(self, name) for name in ("flow", "name", "key", "updating", "unique")} | {
            "schema": self.schema.ddl()
        }
        return [(name, json.dumps(value)) for name, value in facts.items()]


def create(path: Path, meta: Meta, incarnation: str, generation: int) -> None:
    """Makes the database of a view that has no epoch yet. It appears under its name whole; one that is there already stays."""
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        _fill(draft, meta, incarnation, generation)
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        sync_directory(path.parent)
    finally:
        for left in (draft, draft.with_name(draft.name + "-wal"), draft.with_name(draft.name + "-shm")):
            left.unlink(missing_ok=True)


def _fill(path: Path, meta: Meta, incarnation: str, generation: int) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # for its owner alone; SQLite's other files follow it
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 8192")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN")
        _fill_tables(connection, meta, incarnation, generation)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")


def _fill_tables(connection: sqlite3.Connection, meta: Meta, incarnation: str, generation: int) -> None:
    for statement in meta.layout.create():
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    _write_meta(connection, meta)
    write_marker(connection, (-1, incarnation, generation, "{}", NEVER, NEVER), Sums())


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def connect(path: Path, name: str, read_only: bool = False) -> sqlite3.Connection:
    """Opens the database of a view; SinkError if it is damaged or not one of ours. It is never made here."""
    with refused(path, name):
        if not path.stat().st_size:  # SQLite would take an empty file for a new database
            raise sqlite3.DatabaseError("the file is empty")
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={read_only_mode(path) if read_only else 'rw'}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("BEGIN")  # one state of it, while its flow may write
            _check_format(connection, path, name)
            connection.execute("COMMIT")
            for setting in _SETTINGS:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection


def read_only_mode(path: Path) -> str:
    """How SQLite opens a database for reading. Where this user may not write beside it and nobody does, it must not try to either:
    then it cannot make the files that readers and writers share."""
    alone = not path.with_name(path.name + "-wal").exists() and not os.access(path.parent, os.W_OK)
    return "ro&immutable=1" if alone else "ro"


def _check_format(connection: sqlite3.Connection, path: Path, name: str) -> None:
    application, version = (connection.execute(f"PRAGMA {fact}").fetchone()[0] for fact in ("application_id", "user_version"))
    if application != APPLICATION:
        raise SinkError(f"{path.name} is not the database of a view", str(path), hint="move it away; another program made it")
    if version not in (UNCHECKED, FORMAT):
        raise SinkError(
            f"view {name!r} has format {version}, this Penstock reads format {FORMAT}",
            str(path),
            hint="use the version that wrote it",
        )
    columns = [line[1] for line in connection.execute("PRAGMA table_info(marker)")]
    if (CRC in columns) != (version == FORMAT) or (version == FORMAT and _text(connection, "checksum") is None):
        raise damaged(path, name, f"format {version} does not fit its tables")
    if version == FORMAT and _text(connection, "tables") != str(_tables(connection)):
        raise damaged(path, name, "the definition of its tables has changed")
    read_meta(connection)


def has_checks(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA user_version").fetchone()[0] == FORMAT)


def read_meta(connection: sqlite3.Connection) -> Meta:
    """sqlite3.DatabaseError where it is not what was written."""
    lines = connection.execute("SELECT name, value FROM meta ORDER BY name").fetchall()
    values = dict(lines)
    check = values.pop("checksum", None)
    if check is not None and check != str(line_check([line for line in lines if line[0] not in ("checksum", "epoch")])):
        raise sqlite3.DatabaseError("the checksum of its description does not match")
    try:
        return _meta_of(tuple((name, value) for name, value in values.items() if name not in _SEALS))
    except (KeyError, TypeError, ValueError, BadSchema) as error:
        raise sqlite3.DatabaseError(f"its description cannot be read: {error}") from error


@functools.lru_cache(256)  # readers ask for it with every row they look up, and it hardly ever changes
def _meta_of(lines: tuple[tuple[str, str], ...]) -> Meta:
    facts = {name: json.loads(value) for name, value in lines}
    return Meta(**facts | {"schema": Schema.of(facts["schema"]), "key": tuple(facts["key"])})


def _write_meta(connection: sqlite3.Connection, meta: Meta) -> None:
    lines = sorted([*meta.lines(), ("tables", str(_tables(connection)))])
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [*lines, ("checksum", str(line_check(lines)))])


def _text(connection: sqlite3.Connection, name: str) -> str | None:
    found = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return found and str(found[0])


def _tables(connection: sqlite3.Connection) -> int:
    return line_check(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall())


def reconcile(connection: sqlite3.Connection, wanted: Meta) -> None:
    """Lets the view gain nullable columns, and checksums; any other difference from what the flow wants is a Mismatch."""
    found = read_meta(connection)
    reason = _difference(found, wanted)
    if reason:
        raise Mismatch(f"view {wanted.name!r} is not what flow {wanted.flow!r} writes now: {reason}", hint=start_over(wanted.name))
    old = not has_checks(connection)
    if found.schema == wanted.schema and not old:
        return
    connection.execute("BEGIN IMMEDIATE")
    for statement in [*(wanted.layout.add_checks() if old else []), *wanted.layout.add_columns(found.schema)]:
        connection.execute(statement)
    if old:
        _first_sums(connection)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    _write_meta(connection, wanted)
    connection.execute("COMMIT")


def _first_sums(connection: sqlite3.Connection) -> None:
    """Of a view whose rows carry no checksums yet."""
    current, history = (connection.execute(summed(*of)).fetchone() for of in (("current",), ("history", NUMBER)))
    lines = connection.execute(f"SELECT {MARKER} FROM marker ORDER BY epoch").fetchall()
    for line in lines:
        write_marker(connection, line, Sums(Sum(*current), Sum(*history)))


def write_marker(connection: sqlite3.Connection, line: tuple[Any, ...], sums: Sums) -> None:
    """A line about an epoch, with what the view holds now."""
    whole = (*line, sums.text())
    into = f"INSERT OR REPLACE INTO marker ({MARKER}, sums, {CRC}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    connection.execute(into, (*whole, line_check(whole)))
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('epoch', ?)", (str(line[0]),))


def last_marker(connection: sqlite3.Connection, checks: bool = True) -> tuple[tuple[Any, ...], Sums | None]:
    """The line about the last epoch and what the view held after it; sqlite3.DatabaseError where it is not what was written."""
    columns = f"{MARKER}, sums, {CRC}" if checks else MARKER
    found = connection.execute(f"SELECT {columns} FROM marker ORDER BY epoch DESC LIMIT 1").fetchone()
    if found is None:
        raise sqlite3.DatabaseError("it has no last epoch")
    if not checks:
        return found, None
    if _text(connection, "epoch") != str(found[0]):
        raise sqlite3.DatabaseError(f"its last line is about epoch {found[0]}, and that was not the last one")
    if line_check(found[:-1]) != found[-1]:
        raise sqlite3.DatabaseError(f"the checksum of its line about epoch {found[0]} does not match")
    return found[:6], Sums.parsed(found[6])


def remake(connection: sqlite3.Connection, wanted: Meta, incarnation: str, generation: int) -> bool:
    """Makes the view anew in its file, at once or not at all, if no epoch was delivered to it: a flow that has delivered nothing
    owns nothing. False if it is another flow's, was written, or a later start of this flow has opened it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        epoch, life, started, *_ = last_marker(connection, has_checks(connection))[0]  # verified: what is lost is not nothing
        mine = read_meta(connection).flow == wanted.flow and (life != incarnation or started <= generation)
        if mine and epoch < 0:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                connection.execute(f'DROP TABLE "{table}"')
            _fill_tables(connection, wanted, incarnation, generation)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return bool(mine and epoch < 0)


def _difference(found: Meta, wanted: Meta) -> str | None:
    if found.flow != wanted.flow:
        return f"flow {found.flow!r} wrote it"
    if found.key != wanted.key:
        return f"its key is ({', '.join(found.key) or 'position'}), not ({', '.join(wanted.key) or 'position'})"
    if found.updating != wanted.updating:
        return f"its rows were {'updating' if found.updating else 'append-only'}"
    if found.unique != wanted.unique:
        return f"its keys were {'' if found.unique else 'not '}unique"
    return found.schema.can_become(wanted.schema)


def start_over(name: str) -> str:
    return (
        f"`penstock view drop {name}` starts the view over, `penstock flow reset` its flow with all outputs; "
        "or put back the state it belongs to"
    )


def damaged(path: Path, name: str, what: object) -> DamagedView:
    return DamagedView(
        f"view {name!r} is damaged: {what}",
        str(path),
        hint=f"restore the file, or let the flow build it again from the log: `penstock view drop {name}`, then run the flow; "
        "it says so if it has not kept that much, and then `penstock flow reset` starts it over",
    )


@contextlib.contextmanager
def refused(path: Path, name: str) -> Iterator[None]:
    """Turns what SQLite and the file system say into one paragraph about the view."""
    try:
        yield
    except sqlite3.Error as error:
        if not _outside(error):
            raise damaged(path, name, error) from error
        kind = SinkUnavailable if _code(error) in _PASSING else SinkError
        raise kind(f"view {name!r} cannot be used: {error}", str(path), hint=_hint(error)) from error
    except UnicodeDecodeError as error:  # a word of SQLite's that holds bytes of the file
        raise damaged(path, name, "there is text in it that is none") from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = _MAKE_ROOM if full else "look at the file, its directory and who may write there; nothing of the epoch was written"
        kind = SinkUnavailable if full else SinkError
        raise kind(f"view {name!r} cannot be used: {error.strerror or error}", str(path), hint=hint) from error


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0)  # only errors of SQLite itself have one


def _outside(error: sqlite3.Error) -> bool:
    """Whether something else than the bytes in the file is the cause."""
    words = ("locked", "full", "readonly", "unable to open", "disk I/O", "interrupted", "busy", "closed")
    return not isinstance(error, sqlite3.IntegrityError) and any(word in str(error) for word in words)


def _hint(error: sqlite3.Error) -> str | None:
    text = str(error)
    if "locked" in text:
        return "another process is writing it; is the flow running twice?"
    if "full" in text or _code(error) == _NO_ROOM:
        return _MAKE_ROOM
    return "look at the disk and at who may write there; nothing of the epoch was written, and the next start writes it"
