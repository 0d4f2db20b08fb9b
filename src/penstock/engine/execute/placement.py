"""Where the work of an epoch is done: in this process, in one Spark task, or across tasks. The same levels, the same files.

Each placement runs one segment: units of input (ranges of the log, or files) at level 0, then bucket after bucket, level by level.
"""

import os
import pickle
import time
import uuid
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from penstock.core.time import NEVER
from penstock.engine.execute.program import Program
from penstock.engine.execute.task import Blocks, Result, Work, split
from penstock.engine.run.decision import RunRef
from penstock.engine.source.read import Range
from penstock.engine.state.runs import read_arrow
from penstock.errors import PenstockError, TornEpoch
from penstock.kernels.port import crossed
from penstock.log.port import Log
from penstock.storage.port import Storage


class Carried(NamedTuple):
    """A file of rows for one reader of this segment."""

    reader: str  # "step:port", or "step" for rows that are its output (Spark SQL)
    file: str


@dataclass(frozen=True)
class Job:
    """One segment of one epoch, as tasks need to know it."""

    program: Program
    storage: Storage
    log: Log
    epoch: int
    segment: int
    buckets: int
    ranges: Sequence[Range]
    carried: Sequence[Carried]
    state: Sequence[RunRef]
    inputs: Mapping[str, tuple[int, ...]]  # keyed step -> frontier of each port, now
    before: Mapping[str, tuple[int, ...]]  # the same in the epoch before; () at the start
    clock: tuple[int, int] = (0, 0)  # when the epoch before and this one were opened
    answered: Mapping[str, int] = field(default_factory=dict)  # step -> the mark that its answers have left on its table
    refs: Mapping[tuple[str, int], list[RunRef]] = field(init=False)

    def __post_init__(self) -> None:
        refs: dict[tuple[str, int], list[RunRef]] = defaultdict(list)
        for ref in self.state:
            refs[ref.step, ref.bucket].append(ref)
        object.__setattr__(self, "refs", refs)

    def work(self) -> Work:
        return Work(self.program, self.storage, self.epoch, self.clock)

    def levels(self) -> range:
        return range(1, self.program.depth(self.segment) + 1)


class Placement(Protocol):
    def run(self, job: Job) -> Result: ...


def read_units(job: Job, work: Work, ranges: Iterable[Range], carried: Iterable[Carried]) -> None:
    """Level 0: what comes into the segment."""
    work.read(job.log, ranges, job.refs)
    for reader, file in carried:
        rows = read_arrow(job.storage, file).read_all()
        name, _, port = reader.partition(":")
        if not port:
            work.push(name, rows)
        elif name in job.program.kernels:
            work.prepare(name, int(port), rows, None)
        else:
            step = job.program.plan.step(name)
            work.push(name, work._rowwise(step, int(port), rows, None))


def run_buckets(job: Job, work: Work, level: int, arrived: Mapping[int, Blocks], mine: Iterable[int]) -> None:
    """One level: every keyed step of it, in each of these buckets."""
    for step in job.program.keyed(job.segment, level):
        now, before = job.inputs[step], job.before.get(step, ())
        for bucket in mine:
            blocks = arrived.get(bucket, {})
            refs = job.refs.get((step, bucket), [])
            has_rows = any((step, port) in blocks for port in range(len(now)))
            early = job.program.early.get(step)
            if has_rows or (refs and (now != before or (early and crossed(job.clock, early)))):
                work.step(step, bucket, blocks, refs, before, list(now), job.answered.get(step, NEVER))


class InProcess:
    """Everything in this process, one level after the other. For tests, and inside a single Spark task."""

    def run(self, job: Job) -> Result:
        work = job.work()
        started = time.perf_counter()
        read_units(job, work, job.ranges, job.carried)
        work.result.seconds["read"] += time.perf_counter() - started
        waiting: dict[int, Blocks] = defaultdict(lambda: defaultdict(list))
        for level in job.levels():
            for bucket, blocks in split(work.blocks, job.buckets).items():
                for place, tables in blocks.items():
                    waiting[bucket][place] += tables
            work.blocks.clear()
            run_buckets(job, work, level, waiting, range(job.buckets))
        started = time.perf_counter()
        result = work.finish()
        result.seconds["write"] += time.perf_counter() - started
        return result


class OneTask:
    """The whole segment in one Spark task, without a shuffle: what a small epoch is worth."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def run(self, job: Job) -> Result:
        packed = Packed.of(job)

        def task(_: int, rows: Iterator[Any]) -> Iterable[bytes]:
            settle()
            list(rows)  # input left unread would cost the worker process
            try:
                return [pickle.dumps(InProcess().run(packed.job()))]
            except PenstockError as error:
                return [pickle.dumps(error)]

        (out,) = run_spark(lambda: self.context.parallelize([0], 1).mapPartitionsWithIndex(task).collect(), job)
        return _result(out)


class AcrossTasks:
    """Level 0 in several tasks by range, each further level in one task per group of buckets; Spark's shuffle in between."""

    def __init__(self, context: Any, tasks: int) -> None:
        self.context, self.tasks = context, tasks

    def run(self, job: Job) -> Result:
        packed, tasks = Packed.of(job), self.tasks
        groups = deal(job.ranges, job.carried, tasks)
        owners = min(tasks, job.buckets)
        levels = list(job.levels())

        def level_zero(index: int, rows: Iterator[Any]) -> Iterable[tuple[int, bytes]]:
            settle()
            list(rows)
            mine = packed.job()
            work = mine.work()
            try:
                read_units(mine, work, *groups[index])
                return hand_on(mine, work, index, owners)
            except PenstockError as error:
                return [(0, pickle.dumps(("error", error)))]

        def level(number: int) -> Callable[[int, Iterator[tuple[int, bytes]]], Iterable[tuple[int, bytes]]]:
            def run(index: int, rows: Iterator[tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
                settle()
                mine = packed.job()
                work = mine.work()
                arrived, passing = take_in(mine, rows, number)
                try:
                    run_buckets(mine, work, number, arrived, [b for b in range(mine.buckets) if b % owners == index])
                    return [*passing, *hand_on(mine, work, index, owners)]
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


def deal(ranges: Sequence[Range], carried: Sequence[Carried], tasks: int) -> list[tuple[list[Range], list[Carried]]]:
    """Input spread over tasks by size; at least one task, none empty."""
    groups: list[tuple[list[Range], list[Carried]]] = [([], []) for _ in range(max(1, min(tasks, len(ranges) + len(carried))))]
    load = [0] * len(groups)
    for span in sorted(ranges, key=lambda r: r.start - r.stop):
        lightest = load.index(min(load))
        groups[lightest][0].append(span)
        load[lightest] += span.stop - span.start
    for i, file in enumerate(carried):
        groups[i % len(groups)][1].append(file)
    return groups


def hand_on(job: Job, work: Work, index: int, owners: int) -> list[tuple[int, bytes]]:
    """Blocks for the tasks of the levels behind, and this task's own result, on its way to the driver."""
    attempt = uuid.uuid4().hex
    out = []
    targets = set()
    for bucket, blocks in split(work.blocks, job.buckets).items():
        for place, tables in blocks.items():
            for table in tables:
                level = job.program.places[place[0]].level
                out.append((bucket % owners, pickle.dumps(("block", level, bucket, place, attempt, to_bytes(table)))))
                targets.add((level, bucket % owners))
    result = work.finish()
    out.append((index % owners, pickle.dumps(("result", result, attempt, sorted(targets)))))
    return out


def take_in(job: Job, rows: Iterator[tuple[int, bytes]], level: int) -> tuple[dict[int, Blocks], list[tuple[int, bytes]]]:
    """Blocks for this level by bucket; everything else goes on as it came. Which attempts were read is noted for the driver."""
    arrived: dict[int, Blocks] = defaultdict(lambda: defaultdict(list))
    passing: list[tuple[int, bytes]] = []
    taken: set[str] = set()
    owner = 0
    for owner, data in rows:
        record = pickle.loads(data)  # noqa: S301  written by our own tasks of this job, inside Spark
        if record[0] == "block" and record[1] == level:
            arrived[record[2]][record[3]].append(from_bytes(record[5]))
            taken.add(record[4])
        else:
            passing.append((owner, data))
    if taken:
        passing.append((owner, pickle.dumps(("taken", level, owner, sorted(taken)))))
    return arrived, passing


def gather(out: Iterable[bytes]) -> Result:
    """One result of all. A task that was run again and gave something else would tear the epoch: then it is thrown away whole."""
    total, made, taken = Result(), set(), set()
    for data in out:
        record = pickle.loads(data)  # noqa: S301  written by our own tasks of this job, inside Spark
        if record[0] == "error":
            raise record[1]
        if record[0] == "result":
            total.add(record[1])
            made |= {(level, owner, record[2]) for level, owner in record[3]}
        elif record[0] == "taken":
            taken |= {(record[1], record[2], attempt) for attempt in record[3]}
    if made != taken:
        raise TornEpoch("a task of this epoch ran again and its first output was used elsewhere; the epoch is thrown away")
    return total


def to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _result(data: bytes) -> Result:
    result = pickle.loads(data)  # noqa: S301  written by our own task of this job, inside Spark
    if isinstance(result, PenstockError):
        raise result
    assert isinstance(result, Result)
    return result


@dataclass(frozen=True)
class Packed:
    """A job on its way to tasks; the program is unpacked once per worker process."""

    program: bytes
    fields: tuple[Any, ...]

    @classmethod
    def of(cls, job: Job) -> "Packed":
        rest = [getattr(job, f.name) for f in fields(job) if f.init and f.name != "program"]
        return cls(_pack(job.program), tuple(rest))

    def job(self) -> Job:
        return Job(_unpack(self.program), *self.fields)


def travels_whole(module: ModuleType) -> None:
    """What tasks need of this module is sent along with the program: they cannot import it."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)


def _pack(program: Program) -> bytes:
    """The program as bytes, made once for each and kept as long as it lives."""
    known = _PACKED.get(id(program))
    if known is None:
        import cloudpickle

        known = _PACKED[id(program)] = bytes(cloudpickle.dumps(program))
        weakref.finalize(program, _PACKED.pop, id(program), None)
    return known


_PACKED: dict[int, bytes] = {}


@lru_cache(maxsize=8)
def _unpack(data: bytes) -> Program:
    program = pickle.loads(data)  # noqa: S301  made by our own driver, carried by Spark
    assert isinstance(program, Program)
    return program


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
