"""The database file of groups: made whole or not at all, opened only if it is what it says."""

import contextlib
import os
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import Damaged, DiskFull, StorageError
from penstock.storage.home import make_private

APPLICATION = 0x50454E47  # "PENG", in the file's header
FORMAT = 2
UNCHECKED = 1  # the format without checksums; it becomes this one when it is opened
_SMALL = 4 << 20  # bytes of a file that is looked at as a whole when it is opened
_OUTSIDE = ("locked", "readonly", "unable to open", "disk I/O", "interrupted", "closed")  # the bytes are not to blame
WAIT = 30  # seconds for the writer before us
_TABLES = (
    """CREATE TABLE groups (
        name TEXT NOT NULL, topic TEXT NOT NULL, topic_id TEXT NOT NULL, generation INTEGER NOT NULL,
        crc INTEGER, PRIMARY KEY (name, topic)) WITHOUT ROWID, STRICT""",
    """CREATE TABLE members (
        name TEXT NOT NULL, topic TEXT NOT NULL, id TEXT NOT NULL, label TEXT NOT NULL, seat INTEGER NOT NULL,
        lease INTEGER NOT NULL, boot TEXT NOT NULL, renewed INTEGER NOT NULL,
        PRIMARY KEY (name, topic, id)) WITHOUT ROWID, STRICT""",
    """CREATE TABLE positions (
        name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, next INTEGER NOT NULL, moved INTEGER NOT NULL,
        owner TEXT, target TEXT, hand INTEGER, hand_since INTEGER,
        PRIMARY KEY (name, topic, partition)) WITHOUT ROWID, STRICT""",
)


def connect(path: Path) -> sqlite3.Connection:
    """Opens the file; makes it if it is not there."""
    if not path.exists():
        _create(path)
    mode = "rw" if os.access(path.parent, os.W_OK) else "ro" if path.with_name(path.name + "-wal").exists() else "ro&immutable=1"
    where = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(where, uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        _check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # for its owner alone
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            for statement in (f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {FORMAT}", *_TABLES):
                connection.execute(statement)
            connection.execute("PRAGMA journal_mode = WAL")
        with contextlib.suppress(FileExistsError):  # somebody else was quicker
            os.link(draft, path)
        _sync_directory(path.parent)
    finally:
        for left in (draft, draft.with_name(draft.name + "-wal"), draft.with_name(draft.name + "-shm")):
            left.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    application, version = (connection.execute(f"PRAGMA {fact}").fetchone()[0] for fact in ("application_id", "user_version"))
    if application != APPLICATION:
        raise Damaged(f"{path.name} does not hold groups", str(path), hint="move it away; another program made it, or it is empty")
    if version not in (UNCHECKED, FORMAT):
        raise StorageError(f"groups have format {version}, this Penstock reads {FORMAT}", str(path), hint="use the newer version")
    if path.stat().st_size < _SMALL and (found := connection.execute("PRAGMA integrity_check(1)").fetchone()) != ("ok",):
        raise sqlite3.DatabaseError(str(found[0]).strip().splitlines()[-1])
    if version == UNCHECKED:
        _add_checksums(connection)


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Of a group that was written before there were checksums it stays null until the group changes."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if "readonly" in str(error):
            return  # looking does not need them
        raise
    if connection.execute("PRAGMA user_version").fetchone()[0] == UNCHECKED:
        connection.execute("ALTER TABLE groups ADD COLUMN crc INTEGER")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def damaged(path: Path, what: object) -> Damaged:
    return Damaged(
        f"the groups are damaged: {what}",
        str(path),
        hint="restore the file, it holds committed offsets; or move it away, and set each group with `penstock group reset`",
    )


@contextlib.contextmanager
def refused(path: Path) -> Iterator[None]:
    """Turns what SQLite and the file system say into one paragraph."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "full" in text:
            raise DiskFull("the disk is full: the groups did not change", str(path), hint="make room and try again") from error
        if not any(word in text for word in _OUTSIDE):
            raise damaged(path, error) from error
        hint = "a process that was stopped in the middle of a change may hold it" if "locked" in text else None
        hint = "this user may look at them, but not change them" if "readonly" in text else hint
        raise StorageError(f"the groups cannot be used: {text}", str(path), hint=hint) from error
    except UnicodeDecodeError as error:
        raise damaged(path, "there is text in it that is none") from error
    except OSError as error:
        raise StorageError(f"the groups cannot be used: {error.strerror or error}", str(path)) from error
