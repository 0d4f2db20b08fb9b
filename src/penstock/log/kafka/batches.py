"""Records as they lie one behind the other in a batch of Kafka's format, version 2: what is between them; their bytes as arrays.

Nothing here is trusted: a record counts as following another only if everything between the two is just what the format says, and
ends at the address where its value is known to be. Addresses are only ever looked at between two known ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_FRAMING = 40  # the most bytes between two values beside the key: lengths, attributes, times
_INLINE = 12  # shorter values stand in an Arrow view itself


class Memory(Protocol):
    """Where the records lie."""

    def peek(self, addresses: Numbers) -> npt.NDArray[np.uint8]:
        """The byte at each address."""
        ...

    def copy(self, address: int, size: int) -> bytes: ...


class Placed(NamedTuple):
    """Where the values and keys of consecutive records lie; address 0: there is none."""

    value: Numbers
    value_size: Numbers
    key: Numbers
    key_size: Numbers

    @property
    def end(self) -> Numbers:
        return self.value + self.value_size


@dataclass(frozen=True)
class Chains:
    follows: Mask  # it stands right behind the record before it, in the same batch, and that one has no headers
    moved: Numbers  # where it follows: the difference of its time to that of its batch
    closed: Mask  # it is known to have no headers

    def spans(self) -> Iterator[tuple[int, int]]:
        """[first, stop) of records that follow each other."""
        starts = np.flatnonzero(~self.follows)
        yield from zip(starts.tolist(), [*starts[1:].tolist(), len(self.follows)], strict=True)


def chains_of(records: Placed, memory: Memory) -> Chains:
    count = len(records.value)
    follows, closed, moved = np.zeros(count, bool), np.zeros(count, bool), np.zeros(count, np.int64)
    gap = records.value[1:] - records.end[:-1]
    near = (records.value[1:] > 0) & (records.value[:-1] > 0) & (gap > 0) & (gap <= _FRAMING + records.key_size[1:])
    later = np.flatnonzero(near) + 1
    later = later[memory.peek(records.end[later - 1]) == 0]  # the number of headers
    if not len(later):
        return Chains(follows, moved, closed)
    found = _framing(Placed(*(column[later] for column in records)), records.end[later - 1] + 1, memory)
    rows = later[found.fits]
    follows[rows], moved[rows], closed[rows - 1] = True, found.moved[found.fits], True
    last = records.end[rows] + 1 == found.end[found.fits]
    ends = rows[last]
    closed[ends[memory.peek(records.end[ends]) == 0]] = True
    return Chains(follows, moved, closed)


class _Framing(NamedTuple):
    fits: Mask
    moved: Numbers
    end: Numbers  # behind the record, as its length says


def _framing(records: Placed, start: Numbers, memory: Memory) -> _Framing:
    """What stands before values: length, attributes, times, key; whether it leads to each value as it is known."""
    walk = _Walk(memory, start, records.value)
    length = walk.number()
    end = walk.at + length
    walk.skip(np.ones(len(start), np.int64))
    moved = walk.number()
    walk.number()  # the offset
    key_size = walk.number()
    no_key = records.key == 0
    fits = np.where(no_key, key_size == -1, (key_size == records.key_size) & (walk.at == records.key))
    walk.skip(np.maximum(key_size, 0))
    size = walk.number()
    fits &= walk.inside & (walk.at == records.value) & (size == records.value_size)
    return _Framing(fits, moved, end)


class _Walk:
    """Many places at once, each going on towards its limit and never beyond it."""

    def __init__(self, memory: Memory, at: Numbers, limit: Numbers) -> None:
        self._memory, self._limit = memory, limit
        self.at, self.inside = at.copy(), at <= limit

    def skip(self, sizes: Numbers) -> None:
        self.inside &= (sizes >= 0) & (sizes <= self._limit - self.at)
        self.at = np.where(self.inside, self.at + sizes, self._limit)

    def number(self) -> Numbers:
        """A number of variable length, zigzag: one byte for every seven bits."""
        value, going = np.zeros(len(self.at), np.uint64), np.flatnonzero(self.inside)
        for shift in range(0, 70, 7):
            going = going[self.at[going] < self._limit[going]]
            if not len(going):
                break
            byte = self._memory.peek(self.at[going])
            value[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(min(shift, 63))
            self.at[going] += 1
            going = going[byte >= 0x80]
        self.inside[going] = False
        signed: Numbers = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
        return signed


def arrays_of(records: Placed, chains: Chains, memory: Memory) -> tuple[pa.Array, pa.Array]:
    """Keys and values as binary arrays. Each chain is copied at once."""
    pieces: list[bytes] = []
    size = 0
    values, keys = np.zeros(len(records.value), np.int64), np.zeros(len(records.value), np.int64)

    def add(piece: bytes) -> int:
        nonlocal size
        pieces.append(piece)
        size += len(piece)
        return size - len(piece)

    for first, stop in chains.spans():
        if records.value[first]:
            start = int(records.value[first])
            moved = add(memory.copy(start, int(records.end[stop - 1]) - start)) - start
            values[first:stop], keys[first:stop] = records.value[first:stop] + moved, records.key[first:stop] + moved
        if records.key[first]:
            keys[first] = add(memory.copy(int(records.key[first]), int(records.key_size[first])))
    data = b"".join(pieces)
    return _binary(data, keys, records.key_size, records.key == 0), _binary(data, values, records.value_size, records.value == 0)


def _binary(data: bytes, at: Numbers, sizes: Numbers, missing: Mask) -> pa.Array:
    """The pieces of the data at these places, cut out by Arrow."""
    count = len(at)
    if missing.all():
        return pa.nulls(count, pa.binary())
    at, sizes = np.where(missing, 0, at), np.where(missing, 0, sizes)
    octets: npt.NDArray[Any] = np.frombuffer(data or b"\0", np.uint8)
    views = np.zeros((count, 4), np.int32)
    views[:, 0], views[:, 3] = sizes, at
    views[:, 1] = _window(octets, at, sizes, 4)[:, 0]
    short = np.flatnonzero(sizes <= _INLINE)
    views[short, 1:] = _window(octets, at[short], sizes[short], _INLINE)
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(pa.binary_view(), count, [valid, pa.py_buffer(views), pa.py_buffer(octets)]).cast(pa.binary())


def _window(octets: npt.NDArray[Any], at: Numbers, sizes: Numbers, width: int) -> npt.NDArray[np.int32]:
    """The first bytes of each piece, zeros behind its end, four to a number."""
    inside = np.arange(width) < sizes[:, None]
    found = np.where(inside, octets[np.minimum(at[:, None] + np.arange(width), len(octets) - 1)], np.uint8(0))
    return np.ascontiguousarray(found).view(np.int32)
