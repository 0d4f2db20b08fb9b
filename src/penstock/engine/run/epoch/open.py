"""1. Open: topic ids, offset ranges, the engine's marks, the clock, the frontier. Nothing outside depends on it yet."""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.core.time import FOREVER, NEVER
from penstock.engine.execute.program import Program
from penstock.engine.run.epoch.captures import Captures, Limit, Reading
from penstock.engine.run.epoch.decision import Decision, EngineMark, PartitionState, SourceState
from penstock.engine.run.epoch.recorded import Recorded
from penstock.engine.source.read import Range
from penstock.engine.source.spec import SourceSpec, topic_of
from penstock.errors import Mismatch, NotFound, OffsetGone
from penstock.log.port import End, Frame, Log, Topic

TICK = 1_000_000  # microseconds that the clock's marks in a partition lie apart, at least: each costs an epoch, or a line on disk

Reached = Mapping[tuple[str, int], int]  # (source, partition) -> a time
Cut = Callable[[str, int, int], int]  # (source, partition, rows there) -> rows to take: how tests cut within frames


@dataclass(frozen=True)
class EpochRequest:
    """What this epoch is asked to be."""

    rows: int = 2_000_000  # the row budget
    stops: Mapping[tuple[str, int], int] = field(default_factory=dict)  # catch-up: read no further
    end: bool = False  # mark every input +∞
    cut: Cut | None = None
    tick: int = TICK
    accept_gap: bool = False  # go on behind what was removed before it was read; the books say how much that is
    recorded: Recorded | None = None  # a replay: the marks of epochs that were decided, and no others

    @property
    def lives(self) -> bool:
        """The run goes on: time that passes is worth an epoch. A bounded run would never come to its end."""
        return not self.stops and not self.end


@dataclass(frozen=True)
class Opened:
    epoch: int
    clock: int
    ranges: tuple[Range, ...]
    marks: tuple[EngineMark, ...]
    sources: Mapping[str, SourceState]  # as they are after this epoch
    frontiers: Mapping[str, int]
    behind: int  # rows that are there and not in this epoch
    frames: Mapping[tuple[str, int], Sequence[Frame]]
    answered: Mapping[str, int] = field(default_factory=dict)  # step -> the mark that stands on its table before this epoch
    gone: Mapping[str, int] = field(default_factory=dict)  # source -> offsets that were removed before they were read
    ends: bool = False  # it puts an end to inputs

    @property
    def rows(self) -> int:
        """How many there are at most: offsets may have gaps."""
        return sum(r.stop - r.start for r in self.ranges)


@dataclass
class _Partition:
    """One partition while an epoch is being opened."""

    spec: SourceSpec
    number: int
    state: PartitionState
    end: End
    frames: list[Frame]
    stop: int
    whole: int | None = None  # of a captured topic: this epoch reads up to here, and nothing else will do
    taken: int = 0  # frames

    def watermark_after(self, frame: Frame) -> int:
        late = self.spec.lateness
        known, time = frame.mark_after, self._time_after(frame)
        if late is not None and time > NEVER:
            known = max(known, time - late)
        return max(self.state.watermark, known)

    def _time_after(self, frame: Frame) -> int:
        """How far time has come behind a frame, as far as its header says."""
        if self.spec.append:
            return frame.appended if frame.count and not self.spec.blind else NEVER
        return frame.time_after if self.spec.headers else NEVER

    def mark(self, time: int) -> EngineMark | None:
        """The engine's mark stands at the next offset to be read."""
        if time <= self.state.floor:
            return None
        self.state = replace(self.state, floor=time, watermark=max(self.state.watermark, time))
        return EngineMark(self.spec.step, self.number, self.state.next, time)


def open_epoch(
    program: Program, log: Log, last: Decision | None, clock: int, request: EpochRequest, captures: Captures | None = None
) -> Opened:
    """captures: what earlier epochs have learned of the journals of captures; None: nothing."""
    marks: list[EngineMark] = []
    states: dict[str, SourceState] = {}
    partitions: list[_Partition] = []
    gone: dict[str, int] = {}
    found: dict[str, tuple[Topic | None, SourceState]] = {}
    for name, spec in program.sources.items():
        before = last.sources[name] if last else SourceState("")
        topic = _topic(log, spec, before, program.plan.flow)
        if request.accept_gap and topic:
            before, gone[name] = _behind_the_gap(before, topic.ends())
        states[name] = replace(before, topic_id=topic.id if topic else "")
        found[name] = topic, before
    limits = _limits(program, captures or Captures(log), found, request)
    for name, spec in program.sources.items():
        seen, new_marks = _see(spec, *found[name], request, clock, program.plan.flow, limits)
        partitions += seen
        marks += new_marks
    start = {(p.spec.step, p.number): (p.state.next, p.state) for p in partitions}
    behind = _choose(partitions, request)
    read = any(p.state.next > start[p.spec.step, p.number][0] for p in partitions)
    if not request.recorded and (read or (request.lives and _waited_for(program, last))):
        marks += _delayed(partitions, clock, request.tick)
    most = request.recorded.most if request.recorded else {}
    after = {name: _after(states[name], [p for p in partitions if p.spec.step == name], most.get(name)) for name in states}
    used = {name: source.used for name, source in after.items()}
    return Opened(
        epoch=last.epoch + 1 if last else 0,
        clock=clock,
        ranges=tuple(
            _range(p, *start[p.spec.step, p.number]) for p in partitions if p.state.next > start[p.spec.step, p.number][0]
        ),
        marks=tuple(marks),
        sources=after,
        frontiers=program.frontiers(used),
        behind=behind,
        frames={(p.spec.step, p.number): p.frames for p in partitions},
        answered=_answered(program, last, request),
        gone={name: offsets for name, offsets in gone.items() if offsets},
        ends=any(mark.time >= FOREVER for mark in marks),
    )


def _answered(program: Program, last: Decision | None, request: EpochRequest) -> dict[str, int]:
    """The marks of the answers before; the end of input ends tables too."""
    if request.recorded:
        return dict(request.recorded.answered)
    known = last.answered if last else {}
    return {step: FOREVER if request.end else known.get(step, NEVER) for step in program.answering}


def _topic(log: Log, spec: SourceSpec, before: SourceState, flow: str) -> Topic | None:
    try:
        topic = topic_of(spec, log)
    except NotFound:
        if spec.static:
            raise
        if before.topic_id:
            raise Mismatch(
                f"topic {spec.topic} is gone; the flow had read from it",
                hint=f"restore it, or start the flow over: penstock flow reset {flow}",
            ) from None
        return None
    if before.topic_id and topic.id != before.topic_id:
        if spec.static:
            raise _changed(spec, flow)
        raise Mismatch(
            f"topic {spec.topic} was deleted and made again since this flow last read it",
            hint=f"its offsets mean other records now: start the flow over (penstock flow reset {flow})",
        )
    return topic


def _changed(spec: SourceSpec, flow: str) -> Mismatch:
    static = spec.versions.static if spec.versions else None
    what = f"the file {static.path} holds other rows now" if static and static.path else "it is written with other rows now"
    return Mismatch(
        f"static table {spec.topic} has changed since this flow read it: {what}",
        "what the flow has answered so far came from the rows as they were",
        hint=f"put the old content back; or start the flow over (penstock flow reset {flow}). "
        "A table that changes while a flow runs is a topic: flow.table",
    )


def _behind_the_gap(before: SourceState, ends: Mapping[int, End]) -> tuple[SourceState, int]:
    """The source as if it had read what is no longer there, and how much that is."""
    gone = {n: ends[n].first - p.next for n, p in before.partitions.items() if n in ends and p.next < ends[n].first}
    after = {n: replace(p, next=ends[n].first) if n in gone else p for n, p in before.partitions.items()}
    return replace(before, partitions=after), sum(gone.values())


def _limits(
    program: Program, captures: Captures, found: Mapping[str, tuple[Topic | None, SourceState]], request: EpochRequest
) -> dict[tuple[str, int], Limit]:
    """How far the partitions of captured topics are read. A cut says how many rows it would take of each: that is the budget."""
    readings = [reading for name, spec in program.sources.items() for reading in _readings(spec, *found[name])]
    limits = captures.limits(readings, request.rows, request.stops)
    if not request.cut or not readings:
        return limits
    budget = sum(request.cut(r.step, r.partition, limits[r.step, r.partition].whole - r.next) for r in readings)
    return captures.limits(readings, budget, request.stops)


def _readings(spec: SourceSpec, topic: Topic | None, before: SourceState) -> Iterator[Reading]:
    if topic and spec.capture:
        for number, end in topic.ends().items():
            state = before.partitions.get(number)
            yield Reading(spec.step, spec.capture, spec.topic, number, state.next if state else end.first)


def _see(
    spec: SourceSpec,
    topic: Topic | None,
    before: SourceState,
    request: EpochRequest,
    clock: int,
    flow: str,
    limits: Mapping[tuple[str, int], Limit],
) -> tuple[list[_Partition], list[EngineMark]]:
    """The partitions of a source with what stands in them, and the marks that the engine puts there."""
    partitions: list[_Partition] = []
    marks: list[EngineMark | None] = []
    for number, end in _found(spec, topic, request.recorded):
        known = before.partitions.get(number)
        state = known or PartitionState(end.first)
        if state.next < end.first:
            raise OffsetGone(
                f"offsets {state.next} to {end.first - 1} of {spec.topic}/{number} were removed before this flow read them",
                hint="run --accept-gap goes on behind them and writes it into the books; or start the flow over "
                f"(penstock flow reset {flow}). "
                f"To prevent it, let the topic wait longer for its readers: penstock topic alter {spec.topic} --hold …",
            )
        limit = limits.get((spec.step, number), Limit(state.next, state.next)) if spec.capture else None
        end = end._replace(next=limit.whole) if limit else end  # to a flow a captured topic ends where it is whole
        stop = max(state.next, min(end.next, request.stops.get((spec.step, number), end.next)))
        assert topic
        listed = stop if request.cut else min(stop, state.next + request.rows)  # no more than the budget could take
        listed = limit.stop if limit else listed
        frames = list(topic.frames(number, state.next, listed))
        partition = _Partition(spec, number, state, end, frames, stop, limit.stop if limit else None)
        if request.recorded:
            marks.append(partition.mark(request.recorded.mark_at(spec.step, number, state.next)))
        elif known is None and before.used > NEVER:
            marks.append(partition.mark(before.used))
        partitions.append(partition)
    if not (request.recorded or spec.written or spec.versions):  # a flow's topic is read by its marks alone, and so is a table
        marks += _excused(partitions, clock)
    if request.end:
        marks += [p.mark(FOREVER) for p in partitions]
    return partitions, [m for m in marks if m]


def _found(spec: SourceSpec, topic: Topic | None, recorded: Recorded | None) -> list[tuple[int, End]]:
    there = sorted(topic.ends().items()) if topic else []
    return [(number, end) for number, end in there if number in recorded.ends[spec.step]] if recorded else there


def _excused(partitions: list[_Partition], clock: int) -> list[EngineMark | None]:
    """An empty partition, or one idle for long, holds nobody back: it is marked with the least watermark of the busy."""
    away = [p for p in partitions if _empty(p) or _idle(p, clock)]
    busy = [p.state.watermark for p in partitions if p not in away]
    return [p.mark(min(busy)) for p in away] if busy else []


def _empty(p: _Partition) -> bool:
    return p.end.next == 0


def _idle(p: _Partition, clock: int) -> bool:
    return p.state.next == p.end.next and p.end.appended > NEVER and clock - p.end.appended > p.spec.idle


def _choose(partitions: list[_Partition], request: EpochRequest) -> int:
    """Spends the row budget: on captured topics, which are read as far as was settled, then frame by frame on tables until they are
    read to their end, then on the lowest watermark first. Returns the rows left for later."""
    left, behind = request.rows, 0
    for p in partitions:
        if p.whole is not None:
            left, behind = left - (p.whole - p.state.next), behind + (p.stop - p.whole)
            _read_to(p, p.whole)
    others = [p for p in partitions if p.whole is None]
    return behind + (_choose_within(others, request.cut) if request.cut else _choose_frames(others, left))


def _read_to(p: _Partition, stop: int) -> None:
    """Reads up to an offset, also within a frame."""
    for frame in p.frames:
        if frame.end <= stop:
            p.state = replace(p.state, watermark=p.watermark_after(frame))
    p.state = replace(p.state, next=stop)


def _choose_frames(partitions: list[_Partition], left: int) -> int:
    queue = [(*_urgency(p), i) for i, p in enumerate(partitions) if p.frames]
    heapq.heapify(queue)
    behind = sum(p.stop - p.state.next for p in partitions)
    while queue:
        _, _, index = heapq.heappop(queue)
        p = partitions[index]
        frame = p.frames[p.taken]
        rows = min(frame.end, p.stop) - max(frame.base, p.state.next)
        if rows > 0 and left <= 0:
            continue
        left, behind = left - max(rows, 0), behind - max(rows, 0)
        p.taken += 1
        whole = frame.end <= p.stop
        p.state = replace(
            p.state,
            next=max(p.state.next, min(frame.end, p.stop)),
            watermark=p.watermark_after(frame) if whole else p.state.watermark,
        )
        if p.taken < len(p.frames):
            heapq.heappush(queue, (*_urgency(p), index))
    return behind


def _urgency(p: _Partition) -> tuple[bool, int]:
    return p.spec.versions is None, p.state.watermark


def _choose_within(partitions: list[_Partition], cut: Cut) -> int:
    behind = 0
    for p in partitions:
        there = p.stop - p.state.next
        stop = p.state.next + min(there, cut(p.spec.step, p.number, there))
        behind += p.stop - stop
        _read_to(p, stop)
    return behind


def _waited_for(program: Program, last: Decision | None) -> bool:
    """Whether something can come of time alone: a step has state, or somebody reads our marks."""
    if any(o.topic for o in program.plan.outputs):
        return True
    return last is not None and any(r.step in program.kernels for r in last.state)


def _delayed(partitions: list[_Partition], clock: int, tick: int) -> list[EngineMark]:
    """A stream with a delay that is read to its end has come to the clock less the delay: the mark stands behind its rows."""
    behind = {p.spec.step for p in partitions if p.state.next < p.end.next}
    marks = []
    for p in partitions:
        if p.spec.delay is None or p.spec.step in behind:
            continue
        time = clock - p.spec.delay
        if time > p.state.watermark and time - tick >= p.state.floor:
            marks.append(p.mark(time))
    return [m for m in marks if m]


def _after(state: SourceState, partitions: list[_Partition], most: int | None) -> SourceState:
    """The source after this epoch, and the frontier this epoch may use: what is known now. most: and no more than that."""
    if not partitions:
        return state
    after = {p.number: p.state for p in partitions}
    known = min(p.watermark for p in after.values())
    return replace(state, partitions=after, used=max(state.used, known if most is None else min(known, most)))


def _range(p: _Partition, first: int, before: PartitionState) -> Range:
    return Range(p.spec.step, p.number, first, p.state.next, before.floor, before.time)


def learned(opened: Opened, program: Program, times: Reached, marks: Reached) -> dict[str, SourceState]:
    """The sources after the run: where headers cannot say, what was read has told how far time has come."""
    out = dict(opened.sources)
    for name, source in opened.sources.items():
        spec = program.sources[name]
        if spec.headers or (spec.lateness is None and not spec.blind):
            continue
        after = {
            number: _moved(p, spec, times.get((name, number), NEVER), marks.get((name, number), NEVER))
            for number, p in source.partitions.items()
        }
        out[name] = replace(source, partitions=after)
    return out


def _moved(p: PartitionState, spec: SourceSpec, time: int, mark: int) -> PartitionState:
    """A partition after rows of up to this time, and these marks, were read."""
    time = max(p.time, time)
    known = time - spec.lateness if spec.lateness is not None and time > NEVER else NEVER
    return replace(p, time=time, floor=max(p.floor, mark), watermark=max(p.watermark, known, mark))


def spread(opened: Opened, program: Program, tasks: int) -> tuple[Range, ...]:
    """Long ranges cut at frames, so that several tasks can read one partition: headers know W at every frame."""
    out: list[Range] = []
    share = max(1, opened.rows // tasks)
    for span in opened.ranges:
        spec = program.sources[span.step]
        if not spec.ahead or span.stop - span.start <= share * 5 // 4:
            out.append(span)
            continue
        rest = span
        for frame in opened.frames[span.step, span.partition]:
            if frame.end - rest.start >= share and frame.end < span.stop:
                out.append(rest._replace(stop=frame.end))
                rest = rest._replace(start=frame.end, time=frame.appended if spec.append else span.time)
        out.append(rest)
    return tuple(out)
