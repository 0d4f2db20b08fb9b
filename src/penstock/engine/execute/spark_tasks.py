"""The work of an epoch in Spark's Python workers: one task, or several with Spark's shuffle in between."""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from penstock.engine.execute.job import Job, Result
from penstock.engine.execute.placement import InProcess
from penstock.engine.execute.shuffle import deal, gather, hand_on, take_in
from penstock.engine.execute.task import Task
from penstock.errors import PenstockError


class OneTask:
    """The whole segment in one Spark task, without a shuffle: what a small epoch is worth."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def run(self, job: Job) -> Result:
        def task(_: int, rows: Iterator[Any]) -> Iterable[bytes]:
            settle()
            list(rows)  # input left unread would cost the worker process
            try:
                return [pickle.dumps(InProcess().run(job))]
            except PenstockError as error:
                return [pickle.dumps(error)]

        (out,) = run_spark(lambda: self.context.parallelize([0], 1).mapPartitionsWithIndex(task).collect(), job)
        return _result(out)


class AcrossTasks:
    """Level 0 in several tasks by range, each further level in one task per group of buckets; Spark's shuffle in between."""

    def __init__(self, context: Any, tasks: int) -> None:
        self.context, self.tasks = context, tasks

    def run(self, job: Job) -> Result:
        groups = deal(job.ranges, job.carried, self.tasks)
        owners = min(self.tasks, job.buckets)
        levels = list(job.levels())

        def level_zero(index: int, rows: Iterator[Any]) -> Iterable[tuple[int, bytes]]:
            settle()
            list(rows)
            task = Task(job)
            try:
                task.read(*groups[index])
                return hand_on(task, index, owners)
            except PenstockError as error:
                return [(0, pickle.dumps(("error", error)))]

        def level(number: int) -> Callable[[int, Iterator[tuple[int, bytes]]], Iterable[tuple[int, bytes]]]:
            def run(index: int, rows: Iterator[tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
                settle()
                task = Task(job)
                arrived, passing = take_in(rows, number)
                try:
                    task.run_level(number, arrived, [b for b in range(job.buckets) if b % owners == index])
                    return [*passing, *hand_on(task, index, owners)]
                except PenstockError as error:
                    return [*passing, (0, pickle.dumps(("error", error)))]

            return run

        rdd = self.context.parallelize(range(len(groups)), len(groups)).mapPartitionsWithIndex(level_zero)
        for number in levels:
            rdd = rdd.partitionBy(owners, _same).mapPartitionsWithIndex(level(number))
        out = run_spark(lambda: rdd.values().collect(), job)
        return gather(out)


def _same(bucket: int) -> int:
    return bucket


def _result(data: bytes) -> Result:
    result = pickle.loads(data)  # noqa: S301  written by our own task of this job, inside Spark
    if isinstance(result, PenstockError):
        raise result
    assert isinstance(result, Result)
    return result


def settle() -> None:
    """Once per worker: what is loaded stays out of the collector's way (PySpark collects after every task)."""
    import gc

    if not gc.get_freeze_count():
        plain_memory()
        gc.collect()
        gc.freeze()


def plain_memory() -> None:
    """Arrow takes its memory from the C library, which keeps it for the next epoch: for large tables that is twice as fast as
    Arrow's own pool, which gives it back and pays for every page anew."""
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())


def run_spark(action: Callable[[], list[bytes]], job: Job) -> list[bytes]:
    """Runs a Spark action; what fails in a task comes out as one readable error."""
    from penstock.engine.spark.failures import translated

    with translated(job.program.plan.flow, job.epoch):
        return action()
