"""Digests of keys and rows, which stand for them where copies are compared."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.capture.port import Flags, Places
from penstock.core.arrow import numbers_in, one_array, values_in

Words = npt.NDArray[np.uint64]
BUCKETS = 64  # of a copy, by the first bits of the digests of keys
_BYTES = 16


@dataclass(frozen=True)
class Digests:
    """Rows by the digests of their keys, two words each, with the digests of the rows and the keys themselves."""

    high: Words
    low: Words
    row_high: Words
    row_low: Words
    keys: pa.Array  # of utf8

    NAMES = ("high", "low", "row_high", "row_low", "keys")

    @staticmethod
    def of(keys: pa.Array, rows: pa.Array) -> "Digests":
        return Digests(*_digests(keys), *_digests(rows), keys)

    @staticmethod
    def together(parts: "Iterable[Digests]") -> "Digests":
        found = list(parts)
        words = ([getattr(each, name) for each in found] for name in Digests.NAMES[:4])
        high, low, row_high, row_low = (np.concatenate([np.zeros(0, np.uint64), *each]) for each in words)
        return Digests(high, low, row_high, row_low, pa.concat_arrays([pa.array([], pa.utf8()), *(each.keys for each in found)]))

    @staticmethod
    def read(table: pa.Table | pa.RecordBatch) -> "Digests":
        """What `batch` gave."""
        columns = [one_array(table.column(name)) for name in Digests.NAMES]
        high, low, row_high, row_low = (column.to_numpy() for column in columns[:4])
        return Digests(high, low, row_high, row_low, columns[4])

    def __len__(self) -> int:
        return len(self.high)

    @property
    def bytes(self) -> int:
        return 4 * self.high.nbytes + int(self.keys.nbytes)

    @property
    def bucket(self) -> Places:
        return (self.high >> np.uint64(58)).astype(np.int64)

    def taken(self, places: Places) -> "Digests":
        words = self.high[places], self.low[places], self.row_high[places], self.row_low[places]
        return Digests(*words, self.keys.take(places))

    def in_order(self) -> "Digests":
        return self.taken(np.lexsort((self.low, self.high)))

    def batch(self) -> pa.RecordBatch:
        words = [pa.array(each, pa.uint64()) for each in (self.high, self.low, self.row_high, self.row_low)]
        return pa.record_batch([*words, self.keys], list(self.NAMES))

    def places_of(self, others: "Digests") -> Places:
        """Where the keys of others are among these, which are in order; -1 where they are not."""
        if not len(self):
            return np.full(len(others), -1, np.int64)
        at = np.searchsorted(self.high, others.high).astype(np.int64)
        while True:  # more than once only where the first words of two different keys are the same
            inside = np.minimum(at, len(self) - 1)
            same = (at < len(self)) & (self.high[inside] == others.high)
            found = same & (self.low[inside] == others.low)
            if not (same & ~found).any():
                return np.where(found, at, -1)
            at = np.where(same & ~found, at + 1, at)

    def same_rows(self, places: Places, others: "Digests") -> Flags:
        """Whether the rows of others are as they are at these places of these."""
        same: Flags = (self.row_high[places] == others.row_high) & (self.row_low[places] == others.row_low)
        return same


def _digests(texts: pa.Array) -> tuple[Words, Words]:
    values = values_in(texts.cast(pa.binary()), bytes)
    found = b"".join([blake2b(value, digest_size=_BYTES).digest() for value in values])
    words = numbers_in(found, np.dtype(">u8")).astype(np.uint64).reshape(-1, 2) if found else np.zeros((0, 2), np.uint64)
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
