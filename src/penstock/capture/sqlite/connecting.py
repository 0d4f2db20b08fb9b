"""Connections to files of SQLite; errors are translated here, and a file that was replaced is noticed."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

from penstock.errors import BadInput, CaptureError, Disconnected, NotFollowable, PenstockError

SCHEME = "sqlite:///"
BUSY = 10.0  # seconds in which another connection should come to its end
_PASSING = {"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_NOMEM", "SQLITE_PROTOCOL", "SQLITE_INTERRUPT"}
_REFUSED = {"SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_CANTOPEN"}


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite:")


def path_of(url: str) -> Path:
    """The file: of `sqlite:///shop.db` one in this directory, of `sqlite:////data/shop.db` one from the root on."""
    path = unquote(url.removeprefix(SCHEME))
    if not url.startswith(SCHEME) or not path:
        raise BadInput(f"{url!a} names no file of SQLite", hint="sqlite:///shop.db, or sqlite:////data/shop.db from the root on")
    return Path(path).absolute()


class SqliteFile:
    """A file of SQLite, open. `connection` commits each statement."""

    def __init__(self, path: Path, writes: bool = False, busy: float = BUSY) -> None:
        self.path = path
        if not path.is_file():
            raise NotFollowable(f"there is no file {path}", hint="the URL names it: sqlite:////data/shop.db")
        self._identity = _identity(path)
        with translated(f"open {path}"):
            uri = f"file:{quote(str(path))}?mode={'rw' if writes else 'ro'}"
            self.connection = sqlite3.connect(uri, timeout=busy, isolation_level=None, uri=True, check_same_thread=False)
            self.connection.text_factory = _text
            self.connection.execute("select count(*) from sqlite_master").fetchone()

    def check_same(self) -> None:
        """NotFollowable if another file has taken its place: what is written there is not seen here."""
        if not self.path.exists() or _identity(self.path) != self._identity:
            raise NotFollowable(
                f"the file {self.path} was replaced or removed while it was followed",
                hint="restore it, or begin anew: penstock cdc remove, then cdc add",
            )

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One state of the file for all that is read inside."""
        with self._transaction("begin") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All that is written inside, or nothing."""
        with self._transaction("begin immediate") as connection:
            yield connection

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with translated(f"read or write {self.path}"):
            self.connection.execute(begin)
            try:
                yield self.connection
                self.connection.execute("commit")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("rollback")
                raise


@contextmanager
def translated(what: str) -> Iterator[None]:
    """What SQLite raises inside comes out as one of ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _of(error, what) from error


def _of(error: sqlite3.Error, what: str) -> PenstockError:
    name = str(getattr(error, "sqlite_errorname", ""))
    plain = "_".join(name.split("_")[:2])
    if plain in _PASSING:
        return Disconnected(f"cannot {what}: {error}")
    if plain in _REFUSED:
        return NotFollowable(f"cannot {what}: {error}", hint="the file and its directory must be open to this user")
    return CaptureError(f"cannot {what}", str(error), name)


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
