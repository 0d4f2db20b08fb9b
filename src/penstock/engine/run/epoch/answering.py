"""Marks on tables: what a step has answered, no version that comes later may change unsaid.

The mark of a step lies one instant beyond the newest row it has answered. It counts for every partition of the table, also for
those first seen later, and so is one number a step; in each partition it is recorded where it was put.
"""

from collections.abc import Mapping

from penstock.core.time import NEVER
from penstock.engine.execute.job import Result
from penstock.engine.execute.program import Program
from penstock.engine.run.epoch.decision import Decision, EngineMark
from penstock.engine.run.epoch.open import Opened


def after_answers(opened: Opened, result: Result) -> dict[str, int]:
    """The mark of each step after its answers of this epoch."""
    return {step: max(mark, result.answered.get(step, NEVER)) for step, mark in opened.answered.items()}


def marks_on_tables(program: Program, opened: Opened, last: Decision | None, answered: Mapping[str, int]) -> list[EngineMark]:
    """Where the marks stand: behind what this epoch has read of a table; and in a partition first seen, before it was read."""
    marks = []
    starts = {(span.step, span.partition): span.start for span in opened.ranges}
    for step, sources in program.answering.items():
        for source in sorted(sources):
            seen = last.sources[source].partitions if last else {}
            for number, partition in opened.sources[source].partitions.items():
                if number not in seen and opened.answered[step] > NEVER:
                    first = starts.get((source, number), partition.next)
                    marks.append(EngineMark(source, number, first, opened.answered[step], step))
                if answered[step] > opened.answered[step]:
                    marks.append(EngineMark(source, number, partition.next, answered[step], step))
    return marks
