"""Frames of closed segments, put together into large ones: every row keeps its offset, its times and the marks before it.

A frame ends where a mark stands that is greater than all before it, so that marks keep their place. Topics written by a flow are
the exception: their rows bring their watermarks along, and a mark may wait for the end of its frame.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import APPENDED, BEFORE, OFFSET, POSITION, WATERMARK
from penstock.core.time import NEVER, micros
from penstock.log.file.frame import REWRITTEN, Layout, encode_body, encode_frame
from penstock.log.intake.codec import event_times
from penstock.log.intake.stored_rows import SYSTEM, physical
from penstock.log.port import Chunk, Frame, TopicSpec
from penstock.log.stamp import Tail

MOST_ROWS = 1 << 17  # of a frame
MOST_BYTES = 16 << 20
_MOST_EVENTS = 512  # rows of a frame of an event store, where a frame is read for the sake of one row
_PACK_FROM = 1 << 16  # bytes of rows: what is larger is compressed
_OWN = (OFFSET, APPENDED, BEFORE)
_NOT_MIXED = {POSITION, WATERMARK}  # without them a row means something else than with null in them

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Rows that are kept. before: the greatest plausible event time of all rows before each, of those that are gone too."""

    table: pa.Table
    offsets: Numbers
    appended: Numbers
    times: Numbers
    before: Numbers

    def plausible(self, spec: TopicSpec) -> Numbers:
        return _plausible(spec, self.times, self.appended)


@dataclass
class _Stage:
    """Chunks as they come, until there are enough of them to look at together."""

    chunks: list[Chunk] = field(default_factory=list)
    kept: list[Mask | None] = field(default_factory=list)
    rows: int = 0


class Rewriter:
    """Takes the frames of a partition in their order, gives the bytes of those that replace them."""

    def __init__(self, spec: TopicSpec, version: int, tail: Tail) -> None:
        """version: of the newest schema, which all chunks have. tail: what is known before the first frame."""
        self._spec, self._version = spec, version
        self._most_rows = _MOST_EVENTS if spec.events else MOST_ROWS
        self._before = tail  # before the frame that is being made
        self.tail = tail  # behind all that was taken
        self._stage, self._pending, self._bytes = _Stage(), list[Rows](), 0
        self._kind = set[str]()  # which of the columns that are not mixed there are
        self.rows = 0  # in the frames made so far

    def add(self, frame: Frame, chunk: Chunk | None, keep: Mask | None = None) -> Iterator[bytes]:
        """One more frame, its rows (None: it has none) and which of them are kept (None: all). Gives the frames that are ready."""
        kind = _NOT_MIXED & set(chunk.rows.schema.names) if chunk else self._kind
        if kind != self._kind:
            yield from self._made()
            self._kind = kind
        if chunk:
            self._stage.chunks.append(chunk)
            self._stage.kept.append(keep)
            self._stage.rows += frame.count
        effective = frame.mark > self.tail.mark
        self.tail = self.tail.after(frame)
        if self._stage.rows >= self._most_rows:
            self._reduce()
        if (effective and not self._spec.writer) or self._full():
            yield from self._made()

    def finish(self, end: int) -> Iterator[bytes]:
        """The last frame; `end` is the offset behind all that was taken."""
        yield from self._made()
        self.tail = Tail(end, self.tail.appended, self.tail.time, self.tail.mark, self.tail.greatest)

    def _full(self) -> bool:
        return self._bytes >= MOST_BYTES or sum(len(p.offsets) for p in self._pending) >= self._most_rows

    def _reduce(self) -> None:
        """Leaves out the rows that are not kept; what later rows have to know of them stands beside those."""
        chunks, kept = self._stage.chunks, self._stage.kept
        self._stage = _Stage()
        if not chunks:
            return
        offsets = np.concatenate([c.offsets for c in chunks])
        appended = np.concatenate([c.appended for c in chunks])
        table = _gathered([c.rows for c in chunks])
        times = np.ascontiguousarray(event_times(table, self._spec, appended))
        before = _times_before(chunks, _plausible(self._spec, times, appended))
        rows = Rows(table, offsets, appended, times, before)
        if any(mask is not None for mask in kept):
            masks = [np.ones(len(c.offsets), np.bool_) if m is None else m for c, m in zip(chunks, kept, strict=True)]
            keep = np.concatenate(masks)
            rows = Rows(table.filter(pa.array(keep)), offsets[keep], appended[keep], times[keep], before[keep])
        if len(rows.offsets):
            self._pending.append(rows)
            self._bytes += rows.table.nbytes

    def _made(self) -> Iterator[bytes]:
        """The frame of all that was taken since the last one; none if there is neither row nor mark."""
        self._reduce()
        mark = self.tail.mark if self.tail.mark > self._before.mark else NEVER
        if self._pending:
            yield self._frame(_joined(self._pending), mark)
        elif mark > NEVER:
            known = (NEVER, NEVER, self.tail.time if self.tail.time > self._before.time else NEVER)
            yield self._encoded(
                Frame(self.tail.next, 0, self.tail.appended, *known, mark, self._before.time, self._before.mark), None
            )
        else:
            return
        self._before, self._pending, self._bytes = self.tail, [], 0

    def _frame(self, rows: Rows, mark: int) -> bytes:
        base, count = self._before.next, len(rows.offsets)
        frame = Frame(
            base,
            count,
            int(rows.appended[-1]),
            int(rows.times.min()),
            int(rows.times.max()),
            self.tail.time if self.tail.time > self._before.time else int(rows.plausible(self._spec).max()),
            mark,
            self._before.time,
            self._before.mark,
            gap=self.tail.next - base - count,
        )
        self.rows += count
        return self._encoded(frame, self.with_own(rows, frame))

    def with_own(self, rows: Rows, frame: Frame) -> pa.Table:
        """The columns that the log itself needs, where a header cannot say the same of all rows."""
        table = rows.table
        if int(rows.offsets[0]) != frame.base or int(rows.offsets[-1]) != frame.base + frame.count - 1:
            table = table.append_column(OFFSET, pa.array(rows.offsets))
        if (rows.appended != frame.appended).any():
            table = table.append_column(APPENDED, pa.array(rows.appended))
        derived = np.maximum.accumulate(np.concatenate([[frame.time_before], rows.plausible(self._spec)[:-1]]))
        if (derived != rows.before).any():
            table = table.append_column(BEFORE, pa.array(rows.before))
        return table

    def _encoded(self, frame: Frame, table: pa.Table | None) -> bytes:
        if table is None:
            return encode_frame(frame, encode_body(None, Layout(self._version, 0)), 0, REWRITTEN)
        system = sum(1 << bit for bit, f in enumerate(SYSTEM) if f.name in table.column_names)
        schema = physical(self._spec.schema, system)
        batch = table.select(schema.names).combine_chunks().to_batches()[0]
        stored = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        return encode_frame(frame, encode_body(stored, Layout(self._version, system), _PACK_FROM), 0, REWRITTEN)


def _gathered(batches: list[pa.RecordBatch]) -> pa.Table:
    """All rows under one schema, without the columns that are made anew."""
    tables = [pa.Table.from_batches([b]) for b in batches]
    tables = [t.drop_columns([n for n in _OWN if n in t.column_names]) for t in tables]
    if all(t.schema == tables[0].schema for t in tables):
        return pa.concat_tables(tables)
    return pa.concat_tables([_loose(t) for t in tables], promote_options="default")


def _loose(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([f.with_nullable(True) for f in table.schema]))


def _joined(pending: list[Rows]) -> Rows:
    if len(pending) == 1:
        return pending[0]
    table = _gathered([b for p in pending for b in p.table.combine_chunks().to_batches()])
    numbers = [np.concatenate([getattr(p, name) for p in pending]) for name in ("offsets", "appended", "times", "before")]
    return Rows(table, *numbers)


def _plausible(spec: TopicSpec, times: Numbers, appended: Numbers) -> Numbers:
    return times if spec.writer else np.where(times <= appended + micros(spec.future), times, NEVER)


def _times_before(chunks: list[Chunk], plausible: Numbers) -> Numbers:
    """The greatest plausible time before each row. Headers, and the column BEFORE, know of rows that are gone already."""
    known = np.empty(len(plausible), np.int64)
    known[1:] = plausible[:-1]
    known[0] = NEVER
    at = 0
    for chunk in chunks:
        if BEFORE in chunk.rows.schema.names:
            own = chunk.rows.column(BEFORE).to_numpy()
            np.maximum(known[at : at + len(own)], own, out=known[at : at + len(own)])
        if chunk.frame.count:
            known[at] = max(int(known[at]), chunk.frame.time_before)
        at += chunk.frame.count
    return np.maximum.accumulate(known)
