"""A directory tree in memory: the reference for every storage."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from penstock.errors import AlreadyThere, NotFound, StorageError


class MemoryAppender:
    """A file of MemoryStorage open at its end."""

    def __init__(self, storage: "MemoryStorage", path: str, content: bytearray) -> None:
        self._storage, self._path, self._content = storage, path, content

    @property
    def size(self) -> int:
        return len(self._content)

    @property
    def removed(self) -> bool:
        return self._storage.files.get(self._path) is not self._content

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        self._content += memoryview(data)

    def read(self, at: int, size: int) -> bytes:
        return bytes(self._content[at : at + size])

    def sync(self) -> None:
        return None

    def truncate(self, size: int) -> None:
        del self._content[size:]

    def close(self) -> None:
        return None


class MemoryStorage:
    """Files in a dict. A pickled one is a copy of what was in it then."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = {path: bytearray(content) for path, content in (files or {}).items()}
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return MemoryStorage, ({path: bytes(content) for path, content in self.files.items()},)

    def append(self, path: str) -> MemoryAppender:
        check_path(path)
        with self._guard:
            return MemoryAppender(self, path, self.files.setdefault(path, bytearray()))

    def read(self, path: str) -> pa.Buffer:
        check_path(path)
        if path not in self.files:
            raise NotFound(f"there is no {path}")
        return pa.py_buffer(bytes(self.files[path]))

    def publish(self, path: str, data: bytes) -> None:
        check_path(path)
        if self.files.setdefault(path, mine := bytearray(data)) is not mine:
            raise AlreadyThere(f"{path} is there already")

    def list(self, path: str) -> list[str]:
        check_path(path)
        return names_in(path, list(self.files))

    def remove(self, path: str, durable: bool = True) -> None:
        check_path(path)
        for name in list(self.files):
            if name == path or name.startswith(path + "/"):
                del self.files[name]

    @contextmanager
    def lock(self, path: str, wait: bool = True) -> Iterator[bool]:
        check_path(path)
        with self._guard:
            lock = self._locks.setdefault(path, threading.Lock())
        held = lock.acquire(blocking=wait)
        try:
            yield held
        finally:
            if held:
                lock.release()


def check_path(path: str) -> None:
    """Refuses what could lead out of the storage."""
    if any(part in ("", ".", "..") or "\0" in part for part in path.split("/")):
        raise StorageError(f"{path!a} is not a path inside the storage")


def names_in(directory: str, paths: list[str]) -> list[str]:
    """The names directly below a directory, sorted."""
    start = directory + "/"
    return sorted({path[len(start) :].split("/")[0] for path in paths if path.startswith(start)})
