"""Interval join of two streams, pairs into a topic or counted per minute, against Spark's own join over the same rows."""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from events import LATENESS, PARTITIONS, ddl, events, files, fill
from flows import Bench
from measuring import Peak, median
from report import Table, gibibytes, options, parsed, percent, publish, rate
from sides import apart, is_side, run_side
from streaming import Streaming

from penstock import Flow, Tumbling, agg

_KEYS = 1_000
_APART = 2_000  # microseconds between two rows of one side: with a thousand keys, ten partners within ten seconds either way
_WARM = 60
_PAIR = ["k", "a", "b"]


def sides(rows: int) -> tuple[pa.Table, pa.Table]:
    """Left and right, half of the rows each."""
    left = events(rows // 2, _KEYS, apart=_APART, names=("a", "at", "k", "x"), seed=1)
    right = events(rows // 2, _KEYS, apart=_APART, names=("b", "bt", "k", "y"), seed=2)
    return left, right


def penstock(directory: Path, wish: dict[str, Any]) -> list[dict[str, Any]]:
    bench = Bench(directory / "home")
    left, right = sides(wish["rows"])
    fill(bench.runtime.log, "left", left, time="at")
    fill(bench.runtime.log, "right", right, time="bt")
    number, results = 0, []

    def define(flow: Flow) -> None:
        lefts = flow.stream("left", ddl(left), time="at", lateness=LATENESS)
        rights = flow.stream("right", ddl(right), time="bt", lateness=LATENESS)
        pairs = lefts.join(rights, on="k", within="10 seconds")
        if wish.get("counted"):
            pairs.window(Tumbling("1 minute"), by="k").agg(n=agg.count()).view(f"counts{number}")
        else:
            pairs.to(f"pairs{number}", partitions=PARTITIONS)

    with Peak() as peak:
        bench.run(define, max(1_000, wish["rows"] // _WARM), wish["warm"])
        for epoch in wish["epochs"]:
            runs = []
            for _ in range(wish["repeat"]):
                number += 1
                runs.append(bench.run(define, epoch))
            if wish.get("counted"):
                found = sum(bench.view(f"counts{number}")["n"].to_pylist())
            else:
                pairs = _pairs(bench, f"pairs{number}")
                pairs.write_parquet(directory / f"penstock{epoch}.parquet")
                found = len(pairs)
            reports = [r.reports for r in runs]
            steps = {name: median(sum(r.steps.get(name, 0.0) for r in rs) for rs in reports) for name in reports[0][0].steps}
            facts = {name: median(getattr(r, name) for r in runs) for name in ("rate", "cpu", "foreign")}
            results.append(facts | {"epochs": len(reports[0]), "steps": steps, "pairs": found})
    return [r | {"peak": peak.bytes} for r in results]


def _pairs(bench: Bench, name: str) -> pl.DataFrame:
    topic = bench.runtime.log.topic(name)
    chunks = [chunk.rows.select(_PAIR) for p in range(PARTITIONS) for chunk in topic.read(p)]
    return pl.DataFrame(pa.Table.from_batches(chunks))


def structured(directory: Path, wish: dict[str, Any]) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    results = []

    def joined(at: Streaming, paths: list[Path]) -> Any:
        left, right = at.source(paths[0], 1, "at"), at.source(paths[1], 1, "bt").withColumnRenamed("k", "rk")
        near = "k = rk and bt between at - interval 10 seconds and at + interval 10 seconds"
        return left.join(right, F.expr(near)).drop("rk")

    with Peak() as peak:
        side = Streaming(directory)
        few = [files(directory / f"warm{i}", t, max(1, wish["rows"] // 40)) for i, t in enumerate(sides(wish["rows"] // 10))]
        side.run(lambda at: joined(at, few))
        for epoch in wish["epochs"]:
            tables = sides(wish["rows"])
            paths = [files(directory / f"files{epoch}-{i}", t, max(1, min(epoch, wish["rows"]) // 2)) for i, t in enumerate(tables)]
            ran = side.run(lambda at, paths=paths: joined(at, paths))
            side.keep(ran, directory / f"structured{epoch}.parquet")
            results.append(ran.facts())
    return [r | {"peak": peak.bytes} for r in results]


def same(directory: Path, epoch: int) -> str:
    """How many pairs both sides have found; the script ends if one differs."""
    ours, theirs = (
        pl.read_parquet(directory / f"{side}{epoch}.parquet").select(pl.col(_PAIR).cast(pl.Int64)).sort("a", "b")
        for side in ("penstock", "structured")
    )
    if not len(ours) or not ours.equals(theirs):
        raise SystemExit(f"the results differ: {len(ours):,} pairs of Penstock, {len(theirs):,} of Structured Streaming")
    return f"{len(ours):,} equal"


def compare(rows: int, epochs: list[int], given: argparse.Namespace, out: Table) -> None:
    """Both sides over the same rows, which must give the same pairs."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        wish = {"rows": rows, "epochs": epochs, "repeat": given.repeat, "warm": 2 if given.quick else _WARM}
        ours = apart(__file__, "penstock", directory, wish)
        shutil.rmtree(directory / "home")
        theirs = apart(__file__, "structured", directory, wish)
        for epoch, us, them in zip(epochs, ours, theirs, strict=True):
            out.add(
                f"{rows / 1e6:g} M in {us['epochs']}",
                rate(us["rate"]),
                rate(them["rate"]),
                f"**{us['rate'] / them['rate']:.1f}×**",
                f"{us['cpu']:.1f} / {them['cpu']:.1f} s",
                f"{gibibytes(us['peak'])} / {gibibytes(them['peak'])}",
                same(directory, epoch),
                f"{percent(us['foreign'])} / {percent(them['foreign'])}",
            )


def alone(given: argparse.Namespace, out: Table, steps: Table, *, counted: bool) -> None:
    """Penstock over all rows: Structured Streaming would take many minutes for them. The pairs are written, or counted."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        epochs = [given.rows * 2, given.rows // 10]
        wish = {
            "rows": given.rows,
            "epochs": epochs,
            "repeat": given.repeat,
            "warm": 2 if given.quick else _WARM,
            "counted": counted,
        }
        for us in apart(__file__, "penstock", Path(name), wish):
            shape = f"{given.rows / 1e6:g} M in {us['epochs']}{', pairs counted' if counted else ''}"
            facts = f"{us['cpu']:.1f} s", gibibytes(us["peak"]), f"{us['pairs']:,}", percent(us["foreign"])
            out.add(shape, rate(us["rate"]), "", "", *facts)
            steps.add(shape, " · ".join(f"{name} {seconds:.2f}" for name, seconds in us["steps"].items()))


def main() -> None:
    given = parsed(options(__doc__, 1_000_000, 40_000))
    columns = ["events in epochs", "Penstock, events/s", "Structured Streaming", "ratio", "CPU", "peak memory", "pairs", "foreign"]
    out = Table("Interval join, 1,000 keys, ±10 s. Two values: Penstock / Structured Streaming", *columns)
    steps = Table(
        "Seconds of all epochs by numbered step (run.* are parts of run, summed over tasks)", "events in epochs", "seconds"
    )
    compare(given.rows // 5, [given.rows * 2, given.rows // 10], given, out)
    alone(given, out, steps, counted=False)
    alone(given, out, steps, counted=True)
    publish("joins", [out, steps], given.markdown)


if __name__ == "__main__":
    run_side({"penstock": penstock, "structured": structured}) if is_side() else main()
