"""Where Penstock keeps its things: PENSTOCK_HOME, else the nearest `.penstock` upwards, else `./.penstock`."""

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import StorageError

VARIABLE = "PENSTOCK_HOME"
DIRECTORY = ".penstock"


@dataclass(frozen=True)
class Home:
    """A home directory and its rooms. Making the value makes no directory."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def flows(self) -> Path:
        return self.path / "flows"

    @property
    def views(self) -> Path:
        return self.path / "views"


def find_home() -> Path:
    """The home of this process. It need not be there yet; one that is there and cannot be used is a StorageError."""
    given = os.environ.get(VARIABLE)
    path = Path(given).expanduser().absolute() if given else _nearest(Path.cwd())
    _check(path)
    return path


def _nearest(start: Path) -> Path:
    for directory in (start, *start.parents):
        if os.path.lexists(directory / DIRECTORY):
            return directory / DIRECTORY
    return start / DIRECTORY


def _check(path: Path) -> None:
    hint = f"give it back to its owner, or set {VARIABLE} to another directory"
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise StorageError(f"the home {path} is not a directory", hint=hint)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise StorageError(f"the home {path} cannot be read and written by this user", hint=hint)
