"""The class-data archive: Spark's classes as the JVM has them in memory, so that later starts need not load them one by one.

It belongs to one JDK build, one Spark and one place of installation, and lies in the user's cache directory. It is built once,
by a process of its own: after the first run in the background, or by `penstock doctor --warm`. Losing it costs time only.
"""

import errno
import fcntl
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from penstock.engine.spark.java import Java, find_java
from penstock.engine.spark.launch import PATIENCE, spark_home, why_plain
from penstock.errors import EngineError

Write = Callable[[Path], None]  # makes the archive at a path
EXIT_PATIENCE = 2 * PATIENCE  # writing the archive takes a JVM several seconds


def cache_directory() -> Path:
    """The user's cache, readable by nobody else: whoever can write an archive decides what the JVM runs."""
    base = os.environ.get("XDG_CACHE_HOME")
    path = (Path(base) if base else Path.home() / ".cache") / "penstock"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "the cache directory belongs to another user", str(path))
    path.chmod(0o700)
    return path


def usable(path: Path) -> bool:
    """Whether there is an archive that nobody but its user can have written."""
    with suppress(OSError):
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return False


def archive_path(java: Java) -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    key = "\n".join([java.text, str(java.path), version("pyspark"), str(spark_home())])
    return cache_directory() / f"spark-{version('pyspark')}-java-{java.major}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def build(java: Java, write: Write | None = None) -> Path:
    """Builds the archive here and now, if it is missing, and returns its path. Waits for another process that is at it."""
    path = archive_path(java)
    with building(path, wait=True):
        if not path.exists():
            (write or rehearse)(path)
    return path


def build_in_background() -> None:
    """Starts a process of low priority, independent of this one, that builds the archive unless another already does."""
    with open(os.devnull, "r+b") as nothing:
        subprocess.Popen(
            _python("penstock.engine.spark.archive"),
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            cwd=cache_directory(),
            start_new_session=True,
        )


def _python(module: str, *arguments: str) -> list[str]:
    """Runs a module of ours; -P: not one of the same name that somebody put into the working directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def rehearse(path: Path) -> None:
    """One Spark session in a JVM that writes down its classes when it ends; the finished file appears under its name at once."""
    with tempfile.TemporaryDirectory(prefix=path.name, dir=path.parent) as directory:
        fresh = Path(directory) / "classes.jsa"
        done = subprocess.run(
            _python("penstock.engine.spark.rehearsal", str(fresh)),
            capture_output=True,
            text=True,
            check=False,
            timeout=EXIT_PATIENCE * 2,
        )
        if done.returncode != 0 or not fresh.exists():
            raise EngineError("the class-data archive could not be built", *done.stderr.splitlines()[-3:])
        fresh.chmod(0o600)
        fresh.rename(path)


@contextmanager
def building(path: Path, wait: bool) -> Iterator[bool]:
    """Whether this process may build the archive: one does at a time."""
    with open(path.with_suffix(".lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


def build_if_free(java: Java, write: Write | None = None) -> None:
    """Builds the archive unless it is there, another process is at it, or the JVM could not use it."""
    path = archive_path(java)
    with building(path, wait=False) as ours:
        if ours and not path.exists() and why_plain() is None:
            (write or rehearse)(path)


def main() -> int:
    """The background process."""
    os.nice(19)
    build_if_free(find_java())
    return 0


if __name__ == "__main__":
    sys.exit(main())
