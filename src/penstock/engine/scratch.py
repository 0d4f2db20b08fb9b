"""One temporary directory per process for what Spark leaves lying about; those of dead processes are swept."""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

PREFIX = "penstock-"
_ALIVE = "alive"
_YOUNG = 60.0  # seconds in which a directory's owner may not have locked it yet


@cache
def scratch() -> Path:
    """This process's directory, readable by its user alone. A lock in it, which ends with the process, says that it is in use."""
    _sweep(Path(tempfile.gettempdir()))
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    # Never closed: the lock is to last as long as this process.
    fcntl.flock(os.open(path / _ALIVE, os.O_CREAT | os.O_WRONLY, 0o600), fcntl.LOCK_EX)
    return path


def remove_scratch() -> None:
    shutil.rmtree(scratch(), ignore_errors=True)


def _sweep(parent: Path) -> None:
    for path in parent.glob(f"{PREFIX}*/{_ALIVE}"):
        with suppress(OSError):  # somebody else's, or being removed by another sweep
            if time.time() - path.stat().st_mtime > _YOUNG and _unlocked(path):
                shutil.rmtree(path.parent, ignore_errors=True)


def _unlocked(path: Path) -> bool:
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
