"""The index of a partition: the version of every stream, where its events stand, and which ids were used.

It is a function of the log: what it says can be read there. Files keep most of it, the newest events are in memory, and what is
in neither is read from the log. Events that retention removed are not there: a stream that has none left is a new one.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np

from penstock.errors import OffsetGone, PenstockError
from penstock.events.on_log.recent import Head, Recent
from penstock.events.on_log.rows import HEADS, ID, STREAM, Row
from penstock.events.on_log.run import Run, id_key, of_recent, stream_key
from penstock.events.on_log.run_files import RunFiles
from penstock.log.port import Chunk, End, JudgedTopic

FLUSH = 1 << 13  # events in memory that become a file
_HELD = 1 << 16  # events in memory while the whole log is read


class PartitionIndex:
    """One partition's index in this process. Safe for several threads."""

    def __init__(self, topic: JudgedTopic, partition: int, files: RunFiles | None, flush: int = FLUSH) -> None:
        self._topic, self._partition, self._files, self._flush = topic, partition, files, flush
        self._runs: list[Run] = []
        self._recent = Recent(0)
        self._loaded = False
        self._guard = threading.RLock()

    @property
    def next(self) -> int:
        """What the log has from here on is not known."""
        return self._recent.next

    def head(self, stream: str, first: int) -> Head | None:
        """The last event of a stream; None if it has none from offset `first` on."""
        with self._guard:
            line = self._recent.lines.get(stream)
            found = line.head if line else self._older(stream)
        return found if found and found.offset >= first else None

    def places(self, stream: str, start: int, stop: int | None, first: int) -> list[int]:
        """The offsets of these versions of a stream, in order."""
        key = stream_key(stream)
        with self._guard:
            line = self._recent.lines.get(stream)
            parts = [run.events(key) for run in self._runs]
            if line:
                parts.append((np.array(line.versions, np.int64), np.array(line.offsets, np.int64)))
        found = list[int]()
        for versions, offsets in parts:
            keep = (versions >= start) & (offsets >= first)
            found += offsets[keep if stop is None else keep & (versions <= stop)].tolist()
        return found

    def candidates(self, stream: str, id: str, first: int) -> list[int]:
        """Where an event of this id may stand: the log tells whether it is meant."""
        with self._guard:
            known = self._recent.ids.get((stream, id))
            if known is not None:
                return [known] if known >= first else []
            key = id_key(stream, id)
            return [offset for run in self._runs for offset in run.offsets_of(key) if offset >= first]

    def prepare(self) -> None:
        """Reads the files, and what the log has beyond them, the first time: not while others wait for the lock."""
        if not self._loaded:
            self.refresh()

    def refresh(self) -> End:
        """Takes in what the log has. Not under the partition's lock."""
        while True:
            end = self._topic.end(self._partition)
            if not self._loaded:
                self._load(end)
            if self.next > end.next:
                self._reset(end.first)
            if self.next == end.next:
                self.settle()
                return end
            with suppress(OffsetGone):  # it was removed just now
                self._feed(end, partial(self._read, end.next))

    def _read(self, stop: int, start: int) -> Iterator[Chunk]:
        return self._topic.read(self._partition, start, stop, HEADS)

    def take(self, end: End, since: Callable[[int], Iterator[Chunk]]) -> None:
        """The same in the partition's writer, under its lock."""
        if self.next > end.next:
            self._reset(end.first)
        if self.next < end.next:
            self._feed(end, since)

    def add(self, rows: Iterable[Row], base: int) -> None:
        """Events that were appended at this offset."""
        with self._guard:
            if self._recent.next != base:
                return  # another thread has read them meanwhile
            for row in rows:
                self._recent.add(row.stream, row.version, row.event.id, row.at, self._recent.next)
                self._recent.next += 1
        self.settle()

    def settle(self) -> None:
        """Writes a file where there is enough for one. A disk that takes none only costs time."""
        if self._files and len(self._recent) >= self._flush:
            with suppress(PenstockError), self._guard:
                self._write(self._files)

    def _write(self, files: RunFiles) -> None:
        if files.reach(self._base) > self._recent.base:  # another process has written some
            self._runs = files.load(self._base, self._recent.next)
            self._recent = self._recent.since(self._runs[-1].next if self._runs else self._base)
        if len(self._recent) >= self._flush:
            run = of_recent(self._recent)
            files.write(run)
            self._runs, self._recent = [*self._runs, run], Recent(run.next)
            self._runs = files.compact(self._runs, self._flush)

    @property
    def _base(self) -> int:
        return self._runs[0].base if self._runs else self._recent.base

    def _older(self, stream: str) -> Head | None:
        key = stream_key(stream)
        return next((head for run in reversed(self._runs) if (head := run.head(key))), None)

    def _load(self, end: End) -> None:
        runs = self._files.load(end.first, end.next) if self._files else []
        wrong = next((at for at, run in enumerate(runs) if not self.fits(run, end.first)), None)
        if wrong is not None and self._files:
            self._files.cut(runs[wrong].base)
            runs = runs[:wrong]
        with self._guard:
            if not self._loaded:
                self._runs, self._recent, self._loaded = runs, Recent(runs[-1].next if runs else end.first), True

    def fits(self, run: Run, first: int) -> bool:
        """Whether the log holds what the run was made from: the event that is its last one."""
        key, offset = run.last
        if offset < first:
            return True
        for chunk in self._topic.read_at(self._partition, [offset], [STREAM, ID]):
            for place in np.flatnonzero(chunk.offsets == offset).tolist():
                return id_key(chunk.rows.column(STREAM)[place].as_py(), chunk.rows.column(ID)[place].as_py()) == key
        return self._topic.spec.compact  # nothing else takes a row out of the middle

    def _feed(self, end: End, since: Callable[[int], Iterator[Chunk]]) -> None:
        """Reads up to the end. Other threads may do so at the same time: what is known already is passed over."""
        with self._guard:
            reached = self._recent.next = max(self._recent.next, end.first)
        for chunk in since(reached):
            with self._guard:
                if self._recent.next < reached:
                    return  # another thread has begun anew
                self._recent.feed(chunk)
            reached = chunk.frame.end
            if len(self._recent) >= _HELD:
                self.settle()
        with self._guard:
            if self._recent.next >= reached:
                self._recent.next = max(self._recent.next, end.next)  # the last offsets may hold nothing

    def _reset(self, first: int) -> None:
        """The log has less than was known: whatever was known is of another one."""
        with self._guard:
            self._runs, self._recent = [], Recent(first)
        if self._files:
            self._files.cut(first)
