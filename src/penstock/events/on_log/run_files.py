"""The files of a partition's index, beside its segments. They only save time: what is missing is read from the log again.

A file is immutable and says which offsets it covers; several processes may write some at once, even of the same offsets.
"""

import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.errors import Damaged, NotFound, PenstockError
from penstock.events.on_log.run import Run, decode, encode, merged
from penstock.storage.port import Storage
from penstock.storage.sealed import read_sealed, write_sealed

_FILE = re.compile(r"events-(\d{20})-(\d{20})-[0-9a-f]{16}-[0-9a-f]{8}\.index")
_FACTOR = 8  # so many runs of a size become one of the next


class RunFile(NamedTuple):
    """A file of the index, by its name."""

    base: int
    next: int
    name: str


class RunFiles:
    """Reads, writes, merges and removes them."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage, self._directory = storage, directory

    def names(self) -> list[RunFile]:
        found = (_FILE.fullmatch(name) for name in self._storage.list(self._directory))
        return sorted(RunFile(int(m[1]), int(m[2]), m[0]) for m in found if m)

    def load(self, first: int, end: int) -> list[Run]:
        """The runs that follow each other from the oldest offset that is there, as far as they go. What is damaged, or claims more
        than the log has, is removed."""
        self.cut(end)
        runs = list[Run]()
        for file in chain(self.names(), first):
            run = self._read(file)
            if run is None:
                return self.load(first, end)
            runs.append(run)
        return runs

    def reach(self, first: int) -> int:
        """How far the files go."""
        found = chain(self.names(), first)
        return found[-1].next if found else first

    def write(self, run: Run) -> None:
        stem = f"{self._directory}/events-{run.base:020d}-{run.next:020d}"
        write_sealed(self._storage, stem, "index", encode(run))

    def compact(self, runs: Sequence[Run], smallest: int) -> list[Run]:
        """The runs, the last of them merged where there are many of one size; files that are covered by others are removed."""
        found = list(runs)
        while len(found) >= _FACTOR and len({_level(run, smallest) for run in found[-_FACTOR:]}) == 1:
            found[-_FACTOR:] = [merged(found[-_FACTOR:])]
            self.write(found[-1])
        if len(found) < len(runs):
            self._sweep(found)
        return found

    def cut(self, offset: int) -> None:
        """Removes what goes beyond an offset."""
        for file in self.names():
            if file.next > offset:
                self._remove(file)

    def _sweep(self, runs: Sequence[Run]) -> None:
        kept = {(run.base, run.next) for run in runs}
        for file in self.names():
            if (file.base, file.next) not in kept and any(run.base <= file.base and file.next <= run.next for run in runs):
                self._remove(file)

    def _read(self, file: RunFile) -> Run | None:
        """None if it is gone, or was damaged and is gone now."""
        try:
            run = decode(read_sealed(self._storage, f"{self._directory}/{file.name}"))
            if (run.base, run.next) == (file.base, file.next):
                return run
        except NotFound:
            return None
        except (Damaged, ValueError, struct.error):
            pass
        self._remove(file)
        return None

    def _remove(self, file: RunFile) -> None:
        with suppress(PenstockError):
            self._storage.remove(f"{self._directory}/{file.name}", durable=False)


def chain(files: Sequence[RunFile], first: int) -> list[RunFile]:
    """Files that follow each other without a gap, beginning at the offset or before it, and go as far as any do."""
    best: dict[int, list[RunFile]] = {}  # by the offset at which they begin
    for file in sorted(files, key=lambda file: file.base, reverse=True):
        found = [file, *best.get(file.next, [])]
        known = best.get(file.base)
        if known is None or (found[-1].next, -len(found)) > (known[-1].next, -len(known)):
            best[file.base] = found
    starts = [found for base, found in best.items() if base <= first and found[-1].next > first]
    return max(starts, key=lambda found: (found[-1].next, -len(found)), default=[])


def _level(run: Run, smallest: int) -> int:
    level, size = 0, smallest
    while len(run) >= size * _FACTOR:
        level, size = level + 1, size * _FACTOR
    return level
