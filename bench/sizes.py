"""What each part of a flow costs by itself, without Spark: processor seconds a row in one process, and bytes in the log, in a
shuffle, in state, staged for a sink and in a decision. The figures that docs/scale.md computes with."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from events import LATENESS, PARTITIONS, START, ddl, events, fill
from measuring import median
from report import Table, options, parsed, publish, rate

from penstock import Flow, Tumbling, agg
from penstock.engine.execute.job import Job, Result
from penstock.engine.execute.placement import InProcess, Placement
from penstock.engine.execute.shuffle import to_bytes
from penstock.engine.execute.task import Task
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.epoch.report import Report
from penstock.engine.run.runtime import Runtime

_TIME = pa.timestamp("us", tz="UTC")
Define = Callable[[Flow], None]


class Counting(InProcess):
    """Does the work in this process; counts processor seconds, and bytes that would go through Spark's shuffle."""

    def __init__(self) -> None:
        self.cpu = self.counting = 0.0
        self.shuffled = 0

    def run(self, job: Job) -> Result:
        started = time.process_time()
        result = super().run(job)
        self.cpu += time.process_time() - started
        started = time.process_time()
        task = Task(job)
        task.read(job.ranges, job.carried)
        self.shuffled += sum(len(to_bytes(table)) for tables in task.blocks.values() for table in tables)
        self.counting += time.process_time() - started
        return result


class Alone(Runtime):
    """A home and its log; the work is done in this process."""

    tasks = 2
    placement: InProcess

    def place(self, rows: int) -> Placement:
        return self.placement


def measured(runtime: Alone, name: str, define: Define, epoch: int, repeat: int, before: int = 0) -> dict[str, float]:
    """Of the rows behind the first `before`, which are read first: loading a table is not what is measured."""
    found: list[dict[str, float]] = []
    for number in range(repeat + 1):  # the first one warms up
        flow = Flow(f"{name}{number}")
        define(flow)
        runtime.placement = InProcess()
        driver = runtime.driver(runtime.plan(flow), 2, threaded=False)
        driver.start()
        read = 0
        while read < before and (report := driver.epoch(EpochRequest(rows=before - read))):
            read += report.rows
        runtime.placement = counting = Counting()
        reports: list[Report] = []
        started = time.process_time()
        while report := driver.epoch(EpochRequest(rows=epoch)):
            reports.append(report)
        all_cpu = time.process_time() - started
        found.append(_facts(runtime, counting, reports, all_cpu - counting.counting))
        driver.stop()
    return {key: median(one[key] for one in found[1:]) for key in found[0]}


def _facts(runtime: Alone, counting: Counting, reports: list[Report], cpu: float) -> dict[str, float]:
    rows = sum(report.rows for report in reports)
    last = reports[-1].decision
    place = runtime.home / "flows" / last.flow
    kept = {ref.file for ref in last.state}
    staged = [ref for report in reports for ref in report.decision.staged]
    return {
        "rows": rows,
        "rate": rows / counting.cpu,
        "shuffle": counting.shuffled / rows,
        "state": sum((place / name).stat().st_size for name in kept),
        "kept": sum(ref.rows for ref in last.state),
        "staged_rows": sum(ref.rows for ref in staged),
        "staged": sum(ref.size for ref in staged),
        "decision": median(len(report.decision.encode()) for report in reports),
        "cpu": cpu,
    }


def window(keys: int, size: str) -> Define:
    def define(flow: Flow) -> None:
        stream = flow.stream(f"events{keys}", _SCHEMA, time="ts", lateness=LATENESS)
        stream.window(Tumbling(size), by="k").agg(n=agg.count(), total=agg.sum("v")).view(f"{flow.name}_out")

    return define


def join(flow: Flow) -> None:
    left = flow.stream("left", _LEFT, time="at", lateness=LATENESS)
    right = flow.stream("right", _RIGHT, time="bt", lateness=LATENESS)
    left.join(right, on="k", within="10 seconds").window(Tumbling("1 minute"), by="k").agg(n=agg.count()).view(f"{flow.name}_out")


def enrich(flow: Flow) -> None:
    users = flow.table("users", "k long, name string, ts timestamp", key="k", time="ts")
    stream = flow.stream("events100000", _SCHEMA, time="ts", lateness=LATENESS)
    stream.enrich(users, on="k").to(f"{flow.name}_out", partitions=PARTITIONS)


def copied(flow: Flow) -> None:
    flow.stream("events1000", _SCHEMA, time="ts", lateness=LATENESS).to(f"{flow.name}_out", partitions=PARTITIONS)


_SCHEMA = ddl(events(1, 1))
_LEFT = ddl(events(1, 1, names=("a", "at", "k", "x")))
_RIGHT = ddl(events(1, 1, names=("b", "bt", "k", "y")))


def topics(runtime: Alone, rows: int) -> dict[str, int]:
    """All inputs; the bytes that each topic takes on disk."""
    for keys in (1_000, 100_000):
        fill(runtime.log, f"events{keys}", events(rows, keys))
    fill(runtime.log, "left", events(rows // 2, 1_000, apart=2_000, names=("a", "at", "k", "x")), time="at")
    fill(runtime.log, "right", events(rows // 2, 1_000, apart=2_000, names=("b", "bt", "k", "y"), seed=2), time="bt")
    number = np.arange(100_000)
    users = {"k": number, "name": [f"user {n}" for n in number], "ts": pa.array(np.full(len(number), START - 1), _TIME)}
    fill(runtime.log, "users", pa.table(users))
    return {name: _size(runtime.home / "log", name) for name in runtime.log.topics()}


def _size(log: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in (log / "topics" / topic).rglob("*") if path.is_file())


FLOWS: dict[str, tuple[Define, int]] = {
    "window, 1,000 keys": (window(1_000, "1 minute"), 0),
    "window, 100,000 keys, one day": (window(100_000, "1 day"), 0),
    "join, about five partners, pairs counted": (join, 0),
    "as-of enrich, table of 100,000, into a topic": (enrich, 100_000),
    "no step, into a topic": (copied, 0),
}


def main() -> None:
    given = parsed(options(__doc__, 1_000_000, 20_000))
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        runtime = Alone(Path(name))
        sizes = topics(runtime, given.rows)
        out = Table("One process, epochs of 100,000 rows", *_COLUMNS)
        for number, (what, (define, before)) in enumerate(FLOWS.items()):
            add(out, what, measured(runtime, f"f{number}x", define, 100_000, given.repeat, before))
        text = Table("Bytes a row in the embedded log, four columns of eight bytes", "rows a frame", "bytes a row")
        text.add("10,000", f"{sizes['events1000'] / given.rows:.0f}")
    publish("sizes", [out, text], given.markdown)


_COLUMNS = ["flow", "rows/s of a core, in the task", "the same, with decide and deliver", "shuffle, bytes a row"]
_COLUMNS += ["rows kept", "state, bytes a row kept", "result rows", "bytes a result row", "decision"]


def add(out: Table, what: str, found: dict[str, Any]) -> None:
    kept, results = found["kept"] or 1, found["staged_rows"] or 1
    out.add(
        what,
        rate(found["rate"]),
        rate(found["rows"] / found["cpu"]),
        f"{found['shuffle']:.1f}",
        f"{found['kept']:,.0f}",
        f"{found['state'] / kept:.0f}",
        f"{found['staged_rows']:,.0f}",
        f"{found['staged'] / results:.0f}",
        f"{found['decision'] / 1e3:.1f} kB",
    )


if __name__ == "__main__":
    main()
