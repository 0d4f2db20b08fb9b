"""The views of a home: one database file each."""

import contextlib
import difflib
import sqlite3
from pathlib import Path

from penstock.core.names import check_name
from penstock.errors import NotFound, SinkError
from penstock.sinks.view_file import refused, sync_directory


def list_views(views: Path) -> list[str]:
    """Names of all views in the directory, sorted."""
    if not views.is_dir():
        return []
    return sorted(path.stem for path in views.glob("*.db") if not path.name.startswith("."))


def view_path(views: Path, name: str) -> Path:
    """The database of a view; NotFound, with the names that are close, if there is none."""
    path = views / f"{check_name(name, 'view')}.db"
    if not path.exists():
        names = list_views(views)
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(names[:10])}" if names else None
        raise NotFound(
            f"there is no view {name!r}", str(views), hint=hint or "a view is made when its flow runs: `penstock run flow.py`"
        )
    return path


def drop_view(views: Path, name: str) -> None:
    """Removes a view with all its versions; SinkError if somebody has it open."""
    path = view_path(views, name)
    with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(path, timeout=0.5)) as connection:
        take_alone(connection, path, f"view {name!r}")
    with refused(path, name):
        for part in (path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm"), path):
            part.unlink(missing_ok=True)  # the database last: what is left of it must never meet another one of its name
        sync_directory(views)


def take_alone(connection: sqlite3.Connection, path: Path, called: str) -> None:
    """Leaving WAL mode is only possible for the one who has the database alone."""
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise SinkError(
                f"{called} is in use", str(path), hint="stop the flow that writes it, and those who follow it"
            ) from error
        raise
