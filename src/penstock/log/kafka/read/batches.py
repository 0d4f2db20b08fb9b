"""Records as they lie one behind the other in a batch of Kafka's format, version 2: what is between them; their bytes as arrays.

Nothing here is trusted: a record counts as following another only if everything between the two is just what the format says, and
ends at the address where its value is known to be. Addresses are only ever looked at between two known ones that are so near to
each other that no page of memory lies between them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import buffer_of, numbers_in

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NEAR = 4_000  # bytes between two values: less than a page
_MOST_HEADERS = 64  # of a record; those with more are left to the library
_INLINE = 12  # shorter values stand in an Arrow view itself
_NONE = np.empty(0, np.int64)


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

    def take(self, rows: Numbers) -> "Placed":
        return Placed(*(column[rows] for column in self))


class HeaderPlaces(NamedTuple):
    """Headers, in the order of their records: of which one, and where name and value lie; a value of size -1 is none."""

    row: Numbers
    name: Numbers
    name_size: Numbers
    value: Numbers
    value_size: Numbers

    def of(self, keep: Mask) -> "HeaderPlaces":
        """Those of the records to be kept."""
        inside = keep[self.row]
        return HeaderPlaces(*(column[inside] for column in self))


@dataclass(frozen=True)
class Chains:
    follows: Mask  # it stands right behind the record before it, in the same batch
    moved: Numbers  # where it follows: the difference of its time to that of its batch
    known: Mask  # its headers are among `headers`, all of them
    headers: HeaderPlaces
    end: Numbers  # behind the record, its headers included, where they are known; else behind its value

    def spans(self) -> Iterator[tuple[int, int]]:
        """[first, stop) of records that follow each other."""
        starts = np.flatnonzero(~self.follows)
        yield from zip(starts.tolist(), [*starts[1:].tolist(), len(self.follows)], strict=True)


def chains_of(records: Placed, memory: Memory) -> Chains:
    count = len(records.value)
    follows, known, moved, ends = np.zeros(count, bool), np.zeros(count, bool), np.zeros(count, np.int64), records.end.copy()
    gap = records.value[1:] - records.end[:-1]
    before = np.flatnonzero((records.value[1:] > 0) & (records.value[:-1] > 0) & (gap > 0) & (gap < _NEAR))
    behind = _headers(before, records.end[before], records.value[before + 1], memory)
    framing = _framing(records.take(before + 1), behind.at, behind.fits, memory)
    rows = before[framing.fits]
    follows[rows + 1], moved[rows + 1] = True, framing.moved[framing.fits]
    known[rows], ends[rows] = True, behind.at[framing.fits]
    proven = behind.headers.of(known)
    size = framing.end[framing.fits] - records.end[rows + 1]  # of the headers of the one that follows, as its length says
    last = ~known[rows + 1] & (size > 0) & (size < _NEAR)
    tails = rows[last] + 1
    final = _headers(tails, records.end[tails], framing.end[framing.fits][last], memory)
    whole = final.fits & (final.at == framing.end[framing.fits][last])
    known[tails[whole]], ends[tails[whole]] = True, final.at[whole]
    return Chains(follows, moved, known, _together(proven, final.headers.of(known)), ends)


class _Behind(NamedTuple):
    """What stands behind values: headers, and where they end."""

    fits: Mask
    at: Numbers
    headers: HeaderPlaces


def _headers(rows: Numbers, start: Numbers, limit: Numbers, memory: Memory) -> _Behind:
    walk = _Walk(memory, start, limit)
    left = walk.number()
    walk.inside &= (left >= 0) & (left <= _MOST_HEADERS)
    left[~walk.inside] = 0
    found: list[HeaderPlaces] = []
    while (more := left > 0).any():
        name_size = walk.number(more)
        name = walk.at.copy()
        walk.skip(np.where(more, name_size, 0))
        value_size = walk.number(more)
        value = walk.at.copy()
        walk.skip(np.where(more, np.maximum(value_size, 0), 0))
        left = np.where(walk.inside, left - more, 0)
        found.append(HeaderPlaces(*(column[more] for column in (rows, name, name_size, value, value_size))))
    return _Behind(walk.inside, walk.at, _together(*found))


class _Framing(NamedTuple):
    fits: Mask
    moved: Numbers
    end: Numbers  # behind the record, as its length says


def _framing(records: Placed, start: Numbers, fits: Mask, memory: Memory) -> _Framing:
    """What stands before values: length, attributes, times, key; whether it leads to each value as it is known."""
    walk = _Walk(memory, start, records.value)
    walk.inside &= fits
    length = walk.number()
    end = walk.at + length
    walk.skip(np.ones(len(start), np.int64))
    moved = walk.number()
    walk.number()  # the offset
    key_size = walk.number()
    same_key = np.where(records.key == 0, key_size == -1, (key_size == records.key_size) & (walk.at == records.key))
    walk.skip(np.maximum(key_size, 0))
    size = walk.number()
    return _Framing(same_key & walk.inside & (walk.at == records.value) & (size == records.value_size), moved, end)


class _Walk:
    """Many places at once, each going on towards its limit and never beyond it."""

    def __init__(self, memory: Memory, at: Numbers, limit: Numbers) -> None:
        self._memory, self._limit = memory, limit
        self.at, self.inside = at.copy(), at <= limit

    def skip(self, sizes: Numbers) -> None:
        self.inside &= (sizes >= 0) & (sizes <= self._limit - self.at)
        self.at = np.where(self.inside, self.at + sizes, self._limit)

    def number(self, where: Mask | None = None) -> Numbers:
        """A number of variable length, zigzag, seven bits a byte; 0 where none is asked for."""
        value = np.zeros(len(self.at), np.uint64)
        going = np.flatnonzero(self.inside if where is None else self.inside & where)
        for shift in range(0, 70, 7):
            near = self.at[going] < self._limit[going]
            self.inside[going[~near]] = False
            going = going[near]
            if not len(going):
                break
            byte = self._memory.peek(self.at[going])
            value[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.at[going] += 1
            going = going[byte >= 0x80]
        self.inside[going] = False
        signed: Numbers = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
        return signed


def _together(*parts: HeaderPlaces) -> HeaderPlaces:
    """All of them, by record; those of one record in their order."""
    if not parts:
        return HeaderPlaces(*[_NONE] * 5)
    joined = HeaderPlaces(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    order = np.argsort(joined.row, kind="stable")
    return HeaderPlaces(*(column[order] for column in joined))


@dataclass
class Cuts:
    """Copies of what lies in chains, each made at once, and arrays cut out of them."""

    records: Placed
    chains: Chains
    memory: Memory
    _pieces: list[bytes] = field(default_factory=list)
    _size: int = 0

    def __post_init__(self) -> None:
        records, count = self.records, len(self.records.value)
        self._shift = np.zeros(count, np.int64)  # address -> place in the copy, by record
        self._keys = np.zeros(count, np.int64)
        for first, stop in self.chains.spans():
            if records.value[first]:
                start = int(records.value[first])
                self._shift[first:stop] = self._add(start, int(self.chains.end[stop - 1]) - start) - start
            if records.key[first]:
                self._keys[first] = self._add(int(records.key[first]), int(records.key_size[first]))
        later = self.chains.follows
        self._keys[later] = records.key[later] + self._shift[later]
        self._data = b"".join(self._pieces)

    def _add(self, address: int, size: int) -> int:
        self._pieces.append(self.memory.copy(address, size))
        self._size += size
        return self._size - size

    def keys(self) -> pa.Array:
        return binary(self._data, self._keys, self.records.key_size, self.records.key == 0)

    def values(self) -> pa.Array:
        return binary(self._data, self.records.value + self._shift, self.records.value_size, self.records.value == 0)

    def headers(self) -> tuple[Numbers, pa.Array, pa.Array]:
        """Records, names and values of the headers that are known."""
        found = self.chains.headers
        shift = self._shift[found.row]
        names = binary(self._data, found.name + shift, found.name_size, found.name_size < 0)
        return found.row, names, binary(self._data, found.value + shift, found.value_size, found.value_size < 0)


def binary(data: bytes | pa.Buffer, at: Numbers, sizes: Numbers, missing: Mask) -> pa.Array:
    """The pieces of the data at these places, cut out by Arrow."""
    count = len(at)
    if missing.all():
        return pa.nulls(count, pa.binary())
    at, sizes = np.where(missing, 0, at), np.where(missing, 0, sizes)
    octets: npt.NDArray[Any] = numbers_in(data if len(data) else b"\0", np.uint8)
    views = np.zeros((count, 4), np.int32)
    views[:, 0], views[:, 3] = sizes, at
    views[:, 1] = _window(octets, at, sizes, 4)[:, 0]
    short = np.flatnonzero(sizes <= _INLINE)
    views[short, 1:] = _window(octets, at[short], sizes[short], _INLINE)
    valid = buffer_of(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(pa.binary_view(), count, [valid, buffer_of(views), buffer_of(octets)]).cast(pa.binary())


def _window(octets: npt.NDArray[Any], at: Numbers, sizes: Numbers, width: int) -> npt.NDArray[np.int32]:
    """The first bytes of each piece, zeros behind its end, four to a number."""
    inside = np.arange(width) < sizes[:, None]
    found = np.where(inside, octets[np.minimum(at[:, None] + np.arange(width), len(octets) - 1)], np.uint8(0))
    return np.ascontiguousarray(found).view(np.int32)
