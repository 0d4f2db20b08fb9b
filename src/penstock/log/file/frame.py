"""The bytes of frames and of segment headers. Layout and reasons: docs/adr/0005-log-format.md.

A frame is a header of fixed size, the sender's id, and the Arrow message of its rows, each part padded to 64 bytes. The
header's CRC covers header and sender, so that headers can be trusted without touching the rows; the body has its own.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from crc32c import crc32c

from penstock.core.time import FOREVER
from penstock.log.intake.sizes import fits
from penstock.log.port import Frame, Sender

VERSION = 1
REWRITTEN = 2  # version of a frame that was put together from others: it has gaps, and no need of `durable`
ALIGN = 64
MAGIC = b"PNSf"
SEGMENT_MAGIC = b"PNSs"
MAX_SENDER = 512
MAX_BODY = 1 << 31
PACK_FROM = 8 << 20  # bytes of rows: what is larger is compressed, what is smaller can be mapped and read without a copy
_MESSAGE = 8  # bytes before an Arrow message: a sign that one follows, and the length of its head

# magic, crc | version, sender length, flags, length, base, count, appended, least, greatest, plausible, mark, time before,
# mark before, epoch, sequence, crc of the body, schema version, bytes of the segment that were durable before this frame (of a
# rewritten frame: offsets that hold no row)
_HEADER = struct.Struct("<4sIHHIqqqqqqqqqqqqIIq")
HEADER = _HEADER.size
_LAST = struct.Struct("<q")  # the last field of a header
_NAMED, _NAMED_AT = struct.Struct("<H"), struct.calcsize("<4sIH")
_GREATEST, _GREATEST_AT = struct.Struct("<q"), struct.calcsize("<4sIHHIqqqqq")
_START = struct.Struct("<4sIHHIqqq")  # the first fields of a header, enough to go to the next one
# magic, crc | version, partition, topic id, serial, base, serial and length of the segment before, append time, time, mark before;
# since version 2: greatest event time before, number of the cleaning that wrote it
_SEGMENT = struct.Struct("<4sIII16sqqqqqqqqq24x")
SEGMENT_HEADER = _SEGMENT.size
SEGMENT_VERSION = 2
_GAPS = 1 << 31  # flag: the sender may skip numbers; the bits below say which system columns there are


class Bad(Exception):
    """These bytes are no whole frame; the message says why."""


class Layout(NamedTuple):
    """How the rows of a frame are stored: the topic's schema version and a bit for every system column."""

    version: int
    system: int


class Body(NamedTuple):
    """The rows of a frame, encoded."""

    layout: Layout
    data: bytes  # padded
    crc: int


class Stored(NamedTuple):
    """A frame as it lies in a segment."""

    frame: Frame
    layout: Layout
    body_at: int
    body_crc: int
    durable: int


@dataclass(frozen=True)
class SegmentHeader:
    """What a segment knows of those before it. `before_length` is where the segment before it ends, whatever follows there."""

    topic: str
    partition: int
    serial: int
    base: int
    before_serial: int  # -1: there is none
    before_length: int
    appended: int
    time: int
    mark: int
    greatest: int = FOREVER  # greatest event time so far, plausible or not; FOREVER: not known
    cleaning: int = 0  # of a rewritten segment: the number of the cleaning


def encode_body(rows: pa.RecordBatch | None, layout: Layout, pack_from: int = PACK_FROM) -> Body:
    data = b"" if rows is None else _padded(memoryview(rows.serialize() if fits(rows, pack_from - 1) else _packed(rows)))
    return Body(layout, data, crc32c(data))


def _packed(rows: pa.RecordBatch) -> pa.Buffer:
    """The same Arrow message, its columns compressed: it says so itself, so that a reader need not know."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(rows)
    data = sink.getvalue()
    schema = _MESSAGE + int.from_bytes(data[4:_MESSAGE].to_pybytes(), "little")  # it comes first and has no body
    return data[schema : data.size - _MESSAGE]  # and behind the rows stands the end of the stream


def encode_frame(frame: Frame, body: Body, durable: int, version: int = VERSION) -> bytes:
    """The whole frame, ready to be appended. A rewritten one says how many of its offsets hold no row."""
    sender = frame.sender
    name = _padded(sender.id.encode()) if sender else b""
    flags = body.layout.system | (_GAPS if sender and sender.gaps else 0)
    fields = _HEADER.pack(
        MAGIC,
        0,
        version,
        len(sender.id.encode()) if sender else 0,
        flags,
        HEADER + len(name) + len(body.data),
        frame.base,
        frame.count,
        frame.appended,
        frame.least,
        frame.greatest,
        frame.plausible,
        frame.mark,
        frame.time_before,
        frame.mark_before,
        sender.epoch if sender else 0,
        sender.sequence if sender else 0,
        body.crc,
        body.layout.version,
        frame.gap if version == REWRITTEN else durable,
    )
    rest = fields[8:] + name
    return b"".join((MAGIC, crc32c(rest).to_bytes(4, "little"), rest, body.data))


def frame_start(data: memoryview, at: int, limit: int) -> tuple[int, int, int]:
    """Length, first offset and number of offsets of the frame whose header stands at `at`, header and sender checked; Bad if it is
    not whole."""
    if limit - at < HEADER:
        raise Bad("it ends inside a header")
    magic, crc, version, named, _, length, base, count = _START.unpack_from(data, at)
    if magic != MAGIC:
        raise Bad("no frame begins there")
    body_at = at + HEADER + -(-named // ALIGN) * ALIGN
    if named > MAX_SENDER or body_at > limit or crc32c(data[at + 8 : body_at]) != crc:
        raise Bad("its header does not match its checksum")
    if version not in (VERSION, REWRITTEN):
        raise Bad(f"its version is {version}, and only versions {VERSION} and {REWRITTEN} are known")
    if length < body_at - at or length % ALIGN or length - (body_at - at) > MAX_BODY:
        raise Bad("its length is impossible")
    if at + length > limit:
        raise Bad("it ends inside its rows")
    return length, base, count + _LAST.unpack_from(data, at + HEADER - 8)[0] if version == REWRITTEN else count


def glance(data: memoryview, at: int) -> tuple[int, bool]:
    """The greatest event time of a frame that `frame_start` has checked, and whether it names its sender."""
    return _GREATEST.unpack_from(data, at + _GREATEST_AT)[0], bool(_NAMED.unpack_from(data, at + _NAMED_AT)[0])


def stored_frame(data: memoryview, at: int, segment: int) -> Stored:
    """The frame whose header stands at `at`, already checked by `frame_start`."""
    (
        _,
        _,
        kind,
        named,
        flags,
        length,
        base,
        count,
        appended,
        least,
        greatest,
        plausible,
        mark,
        time_before,
        mark_before,
        epoch,
        sequence,
        body_crc,
        version,
        last,
    ) = _HEADER.unpack_from(data, at)
    gap, durable = (last, 0) if kind == REWRITTEN else (0, last)
    sender = None
    if named:
        name = bytes(data[at + HEADER : at + HEADER + named]).decode()
        sender = Sender(name, epoch, sequence, bool(flags & _GAPS))
    where = (segment, at, length)
    frame = Frame(base, count, appended, least, greatest, plausible, mark, time_before, mark_before, sender, where, gap)
    body_at = at + HEADER + -(-named // ALIGN) * ALIGN
    return Stored(frame, Layout(version, flags & ~_GAPS), body_at, body_crc, durable)


def body_whole(data: memoryview, stored: Stored) -> bool:
    """Whether the rows are what was written."""
    end = stored.frame.where[1] + stored.frame.where[2]
    return bool(crc32c(data[stored.body_at : end]) == stored.body_crc)


def encode_segment(header: SegmentHeader) -> bytes:
    fields = _SEGMENT.pack(
        SEGMENT_MAGIC,
        0,
        SEGMENT_VERSION,
        header.partition,
        bytes.fromhex(header.topic),
        header.serial,
        header.base,
        header.before_serial,
        header.before_length,
        header.appended,
        header.time,
        header.mark,
        header.greatest,
        header.cleaning,
    )
    return b"".join((SEGMENT_MAGIC, crc32c(fields[8:]).to_bytes(4, "little"), fields[8:]))


def decode_segment(data: memoryview) -> SegmentHeader:
    """The header at the start of a segment; Bad if it is not whole."""
    if len(data) < SEGMENT_HEADER:
        raise Bad("it ends inside the segment's header")
    magic, crc, version, partition, topic, *rest = _SEGMENT.unpack_from(data, 0)
    if magic != SEGMENT_MAGIC or crc32c(data[8:SEGMENT_HEADER]) != crc or version > SEGMENT_VERSION:
        raise Bad("the segment's header does not match its checksum")
    return SegmentHeader(topic.hex(), partition, *(rest if version == SEGMENT_VERSION else rest[:-2]))


def _padded(data: bytes | memoryview) -> bytes:
    return b"".join((data, bytes(-len(data) % ALIGN)))
