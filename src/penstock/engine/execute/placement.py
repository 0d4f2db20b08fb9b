"""Where the work of an epoch is done: in this process, in one Spark task, or across tasks. The same levels, the same files.

Each placement runs one segment: units of input (ranges of the log, or files) at level 0, then bucket after bucket, level by level.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from penstock.engine.execute.job import Job, Result
from penstock.engine.execute.task import Blocks, Task, split


class Placement(Protocol):
    def run(self, job: Job) -> Result: ...


class InProcess:
    """Everything in this process, one level after the other. For tests, and inside a single Spark task."""

    def run(self, job: Job) -> Result:
        task = Task(job)
        with _timed(task.result, "read"):
            task.read(job.ranges, job.carried)
        with _timed(task.result, "step"):
            self._levels(job, task)
        with _timed(task.result, "write"):
            return task.finish()

    def _levels(self, job: Job, task: Task) -> None:
        waiting: dict[int, Blocks] = defaultdict(lambda: defaultdict(list))
        for level in job.levels():
            for bucket, blocks in split(task.blocks, job.buckets).items():
                for place, tables in blocks.items():
                    waiting[bucket][place] += tables
            task.blocks.clear()
            task.run_level(level, waiting, range(job.buckets))


@contextmanager
def _timed(result: Result, part: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    result.seconds[part] += time.perf_counter() - started
