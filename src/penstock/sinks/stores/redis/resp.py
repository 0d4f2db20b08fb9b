"""The protocol of Redis and Valkey: commands are sent as bytes, many at a time, and replies read in their order."""

from collections.abc import Iterable
from contextlib import suppress
from io import BufferedReader
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from penstock.sinks.stores.redis.address import Address, connected

_BUFFER = 1 << 18
_WORD, _NUMBER, _ERROR, _END = b"+:-\n"

Reply = Any  # bytes, int, None, a list of replies, or a ReplyError
Bytes = bytes | memoryview


class ReplyError(Exception):
    """What the server says in place of a result: `WRONGTYPE Operation against a key …`"""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class Connection:
    """One connection. OSError where it breaks or nobody answers in time; it is of no use then. Client libraries give each reply to
    the caller by itself, which takes longer than all the rest where an epoch has two for every row."""

    def __init__(self, address: Address, password: str | None = None) -> None:
        self._socket = connected(address)
        self._file = cast("BufferedReader", self._socket.makefile("rb", _BUFFER))
        try:
            if password is not None:
                self.ask("AUTH", *([address.user] if address.user else []), password)
            if address.database:
                self.ask("SELECT", address.database)
        except BaseException:
            self.close()
            raise

    def ask(self, *words: str | bytes | int) -> Reply:
        """What the server says to one command; a ReplyError is raised."""
        self.send(command(*words))
        found = self.reply()
        if isinstance(found, ReplyError):
            raise found
        return found

    def send(self, data: Bytes) -> None:
        """Commands, whole or in parts."""
        self._socket.sendall(data)

    def reply(self) -> Reply:
        """The next one; a ReplyError is returned."""
        kind, found = self._first_line()
        if kind == b"*" and found is not None:
            return [self.reply() for _ in range(found)]
        return self._bulk(found) if kind == b"$" and found is not None else found

    def length(self) -> int | ReplyError | None:
        """How many replies the list has that comes next, which are read behind it; None where there is no list."""
        kind, found = self._first_line()
        if kind not in (b"*", b"-"):
            raise ConnectionError(f"this is no list of replies: {kind!r}")
        return cast("int | ReplyError | None", found)

    def skip(self, count: int) -> ReplyError | None:
        """Reads so many replies of one line, many at a time, and looks only for errors among them: the first one."""
        error: ReplyError | None = None
        while count:
            data = self._file.peek()
            ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _END)[:count]
            if len(ends):
                self._file.read(int(ends[-1]) + 1)
                found = _first_error(data, ends)
            else:  # less than a line has come
                found = self.reply()
            error = error or (found if isinstance(found, ReplyError) else None)
            count -= len(ends) or 1
        return error

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()
            self._file.close()

    def _first_line(self) -> tuple[bytes, Reply]:
        """What kind of reply it is, and what it says; of texts and lists how long they are, None for none."""
        line = self._file.readline()
        kind, rest = line[:1], line[1:-2]
        if line[-2:] != b"\r\n":
            raise ConnectionError("the server has closed the connection")
        if kind == b"+":
            return kind, rest
        if kind == b"-":
            return kind, ReplyError(rest.decode(errors="replace"))
        if kind not in (b":", b"$", b"*"):
            raise ConnectionError(f"this is no reply of a Redis: {line[:40]!r}")
        number = int(rest)
        return kind, None if number < 0 and kind != b":" else number

    def _bulk(self, count: int) -> bytes:
        data: bytes = self._file.read(count + 2)
        if len(data) < count + 2:
            raise ConnectionError("the server has closed the connection")
        return data[:-2]


def command(*words: str | bytes | int) -> bytes:
    """A command as it is sent."""
    return head(len(words)) + b"".join(map(bulk, words))


def head(words: int) -> bytes:
    """How a command of so many words begins."""
    return b"*%d\r\n" % words


def bulk(word: str | bytes | int) -> bytes:
    data = word if isinstance(word, bytes) else str(word).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def pairs(reply: Iterable[bytes]) -> dict[str, bytes]:
    """A hash, as the server tells it: names and values in turn."""
    words = iter(reply)
    return {name.decode(): value for name, value in zip(words, words, strict=True)}


def _first_error(data: bytes, ends: npt.NDArray[np.int64]) -> ReplyError | None:
    """Among replies of one line each, which end there."""
    starts = np.append(0, ends[:-1] + 1)
    kinds = np.frombuffer(data, np.uint8)[starts]
    for first in np.flatnonzero((kinds != _WORD) & (kinds != _NUMBER))[:1]:
        line = data[starts[first] : ends[first] - 1]
        if kinds[first] != _ERROR:
            raise ConnectionError(f"this is no reply of a Redis in one line: {line[:40]!r}")
        return ReplyError(line[1:].decode(errors="replace"))
    return None
