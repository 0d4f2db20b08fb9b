"""Stored rows, followed without Spark and without state: what moved their watermark, which steps let them pass, who judges them.

This is how a flow is looked at from outside. Nothing is decided and nothing is written.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import ADDRESS, TIME, WATERMARK
from penstock.core.time import FOREVER, NEVER
from penstock.engine.execute.program import Program, lower
from penstock.engine.execute.rowwise import Applied, row_step
from penstock.engine.run.epoch.decision import Decisions, EngineMark
from penstock.engine.run.epoch.history import kept_marks
from penstock.engine.run.runtime import Runtime, log_of
from penstock.engine.source.clocks import DeviceClocks
from penstock.engine.source.read import _SHIFT, Range, Read, read
from penstock.engine.source.spec import SourceSpec
from penstock.flow.graph import FlowGraph
from penstock.kernels.columns import numbers
from penstock.log.port import Log, Topic
from penstock.plan import Step

Times = npt.NDArray[np.int64]


def programs(home: Path, graphs: Sequence[FlowGraph]) -> Iterator[tuple[Program, Log]]:
    """Flows as they would run in a home, and its log."""
    runtime = Runtime(home, url=log_of(graphs))
    for graph in graphs:
        plan = runtime.plan(graph, graphs)
        names = {source.topic for source in plan.sources.values()}
        yield lower(plan, {n: runtime.log.topic(n) for n in names & set(runtime.log.topics())}), runtime.log


@dataclass(frozen=True)
class Moved:
    """W(r) of rows, taken apart: W with a lateness L is the greatest of `marked` and `moved` - L."""

    marked: Times  # marks that no lateness moves: of producers, and the end of input
    moved: Times  # the greatest time before the row; the engine's own marks follow it at a distance of the flow's lateness
    ours: Times  # the engine's own marks as they were

    def watermark(self, lateness: int | None) -> Times:
        return self.marked if lateness is None else np.maximum(self.marked, self.moved - np.int64(lateness))

    def take(self, rows: Times) -> "Moved":
        return Moved(self.marked[rows], self.moved[rows], self.ours[rows])


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one partition of a source. Their column WATERMARK holds their number in `of`."""

    partition: int
    rows: pa.Table
    offsets: Times
    of: Moved
    read: Read  # what was taken out, and why


def marks_of(decisions: Decisions, until: int | None = None) -> list[EngineMark]:
    """Every mark that the engine has put into the inputs of a flow; until: up to this epoch, which is still kept."""
    epochs = [epoch for epoch in decisions.epochs() if until is None or epoch <= until]
    stored = {mark for epoch in epochs for mark in decisions.read(epoch).marks}
    return sorted(stored | kept_marks(decisions.storage))


def pieces(topic: Topic, spec: SourceSpec, partition: int, start: int, stop: int, marks: Iterable[EngineMark]) -> Iterator[Piece]:
    """The rows from start to stop, a large piece at a time."""
    mine = [m for m in marks if (m.source, m.partition, m.step) == (spec.step, partition, "")]
    frames = _producers_marks(topic, spec, partition, start, stop)
    bare = replace(spec, lateness=None if spec.lateness is None else 0)
    clocks = DeviceClocks(spec.clock) if spec.clock else None
    span = Range(spec.step, partition, start, stop, NEVER, _before(topic, bare, partition, start, clocks))
    for piece in read(topic, bare, span, clocks):
        if piece.rows is None:
            continue
        rows, n = piece.rows, piece.rows.num_rows
        known = numbers(rows, WATERMARK)
        offsets = rows[ADDRESS].to_numpy() & ((1 << _SHIFT) - 1) if ADDRESS in rows.column_names else np.arange(n)
        if spec.written:  # W came with the row
            of = Moved(known, known, np.full(n, NEVER))
        else:
            of = _apart(spec, known, offsets, frames, mine)
        at = rows.column_names.index(WATERMARK)
        yield Piece(partition, rows.set_column(at, WATERMARK, pa.array(np.arange(n))), offsets, of, piece)


def _producers_marks(topic: Topic, spec: SourceSpec, partition: int, start: int, stop: int) -> list[tuple[int, int]]:
    """(offset, time) of the marks that stand in the log; without headers all of it is read for them."""
    if not spec.blind:
        return [(f.base, f.mark_before) for f in topic.frames(partition, start, stop) if f.count]
    chunks = topic.read(partition, topic.ends()[partition].first, stop, columns=[])
    return [(chunk.frame.end, chunk.frame.mark_after) for chunk in chunks]


def _apart(spec: SourceSpec, known: Times, offsets: Times, frames: list[tuple[int, int]], mine: list[EngineMark]) -> Moved:
    ours = standing([(m.offset, m.time) for m in mine if m.time < FOREVER and not m.lifts], offsets)
    marked = np.maximum(standing(frames, offsets), _ended(mine, offsets))
    if spec.lateness is None or spec.delay is not None:  # then our marks follow the clock
        return Moved(np.maximum(marked, ours), known, ours)
    return Moved(marked, np.maximum(known, np.where(ours > NEVER, ours + spec.lateness, NEVER)), ours)


def _ended(mine: list[EngineMark], offsets: Times) -> Times:
    """Where the end of input stands: +∞, until it was lifted to a time."""
    out = np.full(len(offsets), NEVER)
    for mark in sorted((m for m in mine if m.time >= FOREVER or m.lifts), key=lambda m: (m.offset, m.lifts)):
        out[offsets >= mark.offset] = mark.time
    return out


def standing(marks: Iterable[tuple[int, int]], offsets: Times) -> Times:
    """The greatest of the marks (offset, time) at or before each offset."""
    ordered = sorted(marks)
    at = np.array([offset for offset, _ in ordered], np.int64)
    greatest = np.maximum.accumulate(np.array([NEVER, *(time for _, time in ordered)], np.int64))
    return np.asarray(greatest[np.searchsorted(at, offsets, "right")])


def _before(topic: Topic, spec: SourceSpec, partition: int, start: int, clocks: DeviceClocks | None) -> int:
    """The greatest time of the rows before, and what they tell of their devices' clocks; frame headers know it, where the
    stream's time is the topic's own."""
    first, time = topic.ends()[partition].first, NEVER
    if spec.headers or start <= first:
        return NEVER
    if spec.append:
        return max((frame.appended for frame in topic.frames(partition, start - 1, start) if frame.count), default=NEVER)
    for piece in read(topic, spec, Range(spec.step, partition, first, start, NEVER, NEVER), clocks):
        time = piece.time
    return time


def follow(step: Step, rows: pa.Table) -> pa.Table | None:
    """What a step without state makes of rows; None where only Spark SQL can say, or where the step has state."""
    applied = applied_to(step, rows)
    return None if applied is None else applied.rows


def applied_to(step: Step, rows: pa.Table) -> Applied | None:
    """The same with the rows on which it fails. Nobody outside is asked."""
    runs = None if step.node.staged else row_step(step)
    return runs.apply(rows, 0) if runs else None


def times_of(rows: pa.Table) -> Times:
    return numbers(rows, TIME)


def numbers_of(rows: pa.Table) -> Times:
    """Which rows of their piece these are."""
    return numbers(rows, WATERMARK)
