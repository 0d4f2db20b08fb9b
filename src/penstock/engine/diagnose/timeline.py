"""A stretch of a topic as a flow judges it: records and marks in the order of the log, with the watermark after each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.core.time import NEVER
from penstock.engine.diagnose.trace import Moved, Piece, Times, follow, numbers_of, pieces, times_of
from penstock.engine.diagnose.verdicts import Judge
from penstock.engine.execute.program import Program
from penstock.engine.run.epoch.decision import EngineMark
from penstock.engine.source.spec import SourceSpec
from penstock.errors import BadInput, NotFound
from penstock.log.port import Topic
from penstock.plan import Step

Kind = Literal["event", "filtered", "outside", "late", "corrected", "mark"]
MOST_WINDOWS = 200


@dataclass(frozen=True)
class Item:
    """A record or a mark, in its place in the log."""

    kind: Kind
    offset: int  # of a mark: of the record behind it
    time: int
    appended: int
    before: int  # the watermark at it
    after: int


@dataclass(frozen=True)
class Timeline:
    topic: str
    partition: int
    step: str | None  # who judges
    items: tuple[Item, ...]
    windows: tuple[tuple[int, int], ...]
    hidden: int = 0  # records without a plausible time, or that cannot be read


@dataclass(frozen=True)
class Stretch:
    """Which records are drawn."""

    partition: int
    start: int
    stop: int


def source_of(program: Program, topic: str | None) -> SourceSpec:
    """The stream to draw: over this topic, else the first that a fixed window reads, else the first."""
    found = [spec for spec in program.sources.values() if spec.there and not spec.static and topic in (None, spec.topic)]
    if not found:
        there = ", ".join(dict.fromkeys(spec.topic for spec in program.sources.values()))
        raise NotFound(f"flow {program.plan.flow} reads no topic {topic or 'that is there'}", f"it reads: {there}")
    windowed = [spec for spec in found if (judge := judge_of(program, spec.step)) and Judge.of(judge).layout]
    return (windowed or [spec for spec in found if not spec.versions] or found)[0]


def judge_of(program: Program, step: str) -> Step | None:
    """The first judging step behind a step, with nothing but steps without state between."""
    for reader in program.readers[step]:
        target = program.plan.step(reader.name) if reader.kind in ("keyed", "step") else None
        if target and target.node.judging():
            return target
        if target and reader.kind == "step" and (found := judge_of(program, target.name)):
            return found
    return None


def timeline(program: Program, topic: Topic, spec: SourceSpec, stretch: Stretch, marks: Iterable[EngineMark]) -> Timeline:
    if stretch.partition not in topic.ends():
        raise NotFound(f"topic {spec.topic} has no partition {stretch.partition}")
    if spec.versions:
        raise BadInput(
            f"cannot draw topic {spec.topic}: it is read as a table, and no version comes too late",
            hint="draw the topic of a stream",
        )
    if spec.written:
        raise BadInput(
            f"cannot draw topic {spec.topic}: a flow wrote it, and its rows bring their watermarks along",
            hint="draw a topic that the first flow reads",
        )
    marks = [m for m in marks if (m.source, m.partition) == (spec.step, stretch.partition)]
    judge = judge_of(program, spec.step)
    items: list[Item] = []
    for piece in pieces(topic, spec, stretch.partition, stretch.start, stretch.stop, marks):
        items += _records(program, topic, spec, piece, judge)
    shown = len(items)
    items = sorted([*items, *_marks(topic, stretch, marks)], key=lambda item: (item.offset, item.kind != "mark"))
    windows = _windows(judge, [i for i in items if i.kind != "mark"])
    hidden = stretch.stop - stretch.start - shown
    return Timeline(spec.topic, stretch.partition, judge.name if judge else None, tuple(_stepped(items)), windows, hidden)


def _records(program: Program, topic: Topic, spec: SourceSpec, piece: Piece, judge: Step | None) -> list[Item]:
    times, at = times_of(piece.rows), piece.of.watermark(spec.lateness)
    after = at if spec.lateness is None else np.maximum(at, times - spec.lateness)
    kinds = _kinds(program, spec, piece, judge)
    if not len(times):
        return []
    chunks = list(topic.read(piece.partition, int(piece.offsets[0]), int(piece.offsets[-1]) + 1, columns=[]))
    stored = np.concatenate([c.offsets for c in chunks])
    appended = np.concatenate([c.appended for c in chunks])[np.searchsorted(stored, piece.offsets)]
    columns = (piece.offsets, times, appended, at, after)
    return [Item(kind, *values) for kind, *values in zip(kinds, *(c.tolist() for c in columns), strict=True)]


def _kinds(program: Program, spec: SourceSpec, piece: Piece, judge: Step | None) -> list[Kind]:
    """What becomes of each record at the judging step; those that never get there were filtered."""
    kinds: list[Kind] = ["event"] * piece.rows.num_rows
    if judge is None:
        return kinds
    arrived = _arrived(program, spec.step, piece.rows, judge.name)
    if arrived is None:
        return kinds
    numbers = numbers_of(arrived)
    for number in set(range(len(kinds))) - set(numbers.tolist()):
        kinds[number] = "filtered"
    for kind, places in _judged(Judge.of(judge), times_of(arrived), piece.of.take(numbers), spec.lateness):
        for place in numbers[places].tolist():
            kinds[place] = kind
    return kinds


def _judged(judge: Judge, times: Times, of: Moved, lateness: int | None) -> list[tuple[Kind, Times]]:
    rows, _, ends = judge.pairs(times)
    at = of.watermark(lateness)[rows]
    late = ~judge.on_time(ends, at)
    corrected = late & judge.corrects(ends, at)
    outside = np.setdiff1d(np.arange(len(times)), rows)
    return [("outside", outside), ("corrected", rows[corrected]), ("late", rows[late & ~corrected])]


def _arrived(program: Program, step: str, rows: pa.Table, judge: str) -> pa.Table | None:
    for reader in program.readers[step]:
        if reader.name == judge:
            return rows
        if reader.kind == "step":
            passed = follow(program.plan.step(reader.name), rows)
            found = _arrived(program, reader.name, passed, judge) if passed is not None else None
            if found is not None:
                return found
    return None


def _marks(topic: Topic, stretch: Stretch, ours: Iterable[EngineMark]) -> list[Item]:
    """Marks of producers and of the engine, each in front of the record with its offset."""
    frames = topic.frames(stretch.partition, stretch.start, stretch.stop)
    if not topic.headers:
        frames = [chunk.frame for chunk in topic.read(stretch.partition, stretch.start, stretch.stop, columns=[])]
    found = [(f.end, f.mark, f.appended) for f in frames if f.mark > NEVER]
    found += [(m.offset, m.time, NEVER) for m in ours]
    return [
        Item("mark", offset, time, appended, NEVER, time)
        for offset, time, appended in found
        if stretch.start <= offset <= stretch.stop
    ]


def _stepped(items: Iterable[Item]) -> list[Item]:
    """The items with the watermark that really stands before and after them: no mark takes it back."""
    out: list[Item] = []
    known = NEVER
    for item in items:
        before = max(known, item.before)
        known = max(before, item.after)
        out.append(Item(item.kind, item.offset, item.time, item.appended, before, known))
    return out


def _windows(judge: Step | None, records: Sequence[Item]) -> tuple[tuple[int, int], ...]:
    """The fixed windows that the records lie in, and those between; the last of them, where there are too many."""
    layout = Judge.of(judge).layout if judge else None
    if layout is None or not records:
        return ()
    starts = np.unique(layout.windows(layout.panes(np.array([r.time for r in records])))[1])
    if layout.spacing and starts[-1] - starts[0] <= layout.spacing * MOST_WINDOWS:
        starts = np.arange(starts[0], starts[-1] + 1, layout.spacing)
    return tuple(zip(starts.tolist(), layout.ends(starts).tolist(), strict=True))[-MOST_WINDOWS:]
