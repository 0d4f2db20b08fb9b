"""A disk that loses power and fails on cue: the twin of every storage, for tests.

It knows of every byte and every directory entry whether it was synced. `images` shows what the disk may look like after a
power loss: what was synced is there, of the rest anything between nothing and all, torn, reordered, or as zeros.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from penstock.errors import AlreadyThere, DiskFull, NotFound, PenstockError, StorageError
from penstock.storage.memory import MemoryStorage, check_path, names_in

Operation = Literal["open", "write", "sync", "truncate", "publish", "remove"]
Kind = Literal["EIO", "ENOSPC", "short"]
Damage = Literal["drop", "prefix", "tear", "subset", "zero", "keep"]
DAMAGES: tuple[Damage, ...] = ("drop", "prefix", "tear", "subset", "zero", "keep")
_SECTOR = 512


@dataclass
class Failure:
    """The nth call of an operation from now on fails, once or for ever. `short`: a part is written, then the disk is full."""

    operation: Operation
    nth: int = 1
    kind: Kind = "EIO"
    forever: bool = False
    met: int = 0  # how often it struck

    def strikes(self, operation: str) -> bool:
        if operation != self.operation:
            return False
        self.nth -= 1
        if self.nth == 0 or (self.nth < 0 and self.forever):
            self.met += 1
            return True
        return False

    def error(self, path: str) -> PenstockError:
        if self.kind == "EIO":
            return StorageError(f"cannot {self.operation} {path}: Input/output error")
        return DiskFull(f"no space left to {self.operation} {path}")


@dataclass
class _Change:
    """A write at a place, or a cut (data is None). One that a failed sync dropped never reaches the disk."""

    at: int
    data: bytes | None
    dropped: bool = False

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.at :]
            return
        content += bytes(max(0, self.at - len(content)))
        content[self.at : self.at + len(self.data)] = self.data


@dataclass
class _File:
    content: bytearray = field(default_factory=bytearray)  # what processes see
    durable: bytes = b""
    pending: list[_Change] = field(default_factory=list)
    entry_durable: bool = False

    def change(self, at: int, data: bytes | None) -> None:
        self.pending.append(_Change(at, data))
        self.pending[-1].apply(self.content)

    def sync(self) -> None:
        content = bytearray(self.durable)
        for change in self.pending:
            if not change.dropped:
                change.apply(content)
        self.durable, self.entry_durable = bytes(content), True
        self.pending = [change for change in self.pending if change.dropped]

    def after_loss(self, damage: Damage, rng: random.Random) -> bytes:
        content, changes = bytearray(self.durable), [c for c in self.pending if not c.dropped]
        keep = rng.randint(0, len(changes))
        if damage == "subset":
            changes = [c for c in changes if rng.random() < 0.5]
        elif damage == "zero":
            changes = [_zeroed(c, rng) for c in changes]
        elif damage == "tear":
            changes = changes[:keep] + [_torn(c, rng) for c in changes[keep : keep + 1]]
        elif damage in ("drop", "prefix"):
            changes = changes[:keep] if damage == "prefix" else []
        for change in changes:
            change.apply(content)
        return bytes(content)


def _torn(change: _Change, rng: random.Random) -> _Change:
    return change if change.data is None else _Change(change.at, change.data[: rng.randint(0, len(change.data))])


def _zeroed(change: _Change, rng: random.Random) -> _Change:
    """The file has grown, but some sectors never came."""
    if change.data is None:
        return change
    data = bytearray(change.data)
    for at in range(0, len(data), _SECTOR):
        if rng.random() < 0.5:
            data[at : at + _SECTOR] = bytes(len(data[at : at + _SECTOR]))
    return _Change(change.at, bytes(data))


class FaultyAppender:
    """A file of FaultyStorage open at its end; dead after its first error."""

    def __init__(self, storage: "FaultyStorage", path: str, file: _File) -> None:
        self._storage, self._path, self._file = storage, path, file
        self._dead = False

    @property
    def size(self) -> int:
        return len(self._file.content)

    @property
    def removed(self) -> bool:
        return not self._storage.holds(self._path, self._file)

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        whole = bytes(data)
        failure = self._meet("write")
        if failure and failure.kind == "short":
            self._file.change(self.size, whole[: len(whole) // 2])
        self._die(failure)
        self._file.change(self.size, whole)

    def read(self, at: int, size: int) -> bytes:
        return bytes(self._file.content[at : at + size])

    def sync(self) -> None:
        failure = self._meet("sync")
        if failure:  # as Linux does: the pages are taken for clean, and a later sync says nothing of them
            for change in self._file.pending:
                change.dropped = True
        self._die(failure)
        self._file.sync()

    def truncate(self, size: int) -> None:
        self._die(self._meet("truncate"))
        self._file.change(size, None)

    def close(self) -> None:
        return None

    def _meet(self, operation: Operation) -> Failure | None:
        if self._dead:
            raise StorageError(f"{self._path} was used after it failed")
        return self._storage.meet(operation, self._path)

    def _die(self, failure: Failure | None) -> None:
        if failure:
            self._dead = True
            raise failure.error(self._path)


class FaultyStorage:
    """Files in memory on such a disk. `watch` is called before every step that changes it: the places to crash at."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self._files = {p: _File(bytearray(c), bytes(c), entry_durable=True) for p, c in (files or {}).items()}
        self._ghosts: dict[str, _File] = {}  # removed, but not durably
        self._locks = MemoryStorage()
        self._guard = threading.RLock()
        self.failures: list[Failure] = []
        self.watch: Callable[[Operation, str], None] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return FaultyStorage, ({path: bytes(file.content) for path, file in self._files.items()},)

    def arm(self, failure: Failure) -> Failure:
        self.failures.append(failure)
        return failure

    def crash(self, rng: random.Random) -> MemoryStorage:
        """One disk as a power loss at this moment may leave it: every file has its own fate."""
        return self._image(lambda: rng.choice(DAMAGES), rng)

    def images(self, rng: random.Random) -> Iterator[MemoryStorage]:
        """A disk for every kind of damage, and one with all kinds mixed."""
        for damage in DAMAGES:
            yield self._image(lambda damage=damage: damage, rng)  # type: ignore[misc]
        yield self.crash(rng)

    def _image(self, choose: Callable[[], Damage], rng: random.Random) -> MemoryStorage:
        with self._guard:
            left = {path: ghost.after_loss("keep", rng) for path, ghost in self._ghosts.items() if rng.random() < 0.5}
            for path, file in self._files.items():
                damage = choose()
                if file.entry_durable or (damage != "drop" and (damage == "keep" or rng.random() < 0.5)):
                    left[path] = file.after_loss(damage, rng)
            return MemoryStorage(left)

    def meet(self, operation: Operation, path: str) -> Failure | None:
        """Counts a call; the failure that strikes it, if any."""
        if self.watch:
            self.watch(operation, path)
        with self._guard:
            struck = [failure for failure in self.failures if failure.strikes(operation)]
        return struck[0] if struck else None

    def holds(self, path: str, file: _File) -> bool:
        """Whether this is still the file of that name."""
        return self._files.get(path) is file

    def append(self, path: str) -> FaultyAppender:
        self._pass("open", path)
        with self._guard:
            return FaultyAppender(self, path, self._files.setdefault(path, _File()))

    def read(self, path: str) -> pa.Buffer:
        check_path(path)
        if path not in self._files:
            raise NotFound(f"there is no {path}")
        return pa.py_buffer(bytes(self._files[path].content))

    def publish(self, path: str, data: bytes) -> None:
        self._pass("publish", path)
        with self._guard:
            if path in self._files:
                raise AlreadyThere(f"{path} is there already")
            self._files[path] = _File(bytearray(data), bytes(data), entry_durable=True)

    def list(self, path: str) -> list[str]:
        check_path(path)
        return names_in(path, [*self._files])

    def remove(self, path: str, durable: bool = True) -> None:
        self._pass("remove", path)
        with self._guard:
            for name in [*self._files, *self._ghosts]:
                if name == path or name.startswith(path + "/"):
                    gone = self._files.pop(name, None)
                    if gone and gone.entry_durable and not durable:
                        self._ghosts[name] = gone
                    elif durable:
                        self._ghosts.pop(name, None)

    def lock(self, path: str, wait: bool = True) -> AbstractContextManager[bool]:
        return self._locks.lock(path, wait)

    def _pass(self, operation: Operation, path: str) -> None:
        check_path(path)
        failure = self.meet(operation, path)
        if failure:
            raise failure.error(path)
