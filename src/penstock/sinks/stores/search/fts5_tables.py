"""The file of a search index: a table of rows and SQLite's FTS5 over their texts, which triggers keep equal."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import DamagedStore, SinkError, SinkUnavailable
from penstock.sinks.sqlite_values import affinity
from penstock.sinks.stores.port import AFRESH
from penstock.sinks.stores.search.index import IndexMeta
from penstock.sinks.view_file import read_only_mode, sync_directory
from penstock.storage.home import make_private

APPLICATION = 0x50454E46  # "PENF", in the file's header
FORMAT = 1
SUFFIX = ".db"
WAIT_SECONDS = 10.0
ID, WORDS = "__id", "__words"  # the number of a row; the table of FTS5
TOKENIZERS = {"words": "unicode61", "english": "porter unicode61", "trigrams": "trigram"}
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    """Opens the file; to write, makes it where it is missing."""
    if not read_only and not path.exists():
        make_private(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))  # for its owner alone; SQLite's other files follow it
        sync_directory(path.parent)
    mode = read_only_mode(path) if read_only else "rw"
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=WAIT_SECONDS
    )
    settings = ["trusted_schema = OFF", "query_only = ON"] if read_only else ["journal_mode = WAL", "synchronous = FULL"]
    for setting in settings:
        connection.execute(f"PRAGMA {setting}")
    return connection


def prepare(connection: sqlite3.Connection, wanted: IndexMeta, called: str) -> None:
    """Makes the tables, or adds columns that are new; Mismatch or SinkError if what is there is something else."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            found = read_meta(connection, called)
            found.check_becomes(wanted, called)
            for f in wanted.schema:
                if f.name not in found.schema:
                    connection.execute(f'ALTER TABLE rows ADD COLUMN "{f.name}" {affinity(f.type)}')
        else:
            for statement in _tables(wanted):
                connection.execute(statement)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('index', ?)", (wanted.described(),))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def read_meta(connection: sqlite3.Connection, called: str) -> IndexMeta:
    application, version = (connection.execute(f"PRAGMA {fact}").fetchone()[0] for fact in ("application_id", "user_version"))
    if application != APPLICATION:
        raise SinkError(f"{called} is no search index", hint="move the file away; another program made it")
    if version != FORMAT:
        raise SinkError(f"{called} has format {version}, this Penstock reads format {FORMAT}", hint="use the version that wrote it")
    try:
        return IndexMeta.parsed(connection.execute("SELECT value FROM meta WHERE name = 'index'").fetchone()[0])
    except (ValueError, TypeError) as error:
        raise DamagedStore(f"{called} is damaged: {error}", hint=AFRESH) from error


def listed(names: Iterable[str], of: str = "") -> str:
    """Columns in a statement; of: a table that they belong to, with its dot."""
    return ", ".join(f'{of}"{name}"' for name in names)


def _tables(meta: IndexMeta) -> list[str]:
    """`__texts` gives FTS5 the columns under names of their own: it keeps some, such as rank, for itself."""
    columns = ", ".join(f'"{f.name}" {affinity(f.type)}'.strip() for f in meta.fields)
    numbers = ", ".join(f"t{i}" for i in range(len(meta.text)))
    texts = ", ".join(f'"{name}" AS t{i}' for i, name in enumerate(meta.text))
    new, old = listed(meta.text, "new."), listed(meta.text, "old.")
    put = f"INSERT INTO {WORDS} (rowid, {numbers}) VALUES (new.{ID}, {new});"
    take_out = f"INSERT INTO {WORDS} ({WORDS}, rowid, {numbers}) VALUES ('delete', old.{ID}, {old});"
    options = f"content = '__texts', content_rowid = '{ID}', tokenize = '{TOKENIZERS[meta.words]}'"
    return [
        f"PRAGMA application_id = {APPLICATION}",
        f"PRAGMA user_version = {FORMAT}",
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE marker (flow TEXT, sink TEXT, incarnation TEXT NOT NULL, generation INTEGER NOT NULL, "
        "epoch INTEGER NOT NULL, PRIMARY KEY (flow, sink)) WITHOUT ROWID",
        "CREATE TABLE refused (n INTEGER PRIMARY KEY, part BLOB NOT NULL)",
        f"CREATE TABLE rows ({ID} INTEGER PRIMARY KEY, {columns}, UNIQUE ({listed(meta.identity)}))",
        f"CREATE VIEW __texts AS SELECT {ID}, {texts} FROM rows",
        f"CREATE VIRTUAL TABLE {WORDS} USING fts5({numbers}, {options})",
        f"CREATE TRIGGER row_put AFTER INSERT ON rows BEGIN {put} END",
        f"CREATE TRIGGER row_gone AFTER DELETE ON rows BEGIN {take_out} END",
        f"CREATE TRIGGER row_changed AFTER UPDATE ON rows WHEN ({old}) IS NOT ({new}) BEGIN {take_out} {put} END",
    ]


@contextmanager
def translated(called: str) -> Iterator[None]:
    """What SQLite and the file system say, as one paragraph about the index."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGED:
            raise DamagedStore(f"{called} is damaged: {error}", hint=AFRESH) from error
        hint = "is the flow running twice?" if code == sqlite3.SQLITE_BUSY else "look at the disk, and at who may write there"
        kind = SinkUnavailable if code in _PASSING else SinkError
        raise kind(f"{called} cannot be used: {error}", hint=hint) from error
