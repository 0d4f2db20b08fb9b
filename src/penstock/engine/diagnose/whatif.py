"""What would have been late: stored history, judged on the side with another lateness. Touches no state and no decision."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.core.time import FOREVER
from penstock.engine.diagnose.disorder import least_keeping
from penstock.engine.diagnose.trace import Moved, Piece, Times, follow, numbers_of, pieces, times_of
from penstock.engine.diagnose.verdicts import Judge
from penstock.engine.execute.program import Program
from penstock.engine.run.epoch.decision import EngineMark
from penstock.engine.source.spec import SourceSpec
from penstock.kernels.port import Fates
from penstock.log.port import Topic


@dataclass
class Tried:
    """One judging step, under its own lateness and another one."""

    step: str
    sources: list[str] = field(default_factory=list)
    own: Fates = field(default_factory=Counter)
    other: Fates = field(default_factory=Counter)
    late_by_mark: int = 0  # whatever the lateness
    spark: list[str] = field(default_factory=list)  # steps on the way that only Spark SQL evaluates: what comes by them is missing
    _needed: list[Times] = field(default_factory=list)

    def add(self, judge: Judge, rows: pa.Table, of: Moved, own: int | None, other: int) -> None:
        times = times_of(rows)
        numbers, _, ends = judge.pairs(times)
        of = of.take(numbers)
        outside = judge.layout.outside(times) if judge.layout else None
        for fates, lateness in ((self.own, own), (self.other, None if own is None else other)):
            fates.update(judge.fates(ends, of.watermark(lateness)))
            fates["outside"] += 0 if outside is None else int(np.count_nonzero(outside))
        needed = judge.needed(ends, of)
        self.late_by_mark += int(np.count_nonzero(needed == FOREVER))
        self._needed.append(needed[(needed > 0) & (needed < FOREVER)])

    @property
    def pairs(self) -> int:
        """Rows that were judged, once for each of their windows."""
        return sum(self.own[fate] for fate in ("on time", "corrected", "late"))

    def keeping(self, share: float) -> int:
        """The least lateness, in microseconds, that keeps this share of what a lateness can keep."""
        return least_keeping(self._sorted, self.pairs - self.late_by_mark, share)

    @cached_property
    def _sorted(self) -> Times:
        return np.sort(np.concatenate([np.empty(0, np.int64), *self._needed]))


def what_if(program: Program, topics: Mapping[str, Topic], marks: Iterable[EngineMark], lateness: int) -> list[Tried]:
    """Every judging step that reads a source directly or through steps without state, in the order of the plan."""
    marks = list(marks)
    tried = {step.name: Tried(step.name) for step in program.plan.steps if step.node.judging()}
    for name, spec in program.sources.items():
        if spec.topic not in topics or spec.versions:
            continue
        topic = topics[spec.topic]
        _routes(program, tried, name, name)
        for partition, end in topic.ends().items():
            for piece in pieces(topic, spec, partition, end.first, end.next, marks):
                _try(program, tried, name, piece.rows, piece, spec, lateness)
    return [t for t in tried.values() if t.sources or t.spark]


def _routes(program: Program, tried: dict[str, Tried], step: str, source: str) -> None:
    """Notes who is reached from a source, and where the way ends."""
    for reader in program.readers[step]:
        if reader.kind == "keyed" and reader.name in tried:
            tried[reader.name].sources.append(source)
        elif reader.kind == "step":
            _routes(program, tried, reader.name, source)
        elif reader.kind == "sql":
            for judge in _behind(program, reader.name):
                if judge in tried:
                    tried[judge].spark.append(reader.name)


def _behind(program: Program, step: str) -> list[str]:
    """The keyed steps behind a step, with nothing but steps without state between."""
    found = []
    for reader in program.readers[step]:
        if reader.kind == "keyed":
            found.append(reader.name)
        elif reader.kind in ("step", "sql"):
            found += _behind(program, reader.name)
    return found


def _try(
    program: Program, tried: dict[str, Tried], step: str, rows: pa.Table, piece: Piece, spec: SourceSpec, lateness: int
) -> None:
    for reader in program.readers[step]:
        if reader.kind == "keyed" and reader.name in tried:
            judge = Judge.of(program.plan.step(reader.name))
            tried[reader.name].add(judge, rows, piece.of.take(numbers_of(rows)), spec.lateness, lateness)
        elif reader.kind == "step":
            passed = follow(program.plan.step(reader.name), rows)
            if passed is not None and passed.num_rows:
                _try(program, tried, reader.name, passed, piece, spec, lateness)
