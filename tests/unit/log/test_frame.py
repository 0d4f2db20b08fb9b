"""The bytes of frames."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.time import NEVER
from penstock.log.file.frame import (
    ALIGN,
    HEADER,
    PACK_FROM,
    SEGMENT_HEADER,
    Bad,
    Layout,
    SegmentHeader,
    body_whole,
    decode_segment,
    encode_body,
    encode_frame,
    encode_segment,
    frame_start,
    stored_frame,
)
from penstock.log.file.segment import later_frame, scan
from penstock.log.port import Frame, Sender

INTEGERS = st.integers(-(2**62), 2**62)
SENDERS = st.none() | st.builds(
    Sender, st.text("pq-ü", min_size=1, max_size=80), st.integers(0, 99), st.integers(0, 99), st.booleans()
)
FRAMES = st.builds(Frame, *[st.integers(0, 2**40)] * 2, *[INTEGERS] * 7, SENDERS)


@given(FRAMES, st.none() | st.integers(1, 50), st.integers(0, 3), st.integers(0, 31), st.integers(0, 2**40))
def test_a_frame_comes_back_as_it_was(frame: Frame, rows: int | None, version: int, system: int, durable: int) -> None:
    batch = None if rows is None else pa.record_batch({"n": pa.array(range(rows), pa.int64())})
    body = encode_body(batch, Layout(version, system))
    data = memoryview(b"\xaa" * ALIGN + encode_frame(frame, body, durable))
    assert len(data) % ALIGN == 0
    assert frame_start(data, ALIGN, len(data)) == (len(data) - ALIGN, frame.base, frame.count)
    stored = stored_frame(data, ALIGN, 7)
    assert stored.frame == frame
    assert stored.frame.where == (7, ALIGN, len(data) - ALIGN)
    assert (stored.layout, stored.durable) == (Layout(version, system), durable)
    assert body_whole(data, stored)
    if batch is not None:
        assert pa.ipc.read_record_batch(pa.py_buffer(data[stored.body_at :]), batch.schema).equals(batch)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_frame_or_bad_and_nothing_else(data: bytes) -> None:
    for prefix in (b"", b"PNSf", b"PNSs"):
        view = memoryview(prefix + data)
        with pytest.raises(Bad):
            frame_start(view, 0, len(view))
        with pytest.raises(Bad):
            decode_segment(view)
        assert scan(view, 0, len(view), 0, 0).positions == []
        assert later_frame(view, 0) is None


def frame_bytes(base: int, durable: int) -> bytes:
    frame = Frame(base, 0, 0, NEVER, NEVER, NEVER, 5, NEVER, NEVER)
    return encode_frame(frame, encode_body(None, Layout(0, 0)), durable)


def test_a_frame_behind_bad_bytes_proves_damage_only_if_they_were_durable_before_it() -> None:
    bad = b"\0" * HEADER
    assert later_frame(memoryview(bad + frame_bytes(0, durable=HEADER)), 0)
    assert later_frame(memoryview(bad + frame_bytes(0, durable=1)), 0)
    assert later_frame(memoryview(bad + frame_bytes(0, durable=0)), 0) is None


def test_frames_that_do_not_follow_each_other_are_not_taken() -> None:
    data = memoryview(frame_bytes(0, 0) + frame_bytes(1, 0))
    found = scan(data, 0, len(data), 0, 0)
    assert (found.positions, found.at, found.why) == ([0], HEADER, "it claims offset 1")


def test_a_segment_header_comes_back_as_it_was() -> None:
    header = SegmentHeader("ab" * 16, 3, 4, 5, 6, 7, 8, NEVER, 9)
    data = encode_segment(header)
    assert len(data) == SEGMENT_HEADER
    assert decode_segment(memoryview(data)) == header
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Bad):
            decode_segment(memoryview(changed))


def test_the_rows_of_a_large_frame_are_compressed_and_say_so_themselves() -> None:
    rows = pa.record_batch({"n": pa.array(range(PACK_FROM // 4), pa.int64()), "t": pa.array(["text"] * (PACK_FROM // 4))})
    body = encode_body(rows, Layout(0, 0))
    assert len(body.data) < rows.nbytes * 0.6
    assert len(body.data) % ALIGN == 0
    assert pa.ipc.read_record_batch(pa.py_buffer(body.data), rows.schema).equals(rows)
