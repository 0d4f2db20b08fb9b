"""Where Penstock keeps its things: PENSTOCK_HOME, else the nearest `.penstock` upwards, else `./.penstock`."""

import os
import stat
from contextlib import suppress
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

    @property
    def captures(self) -> Path:
        return self.path / "captures"


def make_private(path: Path) -> None:
    """Makes a directory, and those above it that are missing, for their owner alone."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    for directory in reversed(missing):
        with suppress(FileExistsError):
            directory.mkdir(0o700)


def open_to_others(home: Path) -> str | None:
    """A sentence, if other users of the machine can look into the home; None if they cannot."""
    mode = stat.S_IMODE(home.stat().st_mode) if home.is_dir() else 0
    if not mode & 0o077:
        return None
    what = "change" if mode & 0o022 else "read"
    return f"other users of this machine can {what} home {home} (mode {mode:03o}): chmod 700 {home}, unless they shall"


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
    hint = f"give it back to its owner, or set {VARIABLE} (or --home) to another directory"
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise StorageError(f"the home {path} is not a directory", hint=hint)
    if not os.access(path, os.R_OK | os.X_OK):  # one that cannot be written is good for looking
        raise StorageError(f"the home {path} cannot be read by this user", hint=hint)
