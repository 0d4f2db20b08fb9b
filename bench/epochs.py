"""Small epochs of 1,000 rows: one and three keyed steps, against Structured Streaming; and from a producer into the view."""

import random
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl
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
from penstock.log.port import TopicSpec

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
    bench = Bench(directory / "home")
    table = events(wish["epochs"] * _ROWS, _KEYS)
    fill(bench.runtime.log, "events", table, frame=_ROWS // 4)
    results = []
    for number, define in enumerate((one_step, three_steps)):
        ran = bench.run(lambda flow, number=number, define=define: define(flow, ddl(table), f"out{number}"), _ROWS, wish["epochs"])
        warm = ran.reports[wish["skip"] :]
        steps = {name: median(r.steps.get(name, 0.0) for r in warm) for name in warm[-1].steps}
        _kept(bench.view(f"out{number}"), directory / f"penstock{number}.parquet")
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
    """A flow in `run` mode and a producer beside it: from before the durable append until the view holds what the rows led to."""
    bench = Bench(directory / "live")
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
    """How many rows of both sides are equal; the script ends if one differs."""
    ours, theirs = (
        pl.read_parquet(directory / f"{side}{number}.parquet")
        .select(pl.col("k", "n").cast(pl.Int64), "total", pl.col("ts").dt.epoch("us"))
        .sort("ts", "k")
        for side in ("penstock", "structured")
    )
    theirs = theirs.with_columns(pl.col("ts") + 1)  # Spark gives a window the last microsecond before its end
    if not ours.equals(theirs):
        raise SystemExit(f"the results differ: {len(ours):,} rows of Penstock, {len(theirs):,} of Structured Streaming")
    return f"{len(ours):,} equal"


def main() -> None:
    given = parsed(options(__doc__, 150_000, 12_000))
    count = given.rows // _ROWS
    skip = count // 3
    measured = f"numbers {skip + 1} to {count}"
    out = Table(
        f"Epochs of 1,000 rows, 1,000 keys: {measured}", "keyed steps", "side", "median", "p90", "first", "ratio", "rows", "foreign"
    )
    steps = Table(
        "Penstock's epoch by numbered step, medians in milliseconds (run.* are parts of run)", "keyed steps", "milliseconds"
    )
    seen = Table("From a producer into the view, `run` mode, 1,000 rows at a time, durable", "p50", "p90", "foreign")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        ours = apart(__file__, "penstock", directory, {"epochs": count, "skip": skip})
        live = apart(__file__, "latency", directory, {"sends": count, "skip": skip})
        shutil.rmtree(directory / "home")
        theirs = apart(__file__, "structured", directory, {"epochs": count, "skip": skip})
        equal = [same(directory, number) for number in range(2)]
    for number, us, them, rows in zip((1, 3), ours, theirs, equal, strict=True):
        ratio = f"**{median(them['seconds']) / median(us['seconds']):.1f}×**"
        for side, facts, *said in (("Penstock", us, ratio, rows), ("Structured Streaming", them, "", "")):
            times = milliseconds(median(facts["seconds"])), milliseconds(percentile(facts["seconds"], 0.9))
            out.add(number, side, *times, milliseconds(facts["first"]), *said, percent(facts["foreign"]))
        steps.add(number, " · ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in us["steps"].items()))
    seen.add(milliseconds(median(live["seconds"])), milliseconds(percentile(live["seconds"], 0.9)), percent(live["foreign"]))
    publish("epochs", [out, steps, seen], given.markdown)


if __name__ == "__main__":
    run_side({"penstock": penstock, "structured": structured, "latency": latency}) if is_side() else main()
