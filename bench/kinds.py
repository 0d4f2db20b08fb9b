"""Windows of other kinds, running aggregates, and corrections, against Spark's own operator where it has one."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from events import LATENESS, PARTITIONS, START, ddl, events, files, fill
from flows import Bench
from measuring import Peak, median
from report import Table, gibibytes, options, parsed, percent, publish, rate
from sides import apart, is_side, run_side
from streaming import Streaming

from penstock import Flow, Hopping, Session, Sliding, Tumbling, agg
from penstock.flow.stream import Stream

_KEYS = 1_000
_WARM = 20
_WINDOW = ["k", "window_start", "window_end", "n", "total"]
_BOTH = {"n": agg.count(), "total": agg.sum("v")}

KINDS: dict[str, tuple[str, Callable[[Stream], Stream]]] = {
    "hopping": ("hopping, 1 minute every 10 s", lambda s: s.window(Hopping("1 minute", every="10 seconds"), by="k").agg(**_BOTH)),
    "session": ("session, 5 s idle", lambda s: s.window(Session("5 seconds"), by="k").agg(**_BOTH)),
    "running": ("running, no window", lambda s: s.group_by("k").agg(**_BOTH)),
    "sliding": ("sliding, 10 s per event, to a topic", lambda s: s.window(Sliding("10 seconds"), by="k").agg(**_BOTH)),
}
_TOPIC = ("sliding",)  # as many rows as events: they go to a topic, not into a view
_SPARK = ("hopping", "session", "running")  # what Structured Streaming has too

_MINUTE = Tumbling("1 minute")
LATE: dict[str, Callable[[Stream], Stream]] = {
    "ignore": lambda s: s.window(_MINUTE, by="k", late="ignore").agg(**_BOTH),
    "correct": lambda s: s.window(_MINUTE, by="k", late="correct", allowed="1 hour").agg(**_BOTH),
}


def with_late_rows(table: pa.Table, share: float = 0.01) -> pa.Table:
    """Every so often a row whose minute is over."""
    times = table["ts"].cast(pa.int64()).to_numpy().copy()
    late = np.arange(len(times)) % round(1 / share) == 0
    times[late] = np.maximum(times[late] - 120_000_000, START)
    return table.set_column(table.column_names.index("ts"), "ts", pa.array(times).cast(table.schema.field("ts").type))


def penstock(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    bench = Bench(directory / "home")
    table = events(wish["rows"], _KEYS)
    if wish["kind"] in LATE:
        table = with_late_rows(table)
    fill(bench.runtime.log, "events", table)
    make = LATE.get(wish["kind"]) or KINDS[wish["kind"]][1]
    number = 0

    def define(flow: Flow) -> None:
        made = make(flow.stream("events", ddl(table), time="ts", lateness=LATENESS))
        made.to(f"out{number}", partitions=PARTITIONS) if wish["kind"] in _TOPIC else made.view(f"out{number}")

    with Peak() as peak:
        bench.run(define, max(1_000, wish["rows"] // _WARM), wish["warm"])
        results = []
        for epoch in wish["epochs"]:
            runs = []
            for _ in range(wish["repeat"]):
                number += 1
                runs.append(bench.run(define, epoch))
            facts = {name: median(getattr(r, name) for r in runs) for name in ("rate", "cpu", "foreign", "seconds")}
            results.append(facts | {"epochs": len(runs[-1].reports)})
    if wish["kind"] not in _TOPIC:
        view = pl.DataFrame(bench.view(f"out{number}"))
        view.select([c for c in _WINDOW if c in view.columns]).write_parquet(directory / "penstock.parquet")
    return {"runs": results, "peak": peak.bytes}


def structured(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    from pyspark.sql import functions as F

    table, kind, results = events(wish["rows"], _KEYS), wish["kind"], []

    def query(at: Streaming, path: Path) -> Any:
        rows = at.source(path, 2, "ts")
        window = {"hopping": [F.window("ts", "1 minute", "10 seconds")], "session": [F.session_window("ts", "5 seconds")]}.get(
            kind, []
        )
        counted = rows.groupBy(*[w.alias("w") for w in window], "k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        if not window:
            return counted
        return counted.select("k", F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end"), "n", "total")

    with Peak() as peak:
        side = Streaming(directory)
        for epoch in wish["epochs"]:
            path = files(directory / f"files{epoch}", table, -(-min(epoch, table.num_rows) // 2))
            updates = kind == "running"
            side.run(lambda at, path=path: query(at, path), updates=updates)
            ran = side.run(lambda at, path=path: query(at, path), updates=updates)
            results.append(ran.facts())
    side.keep(ran, directory / "structured.parquet")
    return {"runs": results, "peak": peak.bytes}


def same(directory: Path) -> str:
    ours, theirs = (pl.read_parquet(directory / f"{side}.parquet") for side in ("penstock", "structured"))
    if "window_start" not in ours.columns:  # Spark sends every change of a running count: the last one counts
        theirs = theirs.group_by("k").agg(pl.all().sort_by("n").last())
    a, b = (_comparable(rows) for rows in (ours, theirs))
    if not len(a) or not a.equals(b):
        raise SystemExit(f"the results differ: {len(a):,} rows of Penstock, {len(b):,} of Structured Streaming")
    return f"{len(a):,} equal"


def _comparable(rows: pl.DataFrame) -> pl.DataFrame:
    times = [pl.col(n).dt.epoch("us") for n in ("window_start", "window_end") if n in rows.columns]
    keys = [n for n in ("window_start", "k") if n in rows.columns]
    return rows.select(pl.col("k").cast(pl.Int64), *times, pl.col("n").cast(pl.Int64), "total").sort(keys)


def compare(kind: str, given: Any, out: Table) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        epochs = [given.rows * 2, given.rows // 10]
        wish = {"rows": given.rows, "kind": kind, "epochs": epochs, "repeat": given.repeat, "warm": 2 if given.quick else _WARM}
        ours = apart(__file__, "penstock", directory, wish)
        shutil.rmtree(directory / "home")
        theirs = apart(__file__, "structured", directory, wish) if kind in _SPARK else None
        equal = same(directory) if theirs else "not offered"
        for number, us in enumerate(ours["runs"]):
            them = theirs["runs"][number] if theirs else None
            out.add(
                KINDS[kind][0],
                f"{given.rows / 1e6:g} M in {us['epochs']}",
                rate(us["rate"]),
                rate(them["rate"]) if them else "",
                f"**{us['rate'] / them['rate']:.1f}×**" if them else "",
                f"{us['cpu']:.1f}" + (f" / {them['cpu']:.1f} s" if them else " s"),
                gibibytes(ours["peak"]),
                equal,
                percent(us["foreign"]) + (f" / {percent(them['foreign'])}" if them else ""),
            )


def corrected(given: Any, out: Table) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        epochs = [given.rows * 2, given.rows // 10]
        runs = {}
        for kind in LATE:
            wish = {"rows": given.rows, "kind": kind, "epochs": epochs, "repeat": given.repeat, "warm": 2 if given.quick else _WARM}
            (directory := Path(name) / kind).mkdir()
            runs[kind] = apart(__file__, "penstock", directory, wish)["runs"]
        for ignore, correct in zip(runs["ignore"], runs["correct"], strict=True):
            shape = f"{given.rows / 1e6:g} M in {ignore['epochs']}"
            times = f"**{correct['seconds'] / ignore['seconds']:.2f}×**"
            out.add(
                shape,
                rate(ignore["rate"]),
                rate(correct["rate"]),
                times,
                f"{percent(ignore['foreign'])} / {percent(correct['foreign'])}",
            )


def main() -> None:
    parser = options(__doc__, 1_000_000, 100_000)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    given = parsed(parser)
    columns = [
        "what",
        "events in epochs",
        "Penstock, events/s",
        "Structured Streaming",
        "ratio",
        "CPU",
        "peak memory",
        "rows",
        "foreign",
    ]
    out = Table("Count + sum, 1,000 keys. Two values: Penstock / Structured Streaming", *columns)
    for kind in given.kinds:
        compare(kind, given, out)
    late = Table("One row in a hundred is late", "events in epochs", "ignored, events/s", "corrected, events/s", "time", "foreign")
    corrected(given, late)
    publish("kinds", [out, late], given.markdown)


if __name__ == "__main__":
    run_side({"penstock": penstock, "structured": structured}) if is_side() else main()
