"""From when on a flow could go on whose input was ended: the first time at which nothing is touched that the end has closed.

A mark of +∞ closes all that is open. So does a mark of R, if R lies behind every window, session, interval and pair that a row read
so far can be in. From R on, a flow behind a mark of +∞ and one behind a mark of R cannot be told apart: that is why a flow can be
reopened at R, and why not earlier (docs/adr/0010-reopening.md).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.time import FOREVER, NEVER, micros
from penstock.engine.execute.program import Program
from penstock.engine.run.epoch.decision import Decision, SourceState
from penstock.engine.source.spec import SourceSpec, topic_of
from penstock.log.port import End, Log
from penstock.plan import Node, Step


def horizon(program: Program, log: Log, sources: Mapping[str, SourceState], before: Decision | None) -> dict[str, Any]:
    """What a decision notes beside the end of its inputs: the time R, the step that says so, and what holds from then on.
    sources: as the epoch has read them; before: the decision before the end."""
    ends = {name: topic_of(spec, log).ends() for name, spec in program.sources.items() if sources[name].topic_id}
    times = {name: _newest(spec, sources[name], ends.get(name, {})) for name, spec in program.sources.items()}
    at, step = _closed(program, times)
    used = [before.sources[name].used for name in program.sources if before and before.sources[name].used < FOREVER]
    at = max([at, *used])
    lifted = {name: _lifted(program.sources[name], ends.get(name, {}), before, at) for name in program.sources}
    frontiers = program.frontiers({name: min(parts.values(), default=at) for name, parts in lifted.items()})
    answered = {name: before.answered.get(name, NEVER) if before else NEVER for name in program.answering}
    noted = {"time": at, "step": step, "partitions": lifted, "frontiers": frontiers, "answered": answered}
    return noted | {"allowed": {name: _corrected(program, name) for name in program.answering}}


def _corrected(program: Program, step: str) -> int:
    """How far back a step answers rows again. The end has let go of them all, so none may be asked for behind it."""
    return micros(program.plan.step(step).node.corrected())


def _newest(spec: SourceSpec, source: SourceState, ends: Mapping[int, End]) -> int:
    """The greatest time of the rows that were read, or more."""
    read = [p.time for p in source.partitions.values()]
    if spec.static:
        return NEVER
    if spec.append or (spec.versions is not None and spec.time is None):
        return max([NEVER, *read, *(end.appended for end in ends.values())])
    if spec.headers:
        return max([NEVER, *(end.time for end in ends.values())])
    known = max([NEVER, *read])
    return known if known > NEVER else max([NEVER, *(max(end.time, end.appended) for end in ends.values())])


def _lifted(spec: SourceSpec, ends: Mapping[int, End], before: Decision | None, at: int) -> dict[str, int]:
    """The watermark of each partition, by its number, once the end is lifted: one that its writer has ended stays so."""
    known = before.sources[spec.step].partitions if before else {}
    own = {n: end.mark if spec.headers or n not in known else known[n].watermark for n, end in ends.items()}
    return {str(n): FOREVER if mark >= FOREVER else at for n, mark in own.items()}


def _closed(program: Program, times: Mapping[str, int]) -> tuple[int, str | None]:
    """The least mark on the sources that closes everything, and the step that needs it."""
    shifts = program.frontiers(dict.fromkeys(program.sources, 0))  # how far F out lies behind the sources
    reach: dict[str, int] = {}
    most: tuple[int, str | None] = (NEVER, None)
    for step in program.plan.steps:
        closed, reach[step.name] = _reach(program, step, reach, times)
        if closed > NEVER:
            most = max(most, (closed - min(0, *(shifts[i] for i in step.inputs)), step.name), key=lambda found: found[0])
    return most if most[1] else (max([NEVER, *times.values()]), None)


def _reach(program: Program, step: Step, reach: Mapping[str, int], times: Mapping[str, int]) -> tuple[int, int]:
    """Which F closes all of a step, NEVER if there is nothing to close; and the greatest time of the rows it gives."""
    if step.name in times:
        return NEVER, times[step.name]
    newest = [reach[i] for i in program.plan.feeds(step)]
    if max(newest) <= NEVER or not step.keyed:
        return NEVER, max(newest)
    closed = step.node.closed(newest, _end(step.node, max(newest)))
    return (NEVER, max(newest)) if closed is None else (closed, step.node.newest_given(newest, closed))


def _end(node: Node, newest: int) -> int:
    """The end of the last fixed window that holds a row of this time; where there is none, just behind the row."""
    judging = node.judging()
    if not judging or not judging.layout:
        return newest + 1
    layout = judging.layout
    _, starts = layout.windows(np.array([newest], np.int64))
    return max([newest + 1, *map(int, layout.ends(starts))])
