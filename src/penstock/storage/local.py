"""A directory tree on a real disk."""

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from penstock.errors import AlreadyThere, DiskFull, NotFound, PenstockError, StorageError
from penstock.storage.home import make_private

_TEMPORARY = ".tmp-"
# Below this a copy is cheaper than a map, and a small file may be cut back while others read it.
_SMALL = 1 << 16
_FULL = (errno.ENOSPC, errno.EDQUOT)
# Directories (path, device, inode) whose own entries this process knows to be durable.
_ON_DISK: set[tuple[str, int, int]] = set()
_MOST_KEPT = 128  # directories that a storage keeps open
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalAppender:
    """A file of LocalStorage open at its end."""

    def __init__(self, storage: "LocalStorage", path: str, fd: int) -> None:
        self._storage, self._path, self._fd = storage, path, fd
        self._entry_synced = False

    def fileno(self) -> int:
        """The file descriptor, as of any open file."""
        return self._fd

    @property
    def size(self) -> int:
        """Asked of the file itself, so what other processes appended is counted."""
        return os.fstat(self._fd).st_size

    @property
    def removed(self) -> bool:
        return os.fstat(self._fd).st_nlink == 0

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        view = memoryview(data)
        try:
            done = os.write(self._fd, view)
            while done < len(view):
                done += os.write(self._fd, view[done:])
        except OSError as error:
            raise _translated(error, "write", self._path) from error

    def read(self, at: int, size: int) -> bytes:
        try:
            return os.pread(self._fd, size, at)
        except OSError as error:
            raise _translated(error, "read", self._path) from error

    def sync(self) -> None:
        try:
            if self._storage.sync:
                os.fdatasync(self._fd)
            if not self._entry_synced:  # the file may be older than this appender, and its maker dead before its own sync
                self._storage.sync_parents(self._path)
                self._entry_synced = True
        except OSError as error:
            raise _translated(error, "sync", self._path) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise _translated(error, "cut", self._path) from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class _Kept:
    """A directory that stays open as long as somebody knows it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._close = os.close  # at the end of the process the module may be gone before this is

    def __del__(self) -> None:
        self._close(self.fd)


class LocalStorage:
    """Files below root, for their owner alone; symbolic links below root are never followed.

    `sync=False` leaves writing to the operating system: for tests, and for directories that live in memory."""

    def __init__(self, root: str | os.PathLike[str], sync: bool = True) -> None:
        self.root = os.path.abspath(root)
        self.sync = sync
        self._kept: dict[str, _Kept] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return _in_this_process, (self.root, self.sync)

    def __repr__(self) -> str:
        return f"LocalStorage({self.root!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStorage) and (other.root, other.sync) == (self.root, self.sync)

    def __hash__(self) -> int:
        return hash((self.root, self.sync))

    def append(self, path: str) -> LocalAppender:
        with self._parent(path, "open", make=True) as (directory, name):
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            return LocalAppender(self, path, os.open(name, flags, 0o600, dir_fd=directory))

    def read(self, path: str) -> pa.Buffer:
        fd = self._open_to_read(path)
        try:
            return _contents(fd)
        except OSError as error:
            raise _translated(error, "read", path) from error
        finally:
            os.close(fd)

    def publish(self, path: str, data: bytes) -> None:
        with self._parent(path, "publish", make=True) as (directory, name):
            temporary = _TEMPORARY + secrets.token_hex(12)
            try:
                self._write_whole(temporary, data, directory)
                os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=directory)
            self.sync_parents(path)

    def list(self, path: str) -> list[str]:
        try:
            with self._parent(path + "/.", "list") as (directory, _):
                return sorted(name for name in os.listdir(directory) if not name.startswith(_TEMPORARY))
        except NotFound:
            return []

    def remove(self, path: str, durable: bool = True) -> None:
        try:
            with self._parent(path, "remove") as (directory, name):
                if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                    _ON_DISK.clear()  # another directory may come to stand in its place
                    shutil.rmtree(name, dir_fd=directory)
                    _ON_DISK.clear()  # what another thread has noted meanwhile, too
                else:
                    os.unlink(name, dir_fd=directory)
                if self.sync and durable:
                    os.fsync(directory)
        except NotFound:
            return

    @contextmanager
    def lock(self, path: str, wait: bool = True) -> Iterator[bool]:
        fd = self._locked(path, wait)
        try:
            yield fd is not None
        finally:
            if fd is not None:
                os.close(fd)

    def sync_parents(self, path: str) -> None:
        """Makes the directory entries on the way to a file durable, root's own included. What lies above a directory that this
        process has brought to disk before is there already."""
        if not self.sync:
            return
        parts, reached = _parts(path), set[tuple[str, int, int]]()
        for depth in range(len(parts) - 1, -1, -1):
            with self._parent("/".join([*parts[:depth], "."]), "sync") as (directory, _):
                os.fsync(directory)
                found = os.fstat(directory)
            place = ("/".join([self.root, *parts[:depth]]), found.st_dev, found.st_ino)
            if place in _ON_DISK:
                break
            reached.add(place)
        else:
            above = os.open(os.path.dirname(self.root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(above)
            finally:
                os.close(above)
        _ON_DISK.update(reached)

    def _write_whole(self, name: str, data: bytes, directory: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=directory)
        try:
            done = 0
            while done < len(data):
                done += os.write(fd, memoryview(data)[done:])
            if self.sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _open_to_read(self, path: str) -> int:
        """Files are looked at often, too: the way to a directory that is still there is gone once."""
        _parts(path)
        above, _, name = path.rpartition("/")
        kept = self._kept.get(above)
        if kept:
            try:
                return os.open(name, _READ, dir_fd=kept.fd)
            except FileNotFoundError as error:
                if os.fstat(kept.fd).st_nlink:
                    raise _translated(error, "read", path) from error
                self._kept.pop(above, None)  # the directory was removed: find the way anew
            except OSError as error:
                raise _translated(error, "read", path) from error
        with self._parent(path, "read") as (directory, name):
            self._keep(above, directory)
            return os.open(name, _READ, dir_fd=directory)

    def _keep(self, path: str, directory: int) -> None:
        known = list(self._kept)  # a copy: other threads keep directories, too
        for oldest in known[: max(0, len(known) + 1 - _MOST_KEPT)]:
            self._kept.pop(oldest, None)
        self._kept[path] = _Kept(os.dup(directory))

    def _locked(self, path: str, wait: bool) -> int | None:
        """The descriptor that holds the lock. Locks are taken often, so their directories stay open."""
        _parts(path)
        above, _, name = path.rpartition("/")
        kept = self._kept.get(above)
        if kept:
            try:
                return self._flocked(kept.fd, name, wait)
            except FileNotFoundError:  # the directory was removed: find the way anew
                self._kept.pop(above, None)
            except OSError as error:
                raise _translated(error, "lock", path, self.root) from error
        with self._parent(path, "lock", make=True) as (directory, name):
            self._keep(above, directory)
            return self._flocked(directory, name, wait)

    def _flocked(self, directory: int, name: str, wait: bool) -> int | None:
        while True:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same_file(fd, name, directory):
                    return fd
            except BlockingIOError:
                os.close(fd)
                return None
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # the lock file was removed while we waited: the next one locks another file

    @contextmanager
    def _parent(self, path: str, doing: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open directory that holds path, reached step by step without following links, and path's last part."""
        parts = _parts(path, last_dot=True)
        try:
            fd = self._open_root(make)
            try:
                for part in parts[:-1]:
                    above, fd = fd, self._step(fd, part, make)
                    os.close(above)
                yield fd, parts[-1]
            finally:
                os.close(fd)
        except OSError as error:
            raise _translated(error, doing, path, self.root) from error

    def _open_root(self, make: bool) -> int:
        try:
            return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not make:
                raise
        make_private(Path(self.root))
        return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _step(self, fd: int, part: str, make: bool) -> int:
        try:
            return os.open(part, _DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            if not make:
                raise
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=fd)
        return os.open(part, _DIRECTORY, dir_fd=fd)


@lru_cache(maxsize=64)
def _in_this_process(root: str, sync: bool) -> LocalStorage:
    """One for each root, however often it is sent here: every task of every epoch brings one along, and each keeps directories
    open as long as somebody knows it."""
    return LocalStorage(root, sync)


def volatile_twin(storage: object) -> "LocalStorage | None":
    """A storage in main memory that belongs to the same root, or None where the machine has no such place."""
    shared = Path("/dev/shm")
    if not isinstance(storage, LocalStorage) or not (shared.is_dir() and os.access(shared, os.W_OK)):
        return None
    digest = hashlib.sha256(os.fsencode(os.path.realpath(storage.root))).hexdigest()[:24]
    root = shared / f"penstock-{os.getuid()}-{digest}"
    with suppress(FileExistsError):
        root.mkdir(0o700)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StorageError(f"{root} belongs to somebody else", hint="remove it, or choose another durability for the topic")
    return LocalStorage(root, sync=False)


def _parts(path: str, last_dot: bool = False) -> list[str]:
    parts = path.split("/")
    for at, part in enumerate(parts):
        if last_dot and part == "." and at == len(parts) - 1:
            continue
        if part in ("", ".", "..") or "\0" in part:
            raise StorageError(f"{path!a} is not a path inside the storage")
    return parts


def _contents(fd: int) -> pa.Buffer:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EISDIR, "not a file")
    if found.st_size >= _SMALL:
        with pa.memory_map(f"/dev/fd/{fd}") as mapped:  # by descriptor: the way to the file was checked already
            return mapped.read_buffer(found.st_size)  # the map stays as long as the buffer; the file is closed
    parts = []
    while part := os.read(fd, _SMALL):
        parts.append(part)
    return pa.py_buffer(b"".join(parts))


def _same_file(fd: int, name: str, directory: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=directory, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _translated(error: OSError, doing: str, path: str, root: object = None) -> PenstockError:
    if error.errno in _FULL:
        return DiskFull(f"no space left to {doing} {path}", hint="free some space; writing goes on by itself")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"there is no {path}")
    if isinstance(error, FileExistsError):
        return AlreadyThere(f"{path} is there already")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return StorageError(f"cannot {doing} {path}: a symbolic link or a file stands where a directory should be")
    hint = _HINTS.get(error.errno or 0)
    return StorageError(f"cannot {doing} {path}: {os.strerror(error.errno or 0)}", *([f"in {root}"] if root else ()), hint=hint)


_NOT_OURS = "this user may not write there: give it back to its owner, or choose another home (--home, PENSTOCK_HOME)"
_MORE_FILES = "let this process open more files: ulimit -n 4096"
_HINTS = dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _NOT_OURS) | dict.fromkeys(
    (errno.EMFILE, errno.ENFILE), _MORE_FILES
)
