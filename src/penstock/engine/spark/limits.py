"""What the operating system must allow before Spark can start."""

import resource

from penstock.errors import EngineError

LEAST_FILES = 256  # a JVM opens its own libraries and Spark's jars, and each worker some more
_WANTED = 4096


def check_open_files() -> None:
    """Raises the number of files that this process and its children may open as far as it goes; EngineError if that is too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _WANTED:
        return
    allowed = _WANTED if hard == resource.RLIM_INFINITY else max(soft, min(hard, _WANTED))
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < LEAST_FILES:
        raise EngineError(
            f"this process may open {allowed} files, and Spark needs {LEAST_FILES} at least",
            hint="allow more in this shell: ulimit -n 4096 (the administrator's limit is in /etc/security/limits.conf)",
        )
