"""What a table looked like at a poll, on disk: digests of all rows in the order of their keys' digests, bucket by bucket. Memory
holds one bucket at a time, however large the table is."""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.capture.polling.digests import BUCKETS, Digests
from penstock.capture.port import Flags, Places
from penstock.storage.port import Appender, Storage

if TYPE_CHECKING:
    from typing_extensions import Buffer

HELD = 32 << 20  # bytes of digests that are held until they are put on disk


class TableCopy:
    """A copy that was written."""

    def __init__(self, storage: Storage, path: str | None) -> None:
        """path: None: there is no copy, which is as one of an empty table."""
        self._file = pa.ipc.open_file(storage.read(path)) if path else None

    def bucket(self, number: int) -> Digests:
        """The rows of a bucket, in order, mapped into memory."""
        return Digests.read(self._file.get_batch(number)) if self._file else Digests.together([])

    def compared(self, rows: Digests) -> tuple[Flags, Flags]:
        """Which of these rows it does not have, and which were other in it."""
        new, changed = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        for number, places in _by_bucket(rows):
            mine, theirs = self.bucket(number), rows.taken(places)
            at = mine.places_of(theirs)
            known = at >= 0
            new[places] = ~known
            changed[places[known]] = ~mine.same_rows(at[known], theirs.taken(np.flatnonzero(known)))
        return new, changed


class CopyWriter:
    """Makes a copy of rows as they are read. spill: a directory for digests that memory should not hold."""

    def __init__(self, storage: Storage, spill: str, held: int = HELD) -> None:
        self._storage, self._spill, self._most = storage, spill, held
        self._parts: list[Digests] = []
        self._bytes = self._spilled = self.rows = 0

    def add(self, rows: Digests) -> None:
        self._parts.append(rows)
        self._bytes += rows.bytes
        self.rows += len(rows)
        if self._bytes > self._most:
            self._put_away()

    def write(self, path: str) -> Iterator[Digests]:
        """Writes the copy, durably, and gives each bucket of it, in order."""
        held = Digests.together(self._parts)
        self._storage.remove(path)
        appender = self._storage.append(path)
        try:
            with pa.ipc.new_file(_Sink(appender), Digests.together([]).batch().schema) as file:
                for number in range(BUCKETS):
                    bucket = Digests.together([*self._put(number), held.taken(np.flatnonzero(held.bucket == number))]).in_order()
                    file.write_batch(bucket.batch())
                    yield bucket
            appender.sync()
        finally:
            appender.close()
        self._storage.remove(self._spill, durable=False)

    def _put_away(self) -> None:
        rows = Digests.together(self._parts)
        for number, places in _by_bucket(rows):
            appender = self._storage.append(self._place(number, self._spilled))
            with pa.ipc.new_stream(_Sink(appender), rows.batch().schema) as stream:
                stream.write_batch(rows.taken(places).batch())
            appender.close()
        self._parts, self._bytes, self._spilled = [], 0, self._spilled + 1

    def _put(self, bucket: int) -> Iterator[Digests]:
        """What was put away of a bucket."""
        there = self._storage.list(f"{self._spill}/{bucket}") if self._spilled else []
        for name in there:
            yield Digests.read(pa.ipc.open_stream(self._storage.read(f"{self._spill}/{bucket}/{name}")).read_all())

    def _place(self, bucket: int, number: int) -> str:
        return f"{self._spill}/{bucket}/{number}"


class _Sink(io.RawIOBase):
    """An appender as PyArrow writes to it."""

    def __init__(self, appender: Appender) -> None:
        super().__init__()
        self._appender = appender

    def write(self, data: "Buffer") -> int:
        self._appender.write(memoryview(data))
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._appender.size

    def writable(self) -> bool:
        return True


def _by_bucket(rows: Digests) -> Iterator[tuple[int, Places]]:
    buckets = rows.bucket
    for number in np.unique(buckets).tolist():
        yield number, np.flatnonzero(buckets == number)
