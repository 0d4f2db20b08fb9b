"""Small epochs of 1,000 rows, one and three keyed steps: in a task that stays, as a Spark job each, and Structured Streaming's.

And from a producer into the view: on one machine both ways, and on a cluster of two workers.
"""

import random
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pyarrow as pa
from events import LATENESS, START, ddl, events, files, fill
from flows import Bench
from measuring import Meter, median, percentile
from report import Table, milliseconds, options, parsed, percent, publish
from sides import apart, is_side, run_side
from streaming import Streaming

from penstock import Flow, Position, Producer, Tumbling, View, agg
from penstock.core.schema import Schema
from penstock.engine.run import loop
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.runtime import RESIDENT
from penstock.log.port import TopicSpec
from penstock.testing.servers.spark_cluster import SparkCluster

_ROWS, _KEYS = 1_000, 1_000
_BETWEEN = 0.3  # seconds, on average, between two batches of a producer that waits for its rows to be seen


def one_step(flow: Flow, schema: str, view: str) -> None:
    stream = flow.stream("events", schema, time="ts", lateness=LATENESS)
    stream.window(Tumbling("1 minute"), by="k").agg(n=agg.count(), total=agg.sum("v")).view(view)


def three_steps(flow: Flow, schema: str, view: str) -> None:
    """Windows over windows: rows go through three changes of key, and every epoch closes some windows."""
    stream = flow.stream("events", schema, time="ts", lateness=LATENESS)
    first = stream.window(Tumbling("2 seconds"), by="k").agg(n=agg.count(), total=agg.sum("v"))
    second = first.select("n", "total", "window_end", k="k % 100").window(Tumbling("4 seconds"), by="k")
    third = second.agg(n=agg.sum("n"), total=agg.sum("total")).select("n", "total", "window_end", k="k % 10")
    third.window(Tumbling("8 seconds"), by="k").agg(n=agg.sum("n"), total=agg.sum("total")).view(view)


def penstock(directory: Path, wish: dict[str, Any]) -> list[dict[str, Any]]:
    bench = Bench(directory / f"home-{wish['name']}", conf=wish["conf"])
    table = events(wish["epochs"] * _ROWS, _KEYS)
    fill(bench.runtime.log, "events", table, frame=_ROWS // 4)
    results = []
    for number, define in enumerate((one_step, three_steps)):
        ran = bench.run(lambda flow, number=number, define=define: define(flow, ddl(table), f"out{number}"), _ROWS, wish["epochs"])
        warm = ran.reports[wish["skip"] :]
        steps = {name: median(r.steps.get(name, 0.0) for r in warm) for name in warm[-1].steps}
        _kept(bench.view(f"out{number}"), directory / f"{wish['name']}{number}.parquet")
        results.append(
            {"seconds": [r.seconds for r in warm], "first": ran.reports[0].seconds, "foreign": ran.foreign, "steps": steps}
        )
    return results


def _kept(rows: pa.Table, path: Path) -> None:
    pl.DataFrame(rows).select("k", "n", "total", pl.col("window_end").alias("ts")).write_parquet(path)


def structured(directory: Path, wish: dict[str, Any]) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    path = files(directory / "files", events(wish["epochs"] * _ROWS, _KEYS), _ROWS // 2)

    def level(rows: Any, time: str, size: str, key: str, n: Any, total: str) -> Any:
        grouped = rows.groupBy(F.window(time, size).alias("w"), F.expr(key).alias("k"))
        counted = grouped.agg(n.alias("n"), F.sum(total).alias("total"))
        return counted.select("k", "n", "total", F.window_time("w").alias("ts"))

    def one(at: Streaming) -> Any:
        return level(at.source(path, 2, "ts"), "ts", "1 minute", "k", F.count("*"), "v")

    def three(at: Streaming) -> Any:
        first = level(at.source(path, 2, "ts"), "ts", "2 seconds", "k", F.count("*"), "v")
        second = level(first, "ts", "4 seconds", "k % 100", F.sum("n"), "total")
        return level(second, "ts", "8 seconds", "k % 10", F.sum("n"), "total")

    side, results = Streaming(directory), []
    for query in (one, three):
        ran = side.run(query)
        side.keep(ran, directory / f"structured{len(results)}.parquet")
        results.append({"seconds": ran.batches[wish["skip"] :], "first": ran.batches[0], "foreign": ran.foreign})
    return results


def latency(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    if wish["name"] == "cluster":
        (directory / "cluster").mkdir()
        with SparkCluster(directory / "cluster", memory="2g") as cluster:
            secret = {name: value for name, value in cluster.settings().items() if "secret" in name}
            conf = {"spark.executor.memory": "1g", "spark.executor.cores": "1", **secret}
            found = _live(Bench(directory / "live-cluster", None, cluster.url, conf), wish)
            from pyspark import SparkContext

            SparkContext.getOrCreate().stop()
            return found
    return _live(Bench(directory / f"live-{wish['name']}", conf=wish["conf"]), wish)


def killed(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    """The process of the task that stays is killed between two epochs: how long the next one takes, and how many until another is
    there."""
    bench = Bench(directory / "killed")
    table = events(wish["kills"] * 40 * _ROWS, _KEYS)
    fill(bench.runtime.log, "events", table, frame=_ROWS // 4)
    driver = bench.started(lambda flow: one_step(flow, ddl(table), "killed"))
    seconds = []
    with Meter() as meter:
        for number in range(wish["kills"] * 40):
            if number % 40 == 20:
                _kill_workers()
            report = driver.epoch(EpochRequest(rows=_ROWS))
            seconds.append(report.seconds if report else 0.0)
    driver.stop()
    behind = [seconds[i] for i in range(20, len(seconds), 40)]
    return {"seconds": behind, "later": [seconds[i] for i in range(len(seconds)) if i % 40 > 20], "foreign": meter.foreign}


def _kill_workers() -> None:
    """Every Python worker of this process's Spark, but not the daemon that makes them."""
    for process in psutil.Process().children(recursive=True):
        if "pyspark.daemon" in " ".join(process.cmdline()) and not process.children():
            process.kill()


def _live(bench: Bench, wish: dict[str, Any]) -> dict[str, Any]:
    """A flow in `run` mode and a producer beside it: from before the durable append until the view holds what the rows led to."""
    table = events(wish["sends"] * _ROWS, _KEYS)
    topic = bench.runtime.log.create(TopicSpec("events", 1, Schema(table.schema), time="ts"))
    driver = bench.started(lambda flow: one_step(flow, ddl(table), "live"))
    stop = threading.Event()
    thread = threading.Thread(target=loop.run, args=(driver, stop, lambda report: None))
    thread.start()
    pause = random.Random(START)  # when a producer wakes up
    with View(bench.home / "views", "live") as view, Producer(topic) as producer, Meter() as meter:
        seconds = [_sent(producer, view, table.slice(i * _ROWS, _ROWS), pause) for i in range(wish["sends"])]
    stop.set()
    thread.join()
    driver.stop()
    return {"seconds": seconds[wish["skip"] :], "foreign": meter.foreign}


def _sent(producer: Producer, view: View, rows: pa.Table, pause: random.Random) -> float:
    time.sleep(pause.uniform(0, 2 * _BETWEEN))
    started = time.perf_counter()
    last = Position("events", 0, int(producer.send_arrow(rows, partition=0).offsets[-1]))
    while not view.progress.holds(last):
        if time.perf_counter() - started > 60:
            raise SystemExit("rows do not come through")
        time.sleep(0.001)
    return time.perf_counter() - started


def same(directory: Path, number: int) -> str:
    """How many rows of all sides are equal; the script ends if one differs."""
    ours, jobs, theirs = (
        pl.read_parquet(directory / f"{side}{number}.parquet")
        .select(pl.col("k", "n").cast(pl.Int64), "total", pl.col("ts").dt.epoch("us"))
        .sort("ts", "k")
        for side in ("stays", "job", "structured")
    )
    theirs = theirs.with_columns(pl.col("ts") + 1)  # Spark gives a window the last microsecond before its end
    if not (ours.equals(theirs) and ours.equals(jobs)):
        raise SystemExit(f"the results differ: {len(ours):,} rows of Penstock, {len(theirs):,} of Structured Streaming")
    return f"{len(ours):,} equal"


WAYS = {"stays": "Penstock, a task that stays", "job": "Penstock, a Spark job each"}
CONF: dict[str, dict[str, str]] = {"stays": {}, "job": {RESIDENT: "false"}, "cluster": {}}


def main() -> None:
    given = parsed(options(__doc__, 150_000, 12_000))
    count = given.rows // _ROWS
    skip = count // 3
    measured = f"numbers {skip + 1} to {count}"
    out = Table(
        f"Epochs of 1,000 rows, 1,000 keys: {measured}; ratios to Structured Streaming",
        *("keyed steps", "side", "median", "p90", "first", "ratio", "rows", "foreign"),
    )
    steps = Table(
        "Penstock's epoch by numbered step, medians in milliseconds (run.* are parts of run)", "keyed steps", "side", "milliseconds"
    )
    seen = Table(
        "From a producer into the view, `run` mode, 1,000 rows at a time, durable", "side", "p50", "p90", "p99", "ratio", "foreign"
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory, wish = Path(name), {"epochs": count, "sends": count, "skip": skip}
        ours = {way: apart(__file__, "penstock", directory, wish | {"name": way, "conf": CONF[way]}) for way in WAYS}
        live = {way: apart(__file__, "latency", directory, wish | {"name": way, "conf": CONF[way]}) for way in CONF}
        for way in WAYS:
            shutil.rmtree(directory / f"home-{way}")
        after = apart(__file__, "killed", directory, {"kills": 2 if given.quick else 10})
        theirs = apart(__file__, "structured", directory, wish)
        equal = [same(directory, number) for number in range(2)]
    for index, number in enumerate((1, 3)):
        them = theirs[index]
        for way, title in WAYS.items():
            us = ours[way][index]
            ratio = f"**{median(them['seconds']) / median(us['seconds']):.1f}×**"
            out.add(number, title, *_times(us), ratio, equal[index], percent(us["foreign"]))
            parts = " · ".join(f"{part} {seconds * 1e3:.1f}" for part, seconds in us["steps"].items())
            steps.add(number, title, parts)
        out.add(number, "Structured Streaming", *_times(them), "", "", percent(them["foreign"]))
    for way, facts in live.items():
        title = WAYS.get(way, "a task that stays, on a cluster of two workers")
        ratio = f"{median(facts['seconds']) / median(live['stays']['seconds']):.1f}"
        quantiles = (milliseconds(percentile(facts["seconds"], share)) for share in (0.5, 0.9, 0.99))
        seen.add(title, *quantiles, ratio, percent(facts["foreign"]))
    lost = Table(
        "The process of a task that stays is killed between two epochs", "next epoch", "worst", "the 19 behind it", "foreign"
    )
    times = (median(after["seconds"]), max(after["seconds"]), median(after["later"]))
    lost.add(*map(milliseconds, times), percent(after["foreign"]))
    publish("epochs", [out, steps, seen, lost], given.markdown)


def _times(facts: dict[str, Any]) -> tuple[str, str, str]:
    median_of, p90 = median(facts["seconds"]), percentile(facts["seconds"], 0.9)
    return milliseconds(median_of), milliseconds(p90), milliseconds(facts["first"])


if __name__ == "__main__":
    run_side({"penstock": penstock, "structured": structured, "latency": latency, "killed": killed}) if is_side() else main()
