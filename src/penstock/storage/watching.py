"""Waiting for a change of files, made by any process of this machine, instead of looking again and again.

Linux tells who asks (inotify). On a network file system it knows nothing of what other machines write, and elsewhere there is
nothing of the kind: there one has to look.
"""

import ctypes
import errno
import os
import select
import struct
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_MODIFY, _MOVED_TO, _CREATE, _OVERFLOW = 0x2, 0x80, 0x100, 0x4000
_ONLY_DIRECTORIES, _NO_LINKS = 0x01000000, 0x02000000
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name behind it
_DISTANT = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "lustre", "glusterfs", "afs", "gpfs", "beegfs", "virtiofs"}


def why_not(path: str | os.PathLike[str]) -> str | None:
    """Why changes below this path are not told; None if they are."""
    if not sys.platform.startswith("linux"):
        return "this system does not tell of changed files"
    kind = file_system(path)
    if kind in _DISTANT or kind.startswith("fuse"):
        return f"it lies on a network file system ({kind})"
    return None


def file_system(path: str | os.PathLike[str]) -> str:
    """The kind of the file system that a path is on, as Linux calls it; empty where it does not say."""
    found, longest = "", -1
    place = os.path.realpath(path)
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, behind = line.partition(" - ")
            mount = before.split()[4].encode().decode("unicode_escape")
            inside = place == mount or place.startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= longest:
                found, longest = behind.split()[0], len(mount)
    return found


class DirectoryWatch:
    """Waits for files in some directories that are made, or written and have a name with this ending.

    OSError where the system has no more of it to give."""

    def __init__(self, ending: str) -> None:
        self._ending = ending.encode()
        self.made = False  # whether the last that was told of are files, or directories, that were made
        self._library = ctypes.CDLL(None, use_errno=True)
        self._fd = self._checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def watch(self, directories: Iterable[str]) -> None:
        """Also these; of one that is not there yet, the nearest above it that is."""
        for directory in directories:
            place = os.fsencode(directory)
            while not self._added(place) and place not in (b"/", b""):
                place = os.path.dirname(place)

    def wait(self, seconds: float) -> bool:
        """Whether something was written since the last call, or is within so many seconds."""
        deadline = time.monotonic() + seconds
        while not self._told():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._poll.poll(left * 1000)
        return True

    def _told(self) -> bool:
        """Takes everything that has come in; whether it is worth a look."""
        told = self.made = False
        with suppress(BlockingIOError):
            while data := os.read(self._fd, 1 << 16):
                told = self._worth(data) or told
        return told

    def _worth(self, data: bytes) -> bool:
        at, worth = 0, False
        while at < len(data):
            _, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            self.made = self.made or bool(mask & (_CREATE | _MOVED_TO | _OVERFLOW))
            worth = worth or self.made or name.endswith(self._ending)
            at += _EVENT.size + length
        return worth

    def _added(self, place: bytes) -> bool:
        flags = _MODIFY | _MOVED_TO | _CREATE | _ONLY_DIRECTORIES | _NO_LINKS
        if self._library.inotify_add_watch(self._fd, place, flags) >= 0:
            return True
        if ctypes.get_errno() in (errno.ENOENT, errno.ENOTDIR):
            return False
        self._checked(-1)
        return False

    def _checked(self, answer: int) -> int:
        if answer < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return answer

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
