"""The journal of a queue: events in a file, and a new file that begins with a snapshot when that has grown long.

All calls but `sync` happen under the queue's lock. A record says how many bytes before it were synced when it was written; that
tells what a crash left from damage: bytes that do not fit behind all that was synced are cut, before it they are an error.
"""

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import orjson
from crc32c import crc32c

from penstock.errors import Damaged, NotFound, PenstockError, StorageError
from penstock.queue.state.events import Encoded
from penstock.storage.group_commit import GroupCommit, Pending
from penstock.storage.port import Appender, Storage

MAGIC = b"PNSj"
_HEAD = struct.Struct("<4sIIQ")  # magic, crc of all behind it, bytes of events, bytes of the file that were synced before
MOVED, DELETED = "moved", "deleted"  # the last events of a file: it goes on in the next one; the queue is gone


class Found(NamedTuple):
    """What was written since the last call. fresh: it begins with a snapshot of all that was before."""

    events: list[Encoded]
    fresh: bool


class Written(NamedTuple):
    """Where events end that were written: the file, its number, and the byte behind them."""

    file: Appender
    number: int
    end: int


class Journal:
    """The events of one queue, as several processes write them."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage, self._directory = storage, directory
        self._file: Appender | None = None
        self._number = self.size = 0
        self._broken = 0  # number of a file that could not be written or synced: nothing more goes there
        self._synced = (0, 0)  # up to where in which file
        self._syncs: GroupCommit[Written, None] = GroupCommit(self._sync, "the sync was interrupted")
        self.moved = False  # the file ends with a note that there is a next one
        self.must_move = False  # nothing may be written before `move`

    def begin(self, snapshot: Encoded) -> None:
        """The first file of a queue; AlreadyThere if there is one."""
        self._storage.publish(self._path(1), _record([snapshot], 0))

    def catch_up(self) -> Found:
        """What this or another process wrote since the last call."""
        if self._file and not self.moved and not self._file.removed:
            size = self._file.size
            if size == self.size:
                return Found([], fresh=False)
            events, whole = _read(self._file.read(self.size, size - self.size)) if size > self.size else ([], False)
            if whole:
                self.size = size
                return Found(self._noted(events), fresh=False)
        return Found(self._noted(self._opened()), fresh=True)

    def write(self, events: list[Encoded]) -> Written:
        """Adds events. After a failure the file is cut back, and never written to again."""
        assert self._file
        assert not self.must_move
        data = _record(events, self._synced[1] if self._synced[0] == self._number else 0)
        try:
            self._file.write(data)
        except BaseException:
            self._give_up(self._number)
            with suppress(PenstockError):
                self._file.truncate(self.size)
            raise
        self.size += len(data)
        return Written(self._file, self._number, self.size)

    def sync(self, written: Written) -> None:
        """Returns once the events survive a power loss. Not under the queue's lock: others write meanwhile, and a group commit
        serves all of them by one sync."""
        self._syncs.run(written)

    def _sync(self, group: Sequence[Pending[Written, None]]) -> None:
        for one in group:
            file, number, end = one.request
            one.result = None
            if number <= self._broken and self._synced < (number, end):  # a second sync would not say what the first one lost
                one.error = StorageError(f"{self._path(number)} could not be synced")
            elif self._synced < (number, end):
                end = max(end, self.size if number == self._number else 0)
                try:
                    file.sync()
                except BaseException:
                    self._give_up(number)
                    raise
                self._synced = max(self._synced, (number, end))

    def _give_up(self, number: int) -> None:
        """A file that is not trusted again: a snapshot of all goes into a new one."""
        self._broken = max(self._broken, number)
        self.must_move = self.must_move or self._number == self._broken

    def move(self, snapshot: Encoded) -> None:
        """Goes on in a new file that begins with a snapshot, and is safe at once."""
        assert self._file
        if not self.moved:
            with suppress(PenstockError):  # others find the new file by the old one's end, too
                self._file.write(_record([[MOVED]], 0))
        old, data = self._path(self._number), _record([snapshot], 0)
        self._storage.publish(self._path(self._number + 1), data)
        self._number += 1
        self._file = self._storage.append(self._path(self._number))
        self.size, self._synced, self.moved, self.must_move = len(data), (self._number, len(data)), False, False
        self._storage.remove(old, durable=False)

    def drop(self) -> None:
        """The next look begins anew."""
        self._file = None

    def _opened(self) -> list[Encoded]:
        self.drop()
        numbers = sorted(int(name.split("-")[1]) for name in self._storage.list(self._directory) if name.startswith("journal-"))
        if not numbers:
            raise NotFound("the queue is gone")
        self._number, self.moved = numbers[-1], False
        for number in numbers[:-1]:  # left over from a crash between two files
            self._storage.remove(self._path(number), durable=False)
        self._file = self._storage.append(self._path(self._number))
        data = self._file.read(0, self._file.size)
        events, whole = _read(data)
        end = len(data) if whole else _end(data)
        if not whole:
            self._refuse_damage(data, end)
            self._file.truncate(end)
        if not events:
            raise Damaged(f"{self._path(self._number)} is damaged: its first record is not whole", hint="restore it from a copy")
        self.size, self.must_move = end, self._number == self._broken
        return events

    def _refuse_damage(self, data: bytes, bad: int) -> None:
        at = data.find(MAGIC, bad + 1)
        while at >= 0:
            length = _whole(data, at)
            if length and _HEAD.unpack_from(data, at)[3] > bad:
                raise Damaged(
                    f"{self._path(self._number)} is damaged at byte {bad}",
                    hint="what is behind it was acknowledged: restore the file from a copy, or delete the queue",
                )
            at = data.find(MAGIC, at + 1)

    def _noted(self, events: list[Encoded]) -> list[Encoded]:
        if events and events[-1][0] == DELETED:
            raise NotFound("the queue was deleted")
        if events and events[-1][0] == MOVED:
            self.moved = self.must_move = True
            return events[:-1]
        return events

    def _path(self, number: int) -> str:
        return f"{self._directory}/journal-{number:08}"


def _record(events: list[Encoded], synced: int) -> bytes:
    body = orjson.dumps(events)
    head = _HEAD.pack(MAGIC, 0, len(body), synced)
    return b"".join((MAGIC, crc32c(body, crc32c(head[8:])).to_bytes(4, "little"), head[8:], body))


def _whole(data: bytes, at: int) -> int:
    """How long the record is that begins there; 0 if none does, or if it is not whole."""
    if len(data) - at < _HEAD.size:
        return 0
    magic, crc, length, _ = _HEAD.unpack_from(data, at)
    end = at + _HEAD.size + length
    if magic != MAGIC or end > len(data) or crc32c(memoryview(data)[at + 8 : end]) != crc:
        return 0
    return _HEAD.size + int(length)


def _read(data: bytes) -> tuple[list[Encoded], bool]:
    """The events of all whole records from the beginning on, and whether there is nothing else."""
    events, at = list[Encoded](), 0
    while length := _whole(data, at):
        events += orjson.loads(memoryview(data)[at + _HEAD.size : at + length])
        at += length
    return events, at == len(data)


def _end(data: bytes) -> int:
    at = 0
    while length := _whole(data, at):
        at += length
    return at
