"""What the rest of Penstock may ask of a disk."""

from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa


class Appender(Protocol):
    """A file open at its end. After any error from `write` or `sync` the appender is dead: open a new file, never retry."""

    @property
    def size(self) -> int:
        """Bytes in the file, written ones included."""
        ...

    @property
    def removed(self) -> bool:
        """Whether the file was removed since it was opened, by whomever."""
        ...

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        """Appends all of data, or raises (StorageError, DiskFull) and may leave a part of it."""
        ...

    def read(self, at: int, size: int) -> bytes:
        """At most `size` bytes from `at` on, as the file is now, written by any process."""
        ...

    def sync(self) -> None:
        """Returns once everything written, and the file's directory entry, survives a power loss."""
        ...

    def truncate(self, size: int) -> None:
        """Cuts the file back to size bytes (durable after the next sync)."""
        ...

    def close(self) -> None:
        """Closes without syncing."""
        ...


class Storage(Protocol):
    """A directory tree. Paths are relative, with `/`; parents are made when something is written. Picklable."""

    def append(self, path: str) -> Appender:
        """Opens the file at its end; makes it (and its directories) if it is not there."""
        ...

    def read(self, path: str) -> pa.Buffer:
        """The bytes now in the file, memory-mapped where there is something to map. NotFound if it is not there."""
        ...

    def publish(self, path: str, data: bytes) -> None:
        """Makes the file with exactly these bytes, whole and durable, or raises AlreadyThere. One caller of many wins."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if it is not there."""
        ...

    def remove(self, path: str, durable: bool = True) -> None:
        """Removes a file or an empty or full directory; nothing happens if it is not there.
        durable=False: it may come back after a power loss, and the caller can live with that."""
        ...

    def lock(self, path: str, wait: bool = True) -> AbstractContextManager[bool]:
        """Holds the lock file for the time of the `with`; False (only with wait=False) if another process has it.
        A lock ends with its process, however that ends."""
        ...
