"""Records cut out of the memory they lie in: whatever lies there, what is told is what was written, or it is not told."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.kafka.read.batches import Cuts, Numbers, Placed, chains_of

BASE = 1 << 20


@dataclass(frozen=True)
class Written:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    moved: int = 0
    before: bytes = b""  # what stands before it, if it begins another batch


@dataclass
class Laid:
    """Bytes at addresses from BASE on, and where the records are among them."""

    data: bytearray = field(default_factory=bytearray)
    places: list[tuple[int, int, int, int]] = field(default_factory=list)

    def peek(self, addresses: Numbers) -> Any:
        assert ((addresses >= BASE) & (addresses < BASE + len(self.data))).all(), "it looks where nobody knows what is"
        return np.frombuffer(bytes(self.data), np.uint8)[addresses - BASE]

    def copy(self, address: int, size: int) -> bytes:
        assert BASE <= address <= address + size <= BASE + len(self.data)
        return bytes(self.data[address - BASE : address - BASE + size])

    def placed(self) -> Placed:
        return Placed(*(np.array(column, np.int64) for column in zip(*self.places, strict=True)))


def varint(number: int) -> bytes:
    rest, out = (number << 1) ^ (number >> 63), bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def laid(records: list[Written]) -> Laid:
    """As a broker lays them: batch after batch."""
    out = Laid()
    for number, record in enumerate(records):
        out.data += record.before
        head = b"\0" + varint(record.moved) + varint(number)
        tail = varint(len(record.headers)) + b"".join(sized(name) + sized(value) for name, value in record.headers)
        key_at = len(head) + len(varint(-1 if record.key is None else len(record.key)))
        value_at = len(head) + len(sized(record.key)) + len(varint(-1 if record.value is None else len(record.value)))
        body = head + sized(record.key) + sized(record.value) + tail
        start = BASE + len(out.data) + len(varint(len(body)))
        out.data += varint(len(body)) + body
        key, value = record.key, record.value
        out.places.append(
            (
                0 if value is None else start + value_at,
                len(value or b""),
                0 if key is None else start + key_at,
                len(key or b""),
            )
        )
    out.data += b"\xff" * 20
    return out


small = st.binary(max_size=20) | st.sampled_from([b"", b"\0" * 9, b"\0\x02\0\0\0\x01\x02", b"x" * 200])
headers = st.lists(st.tuples(small, st.none() | small), max_size=3).map(tuple)
written = st.builds(
    Written,
    value=st.none() | small,
    key=st.none() | small,
    headers=st.just(()) | headers,
    moved=st.integers(-5, 5) | st.integers(-(2**62), 2**62),
    before=st.just(b"") | st.binary(min_size=61, max_size=61),
)


@settings(max_examples=600, deadline=None)
@given(st.lists(written, min_size=1, max_size=8))
def test_keys_and_values_are_those_that_were_written(records: list[Written]) -> None:
    memory = laid(records)
    placed = memory.placed()
    chains = chains_of(placed, memory)
    cuts = Cuts(placed, chains, memory)
    assert cuts.keys().to_pylist() == [r.key for r in records]
    assert cuts.values().to_pylist() == [r.value for r in records]


@settings(max_examples=600, deadline=None)
@given(st.lists(written, min_size=1, max_size=8))
def test_what_is_told_of_headers_and_times_is_true(records: list[Written]) -> None:
    chains = chains_of((memory := laid(records)).placed(), memory)
    rows, names, values = Cuts(memory.placed(), chains, memory).headers()
    found = list(zip(rows.tolist(), names.to_pylist(), values.to_pylist(), strict=True))
    for i, record in enumerate(records):
        assert [pair for row, *pair in found if row == i] == ([list(pair) for pair in record.headers] if chains.known[i] else [])
        if chains.follows[i]:
            assert chains.moved[i] == record.moved
            assert not record.before, "it belongs to another batch"


@pytest.mark.parametrize("headers", [(), ((b"penstock-row", b"x" * 40), (b"h", None))], ids=["without", "with headers"])
def test_records_of_a_batch_are_one_chain(headers: Any) -> None:
    records = [Written(b"value %d" % i, b"key", headers, moved=i) for i in range(1000)]
    chains = chains_of((memory := laid(records)).placed(), memory)
    assert list(chains.spans()) == [(0, 1000)]
    assert chains.known.all()
    assert chains.moved[1:].tolist() == list(range(1, 1000))


@settings(max_examples=300, deadline=None)
@given(st.lists(written, min_size=2, max_size=6), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=6))
def test_whatever_lies_between_records_they_are_read_as_they_are(records: list[Written], flips: list[tuple[int, int]]) -> None:
    """Bytes that are not as the format has them: then nothing is concluded from them, and no other place is looked at."""
    memory = laid(records)
    inside = {a for v, n, k, m in memory.places for start, size in ((v, n), (k, m)) if start for a in range(start, start + size)}
    for at, byte in flips:
        if BASE + at % len(memory.data) not in inside:
            memory.data[at % len(memory.data)] = byte
    placed = memory.placed()
    cuts = Cuts(placed, chains_of(placed, memory), memory)
    assert cuts.keys().to_pylist() == [r.key for r in records]
    assert cuts.values().to_pylist() == [r.value for r in records]
