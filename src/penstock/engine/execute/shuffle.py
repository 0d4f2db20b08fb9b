"""Between tasks: input dealt out to them, rows on their way to the bucket of their key, and one result of all."""

import pickle
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from penstock.engine.execute.job import Carried, Result
from penstock.engine.execute.task import Blocks, Task, split
from penstock.engine.source.read import Range
from penstock.errors import TornEpoch


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


def hand_on(task: Task, index: int, owners: int) -> list[tuple[int, bytes]]:
    """Blocks for the tasks of the levels behind, and this task's own result, on its way to the driver."""
    attempt = uuid.uuid4().hex
    out = []
    targets = set()
    for bucket, blocks in split(task.blocks, task.job.buckets).items():
        for place, tables in blocks.items():
            for table in tables:
                level = task.program.places[place[0]].level
                out.append((bucket % owners, pickle.dumps(("block", level, bucket, place, attempt, to_bytes(table)))))
                targets.add((level, bucket % owners))
    result = task.finish()
    out.append((index % owners, pickle.dumps(("result", result, attempt, sorted(targets)))))
    return out


def take_in(rows: Iterator[tuple[int, bytes]], level: int) -> tuple[dict[int, Blocks], list[tuple[int, bytes]]]:
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
