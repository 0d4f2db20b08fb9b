"""Runs decided epochs again: the same input and the same marks, in other cuts, give the same rows (docs/time.md)."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.core.time import NEVER
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decision, EngineMark
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.epoch.recorded import Recorded
from penstock.engine.run.epoch.report import Report
from penstock.errors import Mismatch

Offsets = dict[tuple[str, int], dict[int, int]]  # (source, partition) -> offset -> time of the mark that stands there


@dataclass
class Replay:
    """The epochs of a flow up to `until`, run by a driver that has a directory and sinks of its own.

    Marks that steps have left on their tables are taken one after the other, and a table is read to its end before the rows that
    are answered from it: which rows see a version depends on the marks before it alone."""

    driver: Driver
    marks: Iterable[EngineMark]
    until: Decision
    rows: int = 2_000_000  # in an epoch, at most
    _ends: dict[str, dict[int, int]] = field(init=False)  # where the decision has read to
    _marks: Offsets = field(init=False)
    _answers: dict[str, Offsets] = field(init=False)  # of each step that answers rows from a table
    _answered: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        program = self.driver.program
        sources = {name: self.until.sources[name].partitions for name in program.sources}
        self._ends = {name: {number: p.next for number, p in partitions.items()} for name, partitions in sources.items()}
        self._marks, self._answers = defaultdict(dict), {step: defaultdict(dict) for step in program.answering}
        self._answered = dict.fromkeys(self._answers, NEVER)
        for mark in self.marks:
            if mark.partition in self._ends.get(mark.source, ()):
                self._take(mark)

    def _take(self, mark: EngineMark) -> None:
        if mark.lifts:
            raise Mismatch(
                f"flow {self.until.flow} was ended and reopened: its epochs cannot be run again from the beginning",
                hint="a view of the same step has its rows: --from-view NAME",
            )
        if not mark.step:
            _greatest(self._marks[mark.source, mark.partition], mark)
        elif mark.step in self._answers:
            _greatest(self._answers[mark.step][mark.source, mark.partition], mark)

    def run(self, seen: Callable[[Report], None]) -> None:
        """To the state of the decision; Mismatch if that is not what comes out."""
        while True:
            report = self.driver.epoch(self._request())
            if report:
                seen(report)
            elif not self._answer_next():
                break
        self._check()

    def _request(self) -> EpochRequest:
        most = {name: self.until.sources[name].used for name in self._ends}
        recorded = Recorded(self._marks, self._ends, dict(self._answered), most)
        stops = {(name, number): self._stop(name, number) for name, ends in self._ends.items() for number in ends}
        return EpochRequest(rows=self.rows, stops=stops, recorded=recorded)

    def _stop(self, source: str, partition: int) -> int:
        """An epoch reads no further than to the next mark: marks count from the beginning of an epoch on."""
        if any(self._waits(source, step) for step in self._answers):
            return self._next(source, partition)
        stops = [self._ends[source][partition]]
        stops += [offset for offset in self._marks[source, partition] if offset > self._next(source, partition)]
        for step, answers in self._answers.items():
            stops += [offset for offset, time in answers[source, partition].items() if time > self._answered[step]]
        return min(stops)

    def _waits(self, source: str, step: str) -> bool:
        """Whether rows of a source are answered by a step whose tables are not read to their ends."""
        tables = self.driver.program.answering[step]
        if source in tables or source not in self.driver.program.above(self.driver.plan.step(step).inputs[0]):
            return False
        return any(max(self._next(table, number), 0) < end for table in tables for number, end in self._ends[table].items())

    def _next(self, source: str, partition: int) -> int:
        last = self.driver.last
        known = last.sources[source].partitions.get(partition) if last else None
        return known.next if known else -1

    def _answer_next(self) -> bool:
        """Nothing more comes of what may be read: the next mark of answers counts from here on. False: there is none."""
        marks = [(time, step) for step, answers in self._answers.items() for of in answers.values() for time in of.values()]
        left = [(time, step) for time, step in marks if time > self._answered[step]]
        if left:
            time, step = min(left)
            self._answered[step] = time
        return bool(left)

    def _check(self) -> None:
        last, until = self.driver.last, self.until
        steps = [step.name for step in self.driver.plan.steps]
        frontiers, books = (last.frontiers, last.fates) if last else ({}, {step: {} for step in steps})
        apart = [f"step {step}: time has come to another point" for step, at in frontiers.items() if at != until.frontiers[step]]
        for step in filter(self._countable, books):
            ours, theirs = Counter(books[step]), Counter(until.fates.get(step, {}))
            apart += [f"step {step}: {dict(ours)}, the flow has {dict(theirs)}"] if ours != theirs else []
        if apart:
            raise Mismatch(
                f"the epochs of flow {until.flow} up to {until.epoch} were run again and came to something else",
                *apart[:5],
                hint="were records of an input removed or compacted? A view of the same step has its rows: --from-view NAME",
            )

    def _countable(self, name: str) -> bool:
        """How many changes of a table come in depends on where epochs are cut: one for each key and epoch."""
        plan = self.driver.plan
        return not any(plan.step(above).updating for above in plan.feeds(plan.step(name)))


def _greatest(marks: dict[int, int], mark: EngineMark) -> None:
    marks[mark.offset] = max(mark.time, marks.get(mark.offset, NEVER))
