"""Hashes are part of the file format: their values may never change."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colliding import colliding
from penstock.core.hashing import bucket_of, hash64, murmur2, murmur2_all, partition_of, partitions_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@given(st.lists(st.binary(max_size=20)))
def test_many_keys_hash_as_each_does(keys: list[bytes]) -> None:
    assert murmur2_all(pa.array(keys, pa.binary())).tolist() == [murmur2(k) for k in keys]


def test_a_key_that_is_null_goes_to_partition_zero() -> None:
    keys = [b"user:123", None, b"", b"\x00", b"user:456"]
    expected = [0 if k is None else partition_of(k, 7) for k in keys]
    assert partitions_of(pa.array(keys, pa.binary()), 7).tolist() == expected


def test_the_hash_of_a_row_never_changes() -> None:
    """Golden values: state files are sorted by them."""
    columns = [pa.array(["a", "b", "", None, "a"]), pa.array([1, -1, None, 0, 1]), pa.array([0.0, -0.0, None, float("nan"), 0.0])]
    found = hash64(columns, 5)
    assert found.tolist() == [
        4575360548102350651,
        15225315511218108960,
        8092442336290147905,
        15810196794385568931,
        4575360548102350651,
    ]


@given(st.lists(st.one_of(st.none(), st.text(max_size=9)), min_size=1))
def test_equal_texts_hash_equal_however_they_are_stored(texts: list[str | None]) -> None:
    plain = pa.array(texts, pa.string())
    stored = [plain, pa.chunked_array([plain[:1], plain[1:]]), plain.dictionary_encode(), plain.cast(pa.large_string())]
    hashes = [hash64([column], len(texts)).tolist() for column in stored]
    assert all(h == hashes[0] for h in hashes)
    assert len(set(hashes[0])) == len(set(texts))


def test_minus_zero_and_every_nan_are_one_key() -> None:
    floats = np.array([0.0, -0.0, np.nan, -np.nan, 1.0])
    hashes = hash64([pa.array(floats)], 5)
    assert hashes[0] == hashes[1]
    assert hashes[2] == hashes[3]
    assert len(set(hashes.tolist())) == 3


def test_buckets_are_ranges_of_the_hash() -> None:
    hashes = np.sort(hash64([pa.array(range(10_000))], 10_000))
    for buckets in (1, 2, 3, 7, 16):
        where = bucket_of(hashes, buckets)
        assert (np.diff(where) >= 0).all()
        assert set(where.tolist()) == set(range(buckets))


@pytest.mark.parametrize("count", [2, 4, 60])
def test_colliding_keys_are_different_keys_of_one_hash(count: int) -> None:
    keys = colliding(count)
    assert len(set(keys)) == count
    assert len(set(hash64([pa.array(keys)], count).tolist())) == 1
    assert len(set(hash64([pa.array([key.encode() for key in keys])], count).tolist())) == 1
