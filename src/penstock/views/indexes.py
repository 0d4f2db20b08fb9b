"""The search indexes of a home: one file or directory each."""

import contextlib
import sqlite3
from pathlib import Path

from penstock.sinks.stores.search.fts5_tables import SUFFIX, translated
from penstock.sinks.stores.search.index import DIRECTORY
from penstock.sinks.view_file import sync_directory
from penstock.storage.local import LocalStorage
from penstock.views.directory import take_alone


def index_paths(home: Path) -> list[Path]:
    """All of them, sorted: files of SQLite, and directories of tantivy."""
    directory = home / DIRECTORY
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.is_dir() or path.suffix == SUFFIX)


def list_indexes(home: Path) -> list[str]:
    """Their names, sorted."""
    return sorted(path.name if path.is_dir() else path.stem for path in index_paths(home))


def files_of(path: Path) -> list[Path]:
    """What an index is made of; the database last: what is left of it must never meet another one of its name."""
    return [path] if path.is_dir() else [path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm"), path]


def drop_index(path: Path) -> None:
    """Removes an index, if it is there; SinkError if somebody has it open."""
    if path.is_dir():
        LocalStorage(str(path.parent)).remove(path.name)
        return
    if not path.exists():
        return
    called = f"search index {path}"
    with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(path, timeout=0.5)) as connection:
        take_alone(connection, path, called)
    with translated(called):
        for part in files_of(path):
            part.unlink(missing_ok=True)
        sync_directory(path.parent)
