"""The database file of a view: made whole or not at all, opened only if it is what it says."""

import contextlib
import errno
import json
import os
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import Mismatch, SinkError, SinkUnavailable
from penstock.sinks.port import SinkSpec
from penstock.sinks.view_tables import Layout

APPLICATION = 0x50454E53  # "PENS", in the file's header
FORMAT = 1
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
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN")
        _fill_tables(connection, meta, incarnation, generation)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")


def _fill_tables(connection: sqlite3.Connection, meta: Meta, incarnation: str, generation: int) -> None:
    for statement in meta.layout.create():
        connection.execute(statement)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.lines())
    connection.execute("INSERT INTO marker VALUES (-1, ?, ?, '{}', ?, ?)", (incarnation, generation, NEVER, NEVER))


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
            f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _check_format(connection, path, name)
            for setting in _SETTINGS:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection


def _check_format(connection: sqlite3.Connection, path: Path, name: str) -> None:
    application, version = (connection.execute(f"PRAGMA {fact}").fetchone()[0] for fact in ("application_id", "user_version"))
    if application != APPLICATION:
        raise SinkError(f"{path.name} is not the database of a view", str(path), hint="move it away; another program made it")
    if version != FORMAT:
        raise SinkError(
            f"view {name!r} has format {version}, this Penstock reads format {FORMAT}",
            str(path),
            hint="use the version that wrote it",
        )
    connection.execute("SELECT count(*) FROM meta").fetchone()


def read_meta(connection: sqlite3.Connection) -> Meta:
    facts = {name: json.loads(value) for name, value in connection.execute("SELECT name, value FROM meta")}
    return Meta(**facts | {"schema": Schema.of(facts["schema"]), "key": tuple(facts["key"])})


def reconcile(connection: sqlite3.Connection, wanted: Meta) -> None:
    """Lets the view gain nullable columns; any other difference from what the flow wants is a Mismatch."""
    found = read_meta(connection)
    reason = _difference(found, wanted)
    if reason:
        raise Mismatch(f"view {wanted.name!r} is not what flow {wanted.flow!r} writes now: {reason}", hint=start_over(wanted.name))
    if found.schema != wanted.schema:
        connection.execute("BEGIN IMMEDIATE")
        for statement in wanted.layout.add_columns(found.schema):
            connection.execute(statement)
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", wanted.lines())
        connection.execute("COMMIT")


def remake(connection: sqlite3.Connection, wanted: Meta, incarnation: str, generation: int) -> bool:
    """Makes the view anew in its file, at once or not at all, if no epoch was delivered to it: a flow that has delivered nothing
    owns nothing. False if it is another flow's, was written, or a later start of this flow has opened it."""
    last = "SELECT incarnation, generation, epoch FROM marker ORDER BY epoch DESC LIMIT 1"
    connection.execute("BEGIN IMMEDIATE")
    try:
        life, started, epoch = connection.execute(last).fetchone()
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


@contextlib.contextmanager
def refused(path: Path, name: str) -> Iterator[None]:
    """Turns what SQLite and the file system say into one paragraph about the view."""
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = SinkUnavailable if _code(error) in _PASSING else SinkError
        raise kind(f"view {name!r} cannot be used: {error}", str(path), hint=_hint(error)) from error
    except sqlite3.DatabaseError as error:
        raise SinkError(
            f"view {name!r} is damaged: {error}",
            str(path),
            hint=f"restore the file, or `penstock view drop {name}` and let the flow write it again",
        ) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = _MAKE_ROOM if full else "look at the file, its directory and who may write there; nothing of the epoch was written"
        kind = SinkUnavailable if full else SinkError
        raise kind(f"view {name!r} cannot be used: {error.strerror or error}", str(path), hint=hint) from error


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0)  # only errors of SQLite itself have one


def _hint(error: sqlite3.OperationalError) -> str | None:
    text = str(error)
    if "locked" in text:
        return "another process is writing it; is the flow running twice?"
    if "full" in text or _code(error) == _NO_ROOM:
        return _MAKE_ROOM
    return "look at the disk and at who may write there; nothing of the epoch was written, and the next start writes it"
