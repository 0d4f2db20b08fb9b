"""Rows as commands of Redis, made a column at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import array_of, filled, joined, lengths_of, numbers_in
from penstock.log.intake.text import json_objects
from penstock.sinks.stores.keys import keys_of, plain_bytes
from penstock.sinks.stores.port import Refusal
from penstock.sinks.stores.redis.resp import bulk, head

Value = Literal["hash", "json", "string"]  # what stands under a key
LONGEST = 512 << 20  # bytes of a value that every server takes if nothing else was set
_LENGTHS = pa.array([b"$%d\r\n" % length for length in range(1000)], pa.binary())  # of most words
_ROWS, _BYTES = 10_000, 32 << 20  # of the rows that become commands at one time


@dataclass(frozen=True)
class Commands:
    """So many commands, one behind the other."""

    data: memoryview | bytes
    count: int


@dataclass(frozen=True)
class RowFormat:
    """Which key a row has in Redis, and what stands under it."""

    prefix: str
    key: tuple[str, ...]  # () = the row's position
    columns: tuple[str, ...]
    value: Value = "hash"
    column: str | None = None  # whose text is the value, where that is a string
    ttl: timedelta | None = None

    def keys_of(self, rows: pa.Table) -> pa.Array:
        """`prefix:value`, of several columns `prefix:value:value`."""
        return joined(self.prefix.encode(), keys_of(rows, self.key), b":")


@dataclass
class Encoder:
    """The commands of an epoch, many rows at a time. refused: rows with a value that is longer than the server takes, or without
    any; they are left out."""

    format: RowFormat
    longest: int = LONGEST
    refused: list[Refusal] = field(default_factory=list)

    def deletes(self, rows: pa.Table) -> Iterator[Commands]:
        for part in _parts(rows):
            yield _of_all(b"UNLINK", [bulks(self.format.keys_of(part))])

    def puts(self, rows: pa.Table) -> Iterator[Commands]:
        start = 0
        for part in _parts(rows):
            keys, values = self._fitting(part, start)
            yield from self._put(bulks(keys), values) if len(keys) else ()
            start += part.num_rows

    def _put(self, keys: pa.Array, values: Sequence[pa.Array]) -> Iterator[Commands]:
        if self.format.value == "hash":
            yield _of_all(b"UNLINK", [keys])  # a field that is null now must not stay
            yield _hashes(keys, self.format.columns, values)
            if self.format.ttl:
                yield _of_each([head(3) + bulk("PEXPIRE"), keys, bulk(_milliseconds(self.format.ttl))])
            return
        (value,) = values
        if value.null_count:
            yield _of_all(b"UNLINK", [keys.filter(value.is_null())])
            keys, value = keys.filter(value.is_valid()), value.drop_null()
        if not len(keys):
            return
        if self.format.ttl:
            yield _of_each([head(5) + bulk("SET"), keys, bulks(value), bulk("PX") + bulk(_milliseconds(self.format.ttl))])
        else:
            yield _of_all(b"MSET", [keys, bulks(value)])

    def _fitting(self, rows: pa.Table, start: int) -> tuple[pa.Array, list[pa.Array]]:
        """Keys and values of the rows that the server takes."""
        keys, values = self.format.keys_of(rows), self._values(rows)
        reasons: dict[int, str] = {}
        for name, array in zip(["key", *self._names()], [keys, *values], strict=True):
            lengths = filled(lengths_of(array), 0).to_numpy()
            for row in np.flatnonzero(lengths > self.longest):
                reasons.setdefault(int(row), f"{name} has {lengths[row]} bytes, the server takes {self.longest}")
        if self.format.value == "hash" and all(array.null_count for array in values):
            empty = np.logical_and.reduce([_absent(array) for array in values])
            for row in np.flatnonzero(empty):
                reasons.setdefault(int(row), "all of its columns are null, and Redis has no empty hashes")
        self.refused += [Refusal(start + row, reason) for row, reason in sorted(reasons.items())]
        if not reasons:
            return keys, values
        fits = pa.array([row not in reasons for row in range(rows.num_rows)], pa.bool_())
        return keys.filter(fits), [array.filter(fits) for array in values]

    def _names(self) -> list[str]:
        shape = self.format
        return [f"column {name!r}" for name in shape.columns] if shape.value == "hash" else ["the value"]

    def _values(self, rows: pa.Table) -> list[pa.Array]:
        shape = self.format
        if shape.value == "hash":
            return [plain_bytes(rows[name]) for name in shape.columns]
        return [json_objects(rows.select(list(shape.columns))) if shape.value == "json" else plain_bytes(rows[shape.column or ""])]


def bulks(values: pa.Array) -> pa.Array:
    """Each value as a word of a command; none of them is null."""
    return joined(_lengths(values), values, b"\r\n", b"")


def _hashes(keys: pa.Array, names: Sequence[str], values: Sequence[pa.Array]) -> Commands:
    """An HSET for each row, of the columns that are not null. Each byte is copied once, but for columns with nulls."""
    some = [~_absent(array) for array in values if array.null_count]
    always = 2 + 2 * (len(values) - len(some))  # words of every row
    heads = joined(b"*", _digits(array_of(always + 2 * np.sum(some, axis=0))), b"\r\n", b"") if some else head(always)
    pieces: list[bytes | pa.Array] = [heads, bulk("HSET"), keys]
    for name, array in zip(names, values, strict=True):
        pair: list[bytes | pa.Array] = [bulk(name), _lengths(array), array, b"\r\n"]
        pieces += [filled(joined(*pair, b""), b"")] if array.null_count else pair
    return _of_each(pieces)


def _lengths(values: pa.Array) -> pa.Array:
    """What stands before each word of a command: how many bytes it has."""
    lengths = lengths_of(values)
    if (pc.max(lengths).as_py() or 0) < len(_LENGTHS):
        return _LENGTHS.take(lengths)
    return joined(b"$", _digits(lengths), b"\r\n", b"")


def _of_each(pieces: Sequence[bytes | pa.Array]) -> Commands:
    """A command for each row: the pieces one behind the other."""
    rows = joined(*pieces, b"")
    return Commands(_memory(rows), len(rows))


def _of_all(name: bytes, words: Sequence[pa.Array]) -> Commands:
    """One command for all rows."""
    rows = joined(*words, b"") if len(words) > 1 else words[0]
    return Commands(b"".join([head(1 + len(words) * len(rows)), bulk(name), _memory(rows)]), 1)


def _memory(array: pa.Array) -> memoryview:
    """The values of an array without nulls, one behind the other, without a copy."""
    _, ends, data = array.buffers()
    at = numbers_in(ends, "int32", len(array) + 1, array.offset * 4)
    return memoryview(data)[at[0] : at[-1]] if data else memoryview(b"")


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in parts that are small enough."""
    if not rows.num_rows:
        return
    if rows.num_rows > 1 and (rows.num_rows > _ROWS or rows.nbytes > _BYTES):
        half = (rows.num_rows + 1) // 2
        yield from _parts(rows.slice(0, half))
        yield from _parts(rows.slice(half))
    else:
        yield rows


def _absent(array: pa.Array) -> npt.NDArray[np.bool_]:
    return array.is_null().to_numpy(zero_copy_only=False)


def _digits(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string()).cast(pa.binary())


def _milliseconds(ttl: timedelta) -> int:
    return ttl // timedelta(milliseconds=1)
