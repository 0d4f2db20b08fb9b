"""The log in depth: ten writers at once, places in a large log, rewriting and compaction, against a plain file and SQLite."""

import multiprocessing
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from events import START, events
from measuring import Meter, median
from report import Table, milliseconds, options, parsed, percent, publish, rate

from penstock.core.columns import KEY
from penstock.core.schema import Schema
from penstock.log.consumer import read
from penstock.log.file.log import FileLog
from penstock.log.port import Topic, TopicSpec
from penstock.storage.local import LocalStorage

_WRITERS = 10
_BATCH = 1_000
_SEGMENTS = 1_000
_WANTED = 1_000  # rows that are read at either end


def write(root: str, name: str, rows: int, ready: object, go: object, done: object) -> None:
    """What one writing process does, once all are ready."""
    topic = FileLog(LocalStorage(root)).topic(name)
    batch = events(_BATCH, 1_000).combine_chunks().to_batches()[0]
    ready.release()  # type: ignore[attr-defined]
    go.wait()  # type: ignore[attr-defined]
    for _ in range(rows // _BATCH):
        topic.append(0, batch)
    done.release()  # type: ignore[attr-defined]  # how long a process takes to end is not asked


def written(directory: Path, writers: int, rows: int, name: str) -> float:
    """Rows a second of so many processes, one partition."""
    log = FileLog(LocalStorage(str(directory / "log")))
    log.create(TopicSpec(name, 1, Schema(events(1, 1).schema), time="ts"))
    context = multiprocessing.get_context("spawn")
    ready, go, done = context.Semaphore(0), context.Event(), context.Semaphore(0)
    each = max(rows // writers // _BATCH, 1) * _BATCH
    children = [context.Process(target=write, args=(str(directory / "log"), name, each, ready, go, done)) for _ in range(writers)]
    for child in children:
        child.start()
    for _ in children:
        ready.acquire()
    started = time.perf_counter()
    go.set()
    for _ in children:
        done.acquire()
    took = time.perf_counter() - started
    for child in children:
        child.join()
    if log.topic(name).ends()[0].next != each * writers:
        raise SystemExit("rows are missing")
    return each * writers / took


def written_by_threads(directory: Path, writers: int, rows: int, name: str) -> float:
    """Rows a second of so many threads of one process, one partition."""
    topic = FileLog(LocalStorage(str(directory / "log"))).create(TopicSpec(name, 1, Schema(events(1, 1).schema), time="ts"))
    batch = events(_BATCH, 1_000).combine_chunks().to_batches()[0]
    each = max(rows // writers // _BATCH, 1)
    with ThreadPoolExecutor(writers) as pool:
        started = time.perf_counter()
        list(pool.map(lambda _: [topic.append(0, batch) for _ in range(each)], range(writers)))
        took = time.perf_counter() - started
    if topic.ends()[0].next != each * writers * _BATCH:
        raise SystemExit("rows are missing")
    return each * writers * _BATCH / took


def measure_writers(directory: Path, rows: int, repeat: int) -> Table:
    out = Table(f"Durable appends of {_BATCH:,} rows to one partition", "writers", "rows/s", "of one writer")
    ways = {
        "1 process": lambda n: written(directory, 1, rows, f"one{n}"),
        f"{_WRITERS} processes": lambda n: written(directory, _WRITERS, rows, f"ten{n}"),
        f"{_WRITERS} threads of one": lambda n: written_by_threads(directory, _WRITERS, rows, f"threads{n}"),
    }
    runs = [{way: measure(n) for way, measure in ways.items()} for n in range(repeat)]
    for way in ways:
        out.add(way, rate(median(run[way] for run in runs)), percent(median(run[way] / run["1 process"] for run in runs)))
    return out


def raw_file(path: Path, data: bytes, count: int) -> float:
    with open(path, "wb", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(count):
            file.write(data)
            os.fdatasync(file.fileno())
        return time.perf_counter() - started


def sqlite(path: Path, table: pa.Table) -> float:
    """Seconds for the same rows in SQLite: a transaction a batch, durable."""
    rows = list(
        zip(
            *(table.column(n).cast(pa.int64() if n == "ts" else table.column(n).type).to_pylist() for n in table.column_names),
            strict=True,
        )
    )
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, ts INTEGER, k INTEGER, v REAL)")
    started = time.perf_counter()
    for start in range(0, len(rows), _BATCH):
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows[start : start + _BATCH])
        connection.execute("COMMIT")
    took = time.perf_counter() - started
    connection.close()
    return took


def measure_yardsticks(directory: Path, rows: int, repeat: int) -> Table:
    out = Table(f"The same durable appends of {_BATCH:,} rows, one process, in turn", "what", "rows/s", "of the plain file")
    table = events(rows, 1_000)
    batch = table.slice(0, _BATCH).combine_chunks().to_batches()[0]
    frame = bytes(batch.serialize())
    found: dict[str, list[float]] = {"plain file, write + fdatasync": [], "Penstock": [], "SQLite, WAL, synchronous FULL": []}
    for number in range(repeat):
        topic = FileLog(LocalStorage(str(directory / "log"))).create(TopicSpec(f"own{number}", 1, Schema(table.schema), time="ts"))
        found["plain file, write + fdatasync"].append(rows / raw_file(directory / f"raw{number}", frame, rows // _BATCH))
        started = time.perf_counter()
        for _ in range(rows // _BATCH):
            topic.append(0, batch)
        found["Penstock"].append(rows / (time.perf_counter() - started))
        found["SQLite, WAL, synchronous FULL"].append(rows / sqlite(directory / f"db{number}", table))
    plain = found["plain file, write + fdatasync"]
    for what, rates in found.items():
        out.add(what, rate(median(rates)), percent(median(r / p for r, p in zip(rates, plain, strict=True))))
    return out


def took(topic: Topic, act: Callable[[Topic], int], rows: int = _WANTED) -> float:
    """Seconds of a fresh look at the topic."""
    topic.close()  # type: ignore[attr-defined]
    started = time.perf_counter()
    if act(topic) < rows:
        raise SystemExit("rows are missing")
    return time.perf_counter() - started


def rows_of(topic: Topic, **where: object) -> int:
    found = 0
    for table in read(topic, **where):  # type: ignore[arg-type]
        found += table.num_rows
        if found >= _WANTED:
            break
    return found


def measure_places(directory: Path, repeat: int, segments: int) -> Table:
    title = f"Reading {_WANTED:,} rows of a log of {segments:,} segments, by a process that has not seen it"
    out = Table(title, "from", "at the start", "at the end", "end / start")
    log = FileLog(LocalStorage(str(directory / "log")), segment_size=1)
    topic = log.create(TopicSpec("places", 1, Schema(events(1, 1).schema), time="ts", durability="os"))
    table = events(segments * _WANTED, 1_000)
    for start in range(0, table.num_rows, _WANTED):
        topic.append(0, table.slice(start, _WANTED).combine_chunks().to_batches()[0])
    times = np.maximum.accumulate(table["ts"].cast(pa.int64()).to_numpy())
    last = table.num_rows - 2 * _WANTED
    moments = [datetime.fromtimestamp(int(t) / 1e6, UTC) for t in (START, times[last])]
    ways = {"an offset": [{"start": 0}, {"start": last}], "a time": [{"start": moment} for moment in moments]}
    for word, (first, second) in ways.items():
        runs = [[took(topic, lambda t, w=where: rows_of(t, **w)) for where in (first, second)] for _ in range(repeat * 3)]  # type: ignore[misc]
        begin, end = median(r[0] for r in runs), median(r[1] for r in runs)
        out.add(word, milliseconds(begin), milliseconds(end), f"{median(r[1] / r[0] for r in runs):.2f}")
    return out


def measure_cleaning(directory: Path, rows: int, repeat: int) -> Table:
    out = Table("Cleaning, one partition", "what", "rows before", "rows after", "bytes after", "rows/s", "foreign")
    table = events(rows, max(rows // 20, 1))
    keys = table["k"].cast(pa.string()).cast(pa.binary())
    keyed = table.append_column(KEY, keys)
    for word, compact in (("rewriting", False), ("compaction", True)):
        runs = []
        for number in range(repeat):
            log = FileLog(LocalStorage(str(directory / "log")), segment_size=8 << 20)
            topic = log.create(TopicSpec(f"{word}{number}", 1, Schema(table.schema), time="ts", durability="os"))
            for start in range(0, rows, _BATCH):
                topic.append(0, keyed.slice(start, _BATCH).combine_chunks().to_batches()[0])
            log.alter(replace(topic.spec, compact=compact))
            with Meter() as meter:
                [done] = log.clean(topic.spec.name)
            runs.append((meter, done))
        meter, done = sorted(runs, key=lambda run: run[0].seconds)[len(runs) // 2]
        size = percent(done.bytes / done.bytes_before)
        out.add(
            word, f"{done.rows_before:,}", f"{done.rows:,}", size, rate(done.rows_before / meter.seconds), percent(meter.foreign)
        )
    return out


def measure_rewritten(directory: Path, rows: int, repeat: int) -> Table:
    out = Table(
        "Reading before and after rewriting, checksums verified", "rows a frame", "before, rows/s", "after, rows/s", "bytes after"
    )
    for frame, count in ((1, rows // 50), (1_000, rows)):
        table = events(count, 1_000)
        log = FileLog(LocalStorage(str(directory / "log")), segment_size=4 << 20)
        topic = log.create(TopicSpec(f"frames{frame}", 1, Schema(table.schema), time="ts", durability="os"))
        for batch in (b for s in range(0, count, frame) for b in table.slice(s, frame).combine_chunks().to_batches()):
            topic.append(0, batch)
        before = median(count / took(topic, lambda t: sum(c.frame.count for c in t.read(0)), count) for _ in range(repeat))
        [done] = log.clean(topic.spec.name)
        after = median(count / took(topic, lambda t: sum(c.frame.count for c in t.read(0)), count) for _ in range(repeat))
        out.add(f"{frame:,}", rate(before), rate(after), percent(done.bytes / done.bytes_before))
    return out


def main() -> None:
    given = parsed(options(__doc__, 2_000_000, 20_000), repeat=3)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        few = given.rows // 4
        tables = [
            measure_writers(directory, given.rows, given.repeat),
            measure_yardsticks(directory, few, given.repeat),
            measure_places(directory, given.repeat, 50 if given.quick else _SEGMENTS),
            measure_cleaning(directory, given.rows, given.repeat),
            measure_rewritten(directory, given.rows, given.repeat),
        ]
    publish("log_places", tables, given.markdown)


if __name__ == "__main__":
    main()
