"""Checksums of many rows at once, from the buffers of their columns: a flipped bit in a value always changes that of its row (G27).

Every value is words of 64 bits: a number is one, a decimal two, text and bytes one for eight bytes and one for their length. The
checksum is the upper half of a sum over (word mixed with itself) * (a factor of its column and place). A null adds nothing, so a
row keeps its checksum when columns are added at the end. What lies behind the first 64 bytes of a text counts as its CRC-32C.
These numbers are part of the file format.
"""

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from penstock.core.arrow import numbers_in

Words = npt.NDArray[np.uint64]

_HALF = np.uint64(32)
_TEXT = 8  # words of a text, before its CRC-32C
_LENGTH, _REST, _PRESENT = _TEXT, _TEXT + 1, _TEXT + 2  # places of a column's other factors
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)  # of a word of which so many bytes are the text's
_NAN = np.float64("nan").view(np.uint64)


def checksums(columns: Sequence[pa.Array], rows: int) -> npt.NDArray[np.int64]:
    """The checksum of each row, 32 bits; columns of int64, float64, decimal128, text or bytes."""
    total = np.zeros(rows, np.uint64)
    if rows:
        for number, column in enumerate(columns):
            of = _cells(column, factors(number))
            if column.null_count:
                of[column.is_null().to_numpy(zero_copy_only=False)] = 0
            total += of
    return _spread((total >> _HALF).astype(np.uint32)).astype(np.int64)


@functools.cache
def factors(column: int) -> Words:
    """The factors of a column's words, by place, then those of a text's length, of its rest, and of being there at all."""
    return np.array([_factor(column * (_PRESENT + 1) + place) for place in range(_PRESENT + 1)], np.uint64)


def _factor(number: int) -> int:
    """An odd number by which no flipped bit is lost: the upper half of the product changes, whatever is added to it."""
    attempt = number << 8
    while not all(reaches_upper_half(bit, candidate := _scrambled(attempt) | 1) for bit in range(64)):
        attempt += 1
    return candidate


def reaches_upper_half(bit: int, factor: int) -> bool:
    """Whether a flip of this bit of a word changes the upper half of any sum that has word * factor in it."""
    lower = [0] if bit < 32 else [1 << bit - 32, -(1 << bit - 32)]  # a word is mixed with its own upper half
    changes = [((1 << bit) + more) * factor % 2**64 >> 32 for more in lower]
    return all(change not in (0, 2**32 - 1) for change in changes)


def _scrambled(number: int) -> int:
    """SplitMix64."""
    z = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def _spread(checks: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """One to one, so that rows that differ a little have checksums that differ a lot: those of all rows are added up."""
    checks = (checks ^ checks >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    checks = (checks ^ checks >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return checks ^ checks >> np.uint32(16)


def _cells(column: pa.Array, by: Words) -> Words:
    """What each value adds."""
    t = column.type
    return _texts(column, by) if pa.types.is_string(t) or pa.types.is_binary(t) else _numbers(column, by)


def _numbers(column: pa.Array, by: Words) -> Words:
    t = column.type
    width = 2 if pa.types.is_decimal(t) else 1
    words: Words = numbers_in(column.buffers()[1], "<u8", len(column) * width, column.offset * width * 8)
    if pa.types.is_floating(t):
        numbers = words.view(np.float64)
        if np.isnan(numbers).any():  # there are many bit patterns, and SQLite gets one
            words = np.where(np.isnan(numbers), _NAN, words)
    total = np.full(len(column), by[_PRESENT], np.uint64)
    for place in range(width):
        total += _mixed(words[place::width]) * by[place]
    return total


def _mixed(words: Words) -> Words:
    return words ^ (words >> _HALF)


def _texts(column: pa.Array, by: Words) -> Words:
    starts, data = _pieces(column)
    lengths, starts = np.diff(starts), starts[:-1]
    total: Words = lengths.astype(np.uint64) * by[_LENGTH] + by[_PRESENT]
    longest, shortest = int(lengths.max()), int(lengths.min())
    at_each_byte = np.ndarray((len(data) - 7,), "<u8", data.data, strides=(1,))
    for place in range(min(_TEXT, (longest + 7) // 8)):
        begin = 8 * place
        of = slice(None) if shortest >= begin else np.flatnonzero(lengths > begin)
        left = np.minimum(lengths[of] - begin, 8)
        total[of] += _mixed(at_each_byte[starts[of] + begin] & _MASKS[left]) * by[place]
    if longest > 8 * _TEXT:
        long = np.flatnonzero(lengths > 8 * _TEXT)
        ends, octets = starts[long] + lengths[long], data.data
        rests = [crc32c(octets[start:end]) for start, end in zip(starts[long] + 8 * _TEXT, ends, strict=True)]
        total[long] += np.array(rests, np.uint64) * by[_REST] << _HALF
    return total


def _pieces(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each value begins, the end of the last one too, and the bytes of them all with a word of nothing behind them."""
    _, offsets, content = column.buffers()
    starts = numbers_in(offsets, "<i4", len(column) + 1, column.offset * 4).astype(np.int64)
    first, size = int(starts[0]), int(starts[-1] - starts[0])
    data = np.zeros(size + 8, np.uint8)
    if size:
        data[:size] = numbers_in(content, np.uint8, size, first)
    return starts - first, data
