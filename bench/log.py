"""The embedded log: appends of 1,000 rows, single durable appends against the disk's own sync rate, reading into Arrow."""

import os
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from events import PARTITIONS, events, fill
from measuring import Meter, median
from report import Table, options, parsed, percent, publish, rate

from penstock.core.schema import Schema
from penstock.log.file.log import FileLog
from penstock.log.port import Topic, TopicSpec
from penstock.storage.local import LocalStorage

_BLOCK = 100  # single appends, then as many raw syncs, in turn: the disk's mood is the same for both


def batches(table: pa.Table, rows: int) -> list[pa.RecordBatch]:
    return [b for start in range(0, table.num_rows, rows) for b in table.slice(start, rows).combine_chunks().to_batches()]


def append(log: FileLog, name: str, given: list[pa.RecordBatch], durability: str) -> Topic:
    topic = log.create(TopicSpec(name, PARTITIONS, Schema(given[0].schema), time="ts", durability=durability))  # type: ignore[arg-type]
    for number, batch in enumerate(given):
        topic.append(number % PARTITIONS, batch)
    return topic


def raw_syncs(path: Path, data: bytes, count: int) -> float:
    """Seconds for so many appends with fdatasync, and nothing else."""
    with open(path, "ab", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(count):
            file.write(data)
            os.fdatasync(file.fileno())
        return time.perf_counter() - started


def single_appends(topic: Topic, rows: list[pa.RecordBatch]) -> float:
    started = time.perf_counter()
    for row in rows:
        topic.append(0, row)
    return time.perf_counter() - started


def measure_appends(log: FileLog, table: pa.Table, repeat: int) -> Table:
    out = Table("Append, 1,000 rows a batch, one writer", "durability", "rows/s", "foreign")
    given = batches(table, 1_000)
    for durability in ("os", "fsync"):
        runs = []
        for number in range(repeat):
            with Meter() as meter:
                append(log, f"append_{durability}{number}", given, durability)
            runs.append(meter)
        out.add(durability, rate(table.num_rows / median(m.seconds for m in runs)), percent(median(m.foreign for m in runs)))
    return out


def measure_syncs(directory: Path, log: FileLog, table: pa.Table, repeat: int) -> Table:
    out = Table("Single durable appends of one row", "what", "per second", "of the disk's rate", "foreign")
    topic = log.create(TopicSpec("single", 1, Schema(table.schema), time="ts"))
    rows = batches(table.slice(0, _BLOCK), 1)
    single_appends(topic, rows)
    frame = bytes(topic.frames(0)[0].where[2])
    raw, ours = [], []
    with Meter() as meter:
        for _ in range(repeat * 3):
            raw.append(raw_syncs(directory / "raw", frame, _BLOCK) / _BLOCK)
            ours.append(single_appends(topic, rows) / _BLOCK)
    out.add(f"write + fdatasync of {len(frame)} bytes", rate(1 / median(raw)), "100 %", percent(meter.foreign))
    share = median(r / o for r, o in zip(raw, ours, strict=True))
    out.add("append, acknowledged", rate(1 / median(ours)), percent(share), percent(meter.foreign))
    return out


def read_all(topic: Topic) -> int:
    return sum(chunk.rows.num_rows for partition in range(PARTITIONS) for chunk in topic.read(partition))


def measure_reads(log: FileLog, table: pa.Table, repeat: int) -> Table:
    out = Table(
        "Read into Arrow, checksums verified, from the page cache", "rows a frame", "first read, rows/s", "again, rows/s", "foreign"
    )
    for frame in (1_000, 10_000, 65_536):
        topic = fill(log, f"read{frame}", table, frame)
        topic.close()  # type: ignore[attr-defined]  # forget what the writer knows
        runs = []
        for _ in range(repeat + 1):
            with Meter() as meter:
                if read_all(topic) != table.num_rows:
                    raise SystemExit("rows are missing")
            runs.append(meter)
        first, again = runs[0].seconds, median(m.seconds for m in runs[1:])
        foreign = median(m.foreign for m in runs)
        out.add(f"{frame:,}", rate(table.num_rows / first), rate(table.num_rows / again), percent(foreign))
    return out


def main() -> None:
    given = parsed(options(__doc__, 2_000_000, 20_000), repeat=5)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        log = FileLog(LocalStorage(str(directory / "log")))
        table = events(given.rows, 1_000)
        tables = [
            measure_appends(log, table, given.repeat),
            measure_syncs(directory, log, table, given.repeat),
            measure_reads(log, table, given.repeat),
        ]
    publish("log", tables, given.markdown)


if __name__ == "__main__":
    main()
