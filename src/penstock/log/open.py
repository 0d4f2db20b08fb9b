"""The log of a home directory."""

from pathlib import Path

from penstock.log.file import FileLog
from penstock.storage.home import Home, find_home
from penstock.storage.local import LocalStorage


def open_log(home: Path | None = None) -> FileLog:
    """The embedded log in this home (None: the one that PENSTOCK_HOME or the working directory leads to). Makes nothing."""
    return FileLog(LocalStorage(Home(home or find_home()).log))
