"""Which rows of a partition are the latest of their key.

Keys are compared by their bytes. They are looked at in slices by hash, each about SLICE_BYTES large, so that the memory this
takes is that of a slice, and a bit a row, however large the partition is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import KEY
from penstock.core.hashing import hash64
from penstock.log.intake.stored_rows import deletes_of
from penstock.log.port import Chunk

SLICE_BYTES = 256 << 20
_BESIDE = 48  # bytes a row beside its key: place, offset, number
_HASHED = 1 << 16  # rows whose keys are taken at once

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Expired = Callable[[Numbers], Mask]  # offsets of deletes -> which of them are old enough to go


@dataclass
class Latest:
    """What is left. Rows are counted in the order of their offsets, from 0."""

    rows: int
    gone: npt.NDArray[np.uint8]  # a bit a row: it is not kept
    keyless: int  # rows without a key, which are all kept
    tombstones: list[int]  # offsets of the deletes that are old enough, and go
    largest: int = 0  # rows of the largest slice: so many are held at once

    def keep(self, first: int, count: int) -> Mask:
        """Which of `count` rows from `first` on are kept."""
        places = np.arange(first, first + count)
        return np.asarray((self.gone[places >> 3] >> (places & 7) & 1) == 0)

    def drop(self, places: Numbers) -> None:
        np.bitwise_or.at(self.gone, places >> 3, (1 << (places & 7)).astype(np.uint8))


@dataclass
class Keyed:
    """Rows of one slice."""

    keys: pa.Array
    places: Numbers
    offsets: Numbers
    deletes: Mask


def latest(chunks: Callable[[], Iterator[Chunk]], rows: int, raw: bool, expired: Expired, slice_bytes: int = SLICE_BYTES) -> Latest:
    """Looks through all chunks, once a slice. rows: at most so many there are."""
    found = Latest(rows, np.zeros(rows // 8 + 1, np.uint8), 0, [])
    slices = _slices(chunks(), rows, slice_bytes)
    for number in range(slices):
        keyed, keyless = _taken(chunks(), number, slices, raw)
        found.keyless = keyless
        if keyed is not None:
            found.largest = max(found.largest, len(keyed.places))
            winners = _superseded(keyed, found)
            gone = winners[keyed.deletes[winners]]
            gone = gone[expired(keyed.offsets[gone])]
            found.drop(keyed.places[gone])
            found.tombstones += keyed.offsets[gone].tolist()
    return found


def _slices(chunks: Iterator[Chunk], rows: int, slice_bytes: int) -> int:
    for chunk in chunks:
        if KEY in chunk.rows.schema.names and chunk.frame.count:
            width = chunk.rows.column(KEY).nbytes / chunk.frame.count
            return int((width + _BESIDE) * rows // slice_bytes) + 1
    return 1


def _taken(chunks: Iterator[Chunk], number: int, slices: int, raw: bool) -> tuple[Keyed | None, int]:
    """The rows of a slice, and how many rows have no key at all."""
    found: list[Keyed] = []
    held: list[tuple[Chunk, int]] = []  # chunks with keys, and the places of their first rows
    place = keyless = 0
    for chunk in chunks:
        count = chunk.frame.count
        missing = chunk.rows.column(KEY).null_count if KEY in chunk.rows.schema.names else count
        keyless += missing
        if missing < count:
            held.append((chunk, place))
        place += count
        if held and place - held[0][1] >= _HASHED:
            found.append(_of_slice(held, number, slices, raw))
            held = []
    if held:
        found.append(_of_slice(held, number, slices, raw))
    return (together(found) if found else None), keyless


def _of_slice(held: Sequence[tuple[Chunk, int]], number: int, slices: int, raw: bool) -> Keyed:
    """Many chunks at once: most have few rows."""
    keys = _one([chunk.rows.column(KEY) for chunk, _ in held])
    places = np.concatenate([np.arange(place, place + chunk.frame.count) for chunk, place in held])
    offsets = np.concatenate([chunk.offsets for chunk, _ in held])
    gone = [deletes_of(chunk.rows, raw) for chunk, _ in held]
    deletes = np.concatenate([np.zeros(c.frame.count, np.bool_) if g is None else g for g, (c, _) in zip(gone, held, strict=True)])
    if slices == 1 and not keys.null_count:
        return Keyed(keys, places, offsets, deletes)
    mine = np.asarray(keys.is_valid().to_numpy(zero_copy_only=False))
    if slices > 1:
        mine &= hash64([keys], len(keys)) % np.uint64(slices) == number
    return Keyed(keys.filter(pa.array(mine)), places[mine], offsets[mine], deletes[mine])


def _one(keys: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays([array.cast(pa.large_binary()) for array in keys]) if len(keys) > 1 else keys[0].cast(pa.large_binary())


def together(found: Sequence[Keyed]) -> Keyed:
    """The rows of a slice, in the order of their offsets."""
    numbers = [np.concatenate([getattr(k, name) for k in found]) for name in ("places", "offsets", "deletes")]
    return Keyed(_one([k.keys for k in found]), *numbers)


def _superseded(keyed: Keyed, found: Latest) -> Numbers:
    """Drops the rows that a later one of their key follows. The others, as places in `keyed`."""
    numbers = numbered(keyed.keys)
    rows = np.arange(len(numbers))
    last = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    last[numbers] = rows  # rows are in the order of their offsets, and of several the last one stays
    kept = last[numbers] == rows
    found.drop(keyed.places[~kept])
    return np.flatnonzero(kept)


def numbered(keys: pa.Array) -> Numbers:
    """A number for each key: equal keys have the same, by their bytes."""
    return np.asarray(keys.dictionary_encode().indices.to_numpy(), np.int64)
