"""Hashes that must never change: Kafka's murmur2 for partitions, and our own 64-bit hash for state buckets.

State files are sorted by `hash64`, so its values are part of the file format.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import numbers_in, one_array

Hashes = npt.NDArray[np.uint64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_BASE = np.uint64(0x100000001B3)
_NULL = np.uint64(0x5851F42D4C957F2D)


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 as a signed 32-bit number."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


def partitions_of(keys: pa.Array, partitions: int) -> npt.NDArray[np.int64]:
    """The partition that Kafka's clients choose for each key; 0 where there is none."""
    chosen = (murmur2_all(keys) & np.int32(0x7FFFFFFF)).astype(np.int64) % partitions
    return np.where(keys.is_null().to_numpy(zero_copy_only=False), 0, chosen) if keys.null_count else chosen


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's clients choose for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2_all(keys: pa.Array) -> npt.NDArray[np.int32]:
    """murmur2 of many keys at once; a null counts as empty bytes."""
    wide = keys.cast(pa.large_binary()).fill_null(b"")
    offsets = numbers_in(wide.buffers()[1], np.int64, len(wide) + 1, wide.offset * 8)
    data = numbers_in(wide.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    out = np.zeros(len(wide), np.uint32)
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        rows = data[offsets[same][:, None] + np.arange(length)]
        out[same] = _murmur2_same_length(rows, int(length))
    return out.view(np.int32)


def _murmur2_same_length(rows: npt.NDArray[np.uint8], length: int) -> npt.NDArray[np.uint32]:
    m = np.uint32(0x5BD1E995)
    h = np.full(len(rows), np.uint32(0x9747B28C ^ length), np.uint32)
    whole = length & ~3
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4")
    with np.errstate(over="ignore"):
        for k in words.T.astype(np.uint32):
            k = k * m
            h = h * m ^ (k ^ k >> np.uint32(24)) * m
        if whole < length:
            for i in range(length - whole - 1, -1, -1):
                h = h ^ rows[:, whole + i].astype(np.uint32) << np.uint32(8 * i)
            h = h * m
        h = (h ^ h >> np.uint32(13)) * m
    return np.asarray(h ^ h >> np.uint32(15), np.uint32)


def hash64(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> Hashes:
    """One 64-bit hash a row over the columns; equal values give equal hashes, null is a value of its own."""
    total = np.full(rows, np.uint64(len(columns)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            total = _mix(total * _MULTIPLIER + _column(column))
    return total


def bucket_of(hashes: Hashes, buckets: int) -> npt.NDArray[np.int64]:
    """The state bucket of each hash: equal ranges over its top 16 bits, so that a sorted file can be cut by bucket."""
    return ((hashes >> np.uint64(48)) * np.uint64(buckets) >> np.uint64(16)).astype(np.int64)


def _mix(h: Hashes) -> Hashes:
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def _column(column: pa.Array | pa.ChunkedArray) -> Hashes:
    array = one_array(column)
    t = array.type
    if isinstance(array, pa.DictionaryArray):
        unique: Hashes = _column(array.dictionary) if len(array.dictionary) else np.zeros(1, np.uint64)
        values = unique[array.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    elif pa.types.is_string(t) or pa.types.is_binary(t) or pa.types.is_large_string(t) or pa.types.is_large_binary(t):
        values = _bytes(array)
    elif pa.types.is_floating(t):
        numbers = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        numbers = np.where(np.isnan(numbers), np.nan, numbers)
        values = _mix(numbers.view(np.uint64))
    elif pa.types.is_boolean(t) or pa.types.is_integer(t) or pa.types.is_temporal(t):
        values = _mix(_integers(array).view(np.uint64))
    else:  # decimals and nested values: by their text
        values = _bytes(pa.array([None if v is None else repr(v) for v in array.to_pylist()], pa.string()))
    if array.null_count:
        values = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, values)
    return np.asarray(values, np.uint64)


def _integers(array: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    filled = array.cast(pa.int64()).fill_null(0)
    return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False))


def _bytes(array: pa.Array) -> Hashes:
    """A polynomial over the bytes of each value, summed in one pass over the whole buffer."""
    if not len(array):
        return np.zeros(0, np.uint64)
    if len(array) > 4096:  # many rows, few keys: hash each key once
        coded = array.dictionary_encode()
        if len(coded.dictionary) < len(array) // 2:
            return _column(coded)
    wide = array.cast(pa.large_binary())
    offsets = numbers_in(wide.buffers()[1], np.int64, len(wide) + 1, wide.offset * 8)
    data = wide.buffers()[2]
    size = int(offsets[-1] - offsets[0])
    lengths = np.diff(offsets)
    if not size:
        return _mix(lengths.astype(np.uint64))
    text = numbers_in(data, np.uint8, size, int(offsets[0])).astype(np.uint64)
    starts = np.repeat(offsets[:-1] - offsets[0], lengths)
    power = _powers(int(lengths.max()))
    with np.errstate(over="ignore"):
        terms = (text + np.uint64(1)) * power[np.arange(size) - starts]
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        values = sums[offsets[1:] - offsets[0]] - sums[offsets[:-1] - offsets[0]]
        return _mix(values ^ _mix(lengths.astype(np.uint64)))


def _powers(count: int) -> Hashes:
    with np.errstate(over="ignore"):
        return np.cumprod(np.full(max(count, 1), _BASE, dtype=np.uint64), dtype=np.uint64)
