"""Tumbling count and sum per key, from the log with state and view, against Structured Streaming over the same rows."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
from events import LATENESS, ddl, events, files, fill
from flows import Bench
from measuring import Peak, median
from report import Table, gibibytes, options, parsed, percent, publish, rate
from sides import apart, is_side, run_side
from streaming import Streaming

from penstock import Flow, Tumbling, agg

_WARM = 60  # epochs before anything is measured: until then it is mostly the JVM's compiler that is measured
_NAMES = ["k", "window_start", "window_end", "n", "total"]


def penstock(directory: Path, wish: dict[str, Any]) -> list[dict[str, Any]]:
    bench = Bench(directory / "home")
    table = events(wish["rows"], wish["keys"])
    fill(bench.runtime.log, "events", table)
    number, results = 0, []

    def define(flow: Flow) -> None:
        stream = flow.stream("events", ddl(table), time="ts", lateness=LATENESS)
        stream.window(Tumbling("1 minute"), by="k").agg(n=agg.count(), total=agg.sum("v")).view(f"out{number}")

    with Peak() as peak:
        cold = bench.run(define, wish["epochs"][0])
        number += 1
        bench.run(define, max(1_000, wish["rows"] // _WARM), wish["warm"])
        for epoch in wish["epochs"]:
            runs = []
            for _ in range(wish["repeat"]):
                number += 1
                runs.append(bench.run(define, epoch))
            pl.DataFrame(bench.view(f"out{number}")).select(_NAMES).write_parquet(directory / f"penstock{epoch}.parquet")
            steps = {
                name: median(sum(r.steps.get(name, 0.0) for r in ran.reports) for ran in runs) for name in runs[0].reports[0].steps
            }
            results.append(
                {
                    "rate": median(r.rate for r in runs),
                    "cpu": median(r.cpu for r in runs),
                    "foreign": median(r.foreign for r in runs),
                    "epochs": len(runs[-1].reports),
                    "steps": steps,
                }
            )
    return [r | {"cold": cold.rate, "peak": peak.bytes} for r in results]


def structured(directory: Path, wish: dict[str, Any]) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    table = events(wish["rows"], wish["keys"])
    results, cold = [], None
    with Peak() as peak:
        side = Streaming(directory)
        for epoch in wish["epochs"]:
            path = files(directory / f"files{epoch}", table, -(-min(epoch, table.num_rows) // 2))

            def query(at: Streaming, path: Path = path) -> Any:
                grouped = at.source(path, 2, "ts").groupBy(F.window("ts", "1 minute"), "k")
                counted = grouped.agg(F.count("*").alias("n"), F.sum("v").alias("total"))
                return counted.select(
                    "k", F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "n", "total"
                )

            first = side.run(query)
            cold = cold or first.rate
            runs = [side.run(query) for _ in range(wish["repeat"])]
            side.keep(runs[-1], directory / f"structured{epoch}.parquet")
            results.append(
                {
                    "rate": median(r.rate for r in runs),
                    "cpu": median(r.cpu for r in runs),
                    "foreign": median(r.foreign for r in runs),
                }
            )
    return [r | {"cold": cold, "peak": peak.bytes} for r in results]


def same(directory: Path, epoch: int) -> str:
    """How many rows of both sides are equal, column by column; the script ends if one differs."""
    sides = [pl.read_parquet(directory / f"{side}{epoch}.parquet") for side in ("penstock", "structured")]
    ours, theirs = (_comparable(s) for s in sides)
    if not len(ours) or not ours.equals(theirs):
        raise SystemExit(f"the results differ: {len(ours):,} rows of Penstock, {len(theirs):,} of Structured Streaming")
    return f"{len(ours):,} equal"


def _comparable(rows: pl.DataFrame) -> pl.DataFrame:
    times = [pl.col(name).dt.epoch("us") for name in ("window_start", "window_end")]
    return rows.select(pl.col("k").cast(pl.Int64), *times, pl.col("n").cast(pl.Int64), "total").sort("window_start", "k")


def compare(keys: int, rows: int, epochs: list[int], given: Any, out: Table, steps: Table) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        wish = {"rows": rows, "keys": keys, "epochs": epochs, "repeat": given.repeat, "warm": 2 if given.quick else _WARM}
        ours = apart(__file__, "penstock", directory, wish)
        shutil.rmtree(directory / "home")
        theirs = apart(__file__, "structured", directory, wish)
        for epoch, us, them in zip(epochs, ours, theirs, strict=True):
            shape = (f"{keys:,}", f"{rows / 1e6:g} M in {us['epochs']}")
            out.add(
                *shape,
                rate(us["rate"]),
                rate(them["rate"]),
                f"**{us['rate'] / them['rate']:.1f}×**",
                f"{rate(us['cold'])} / {rate(them['cold'])}",
                f"{us['cpu']:.1f} / {them['cpu']:.1f} s",
                f"{gibibytes(us['peak'])} / {gibibytes(them['peak'])}",
                same(directory, epoch),
                f"{percent(us['foreign'])} / {percent(them['foreign'])}",
            )
            parts = " · ".join(f"{name} {seconds:.2f}" for name, seconds in us["steps"].items())
            steps.add(*shape, parts)


def main() -> None:
    parser = options(__doc__, 2_000_000, 200_000)
    parser.add_argument("--keys", type=int, nargs="+", default=[10, 1_000, 100_000])
    parser.add_argument("--large", action="store_true", help="also 1,000 keys in 20 epochs of a million rows each")
    given = parsed(parser)
    columns = [
        "keys",
        "events in epochs",
        "Penstock, events/s",
        "Structured Streaming",
        "ratio",
        "cold",
        "CPU",
        "peak memory",
        "rows",
        "foreign",
    ]
    out = Table("Tumbling count + sum, one minute. Two values: Penstock / Structured Streaming", *columns)
    steps = Table(
        "Seconds of all epochs by numbered step (run.* are parts of run, summed over tasks)", "keys", "events in epochs", "seconds"
    )
    for keys in given.keys:
        compare(keys, given.rows, [given.rows * 2, given.rows // 20], given, out, steps)
    if given.large:
        compare(1_000, given.rows * 10, [given.rows // 2], given, out, steps)
    publish("windows", [out, steps], given.markdown)


if __name__ == "__main__":
    run_side({"penstock": penstock, "structured": structured}) if is_side() else main()
