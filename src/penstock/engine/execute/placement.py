"""Where the work of an epoch is done: in this process, in one Spark task, or across tasks. The same levels, the same files.

Each placement runs one segment: units of input (ranges of the log, or files) at level 0, then bucket after bucket, level by level.
"""

import time
from collections import defaultdict
from typing import Protocol

from penstock.engine.execute.job import Job, Result
from penstock.engine.execute.task import Blocks, Task, split


class Placement(Protocol):
    def run(self, job: Job) -> Result: ...


class InProcess:
    """Everything in this process, one level after the other. For tests, and inside a single Spark task."""

    def run(self, job: Job) -> Result:
        task = Task(job)
        started = time.perf_counter()
        task.read(job.ranges, job.carried)
        task.result.seconds["read"] += time.perf_counter() - started
        waiting: dict[int, Blocks] = defaultdict(lambda: defaultdict(list))
        for level in job.levels():
            for bucket, blocks in split(task.blocks, job.buckets).items():
                for place, tables in blocks.items():
                    waiting[bucket][place] += tables
            task.blocks.clear()
            task.run_level(level, waiting, range(job.buckets))
        started = time.perf_counter()
        result = task.finish()
        result.seconds["write"] += time.perf_counter() - started
        return result
