"""One temporary directory per process for what Spark leaves lying about; those of dead processes are swept.

The temporary directory is shared with every user of the machine (G28): nothing in it is used that is not ours, no link is
followed, and nothing is opened for writing that somebody else may have put there.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from penstock.engine.spark.archive import cache_directory
from penstock.errors import EngineError

PREFIX = "penstock-"
_ALIVE = "alive"
InUse = Callable[[int], bool]  # of an opened directory
YOUNG = 60.0  # seconds in which a directory's owner may not have locked it yet
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@cache
def scratch() -> Path:
    """This process's directory, readable by its user alone. A lock in it, which ends with the process, says that it is in use."""
    parent = _parent()
    sweep(parent)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    # Never closed: the lock is to last as long as this process.
    alive = os.open(path / _ALIVE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(alive, fcntl.LOCK_EX)
    return path


def remove_scratch() -> None:
    shutil.rmtree(scratch(), ignore_errors=True)


def written_by_others(path: Path) -> bool:
    """Whether another user may put files into this directory."""
    return bool(path.stat().st_mode & _OTHERS_WRITE)


def _parent() -> Path:
    """The temporary directory; the user's cache where others may rename what is ours, or where it belongs to a stranger."""
    parent = Path(tempfile.gettempdir())
    found = parent.stat()
    kept = not found.st_mode & _OTHERS_WRITE or found.st_mode & stat.S_ISVTX
    if kept and found.st_uid in (0, os.geteuid()):
        return parent
    try:
        return cache_directory()
    except OSError as error:
        what = f"the temporary directory {parent} is open to others, and there is no other"
        raise EngineError(what, str(error), hint="set TMPDIR to a directory of your own, mode 700") from error


def sweep(parent: Path, in_use: InUse | None = None) -> None:
    """Removes what processes of this user have left behind that are no more."""
    with _opened(parent) as top:
        for name in os.listdir(top):
            if name.startswith(PREFIX):
                with suppress(OSError):  # somebody else's, no directory, or being removed by another sweep
                    _sweep_one(top, name, in_use or locked)


def _sweep_one(top: int, name: str, in_use: InUse) -> None:
    """Everything is reached through the opened directory, so that it does not matter what its name stands for a moment later."""
    with _opened(name, top) as directory:
        if _ours(os.fstat(directory)) and not in_use(directory):
            _empty(directory)
            os.rmdir(name, dir_fd=top)


def locked(directory: int, young: float | None = None) -> bool:
    """Whether a living process uses it, or may be about to. Read only, and without waiting: it may be anything."""
    alive = os.open(_ALIVE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        found = os.fstat(alive)
        if not (stat.S_ISREG(found.st_mode) and _ours(found)) or time.time() - found.st_mtime <= (
            YOUNG if young is None else young
        ):
            return True
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(alive)
    return False


def _ours(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE


def _empty(directory: int) -> None:
    for name in os.listdir(directory):
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=directory)
        else:
            os.unlink(name, dir_fd=directory)


@contextmanager
def _opened(path: Path | str, within: int | None = None) -> Iterator[int]:
    nofollow = os.O_NOFOLLOW if within is not None else 0  # the temporary directory itself may be a link
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | nofollow | os.O_CLOEXEC, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
