"""Epochs of 1,000 rows while the state is a hundred times larger: open keys of a window, waiting rows of a join."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from events import START, append, ddl, fill
from flows import Bench
from measuring import Meter, median, percentile
from report import Table, milliseconds, options, parsed, percent, publish
from sides import apart, is_side, run_side

from penstock import Flow, Tumbling, agg
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest

_ROWS = 1_000
_TIME = pa.timestamp("us", tz="UTC")


def rows(keys: np.ndarray, first: int) -> pa.Table:
    """One row a key, a tenth of a millisecond apart: all within one day."""
    times = START + (first + np.arange(len(keys))) * 100
    return pa.table({"k": keys, "at": pa.array(times, _TIME), "v": np.ones(len(keys))})


def window(flow: Flow, size: int, schema: str) -> None:
    stream = flow.stream(f"window{size}", schema, time="at", lateness="1 minute")
    stream.window(Tumbling("1 day"), by="k").agg(n=agg.count(), total=agg.sum("v")).view(f"open{size}")


def join(flow: Flow, size: int, schema: str) -> None:
    left = flow.stream(f"left{size}", schema, time="at", lateness="1 minute")
    right = flow.stream(f"right{size}", schema, time="at", lateness="1 minute")
    left.join(right, on="k", within="6 hours").to(f"pairs{size}")


def penstock(directory: Path, wish: dict[str, Any]) -> list[dict[str, Any]]:
    bench, results = Bench(directory / "home"), []
    rng = np.random.default_rng(1)
    log = bench.runtime.log
    for size in [wish["warm"], *wish["sizes"]]:
        held, later = np.arange(size), rng.integers(0, size, wish["epochs"] * _ROWS)
        base, more = rows(held, 0), rows(later, size)
        topic = fill(log, f"window{size}", base, time="at")
        append(topic, more, _ROWS // 4)
        fill(log, f"left{size}", base, time="at")
        fill(log, f"right{size}", more, frame=_ROWS // 4, time="at")
        for what, define in (("window", window), ("join", join)):
            facts = _run(bench, partial(define, size=size, schema=ddl(base)), size, wish)
            results.append({"what": what, "size": size} | facts)
    return results[2:]  # the first two only warmed the JVM


def _run(bench: Bench, define: Callable[[Flow], None], size: int, wish: dict[str, Any]) -> dict[str, Any]:
    driver = bench.started(define)
    reports = []
    _take_in(driver, size)
    with Meter() as meter:
        while len(reports) < wish["epochs"] - 5 and (report := driver.epoch(EpochRequest(rows=_ROWS))):
            reports.append(report)
    driver.stop()
    warm = reports[wish["skip"] :]
    steps = {name: median(r.steps.get(name, 0.0) for r in warm) for name in warm[-1].steps}
    return {"seconds": [r.seconds for r in warm], "foreign": meter.foreign, "steps": steps, "cpu": meter.cpu / len(reports)}


def _take_in(driver: Driver, size: int) -> None:
    """Reads the rows that make the state large, in epochs of a middling size."""
    read = 0
    while read < size and (report := driver.epoch(EpochRequest(rows=min(size - read, 250_000)))):
        read += report.rows


def main() -> None:
    parser = options(__doc__, 10_000, 1_000)
    given = parsed(parser)
    sizes = [given.rows, given.rows * 100]
    epochs = 20 if given.quick else 160
    out = Table(
        "Epochs of 1,000 rows over small and large state", "state", "kept", "median", "p90", "CPU an epoch", "ratio", "foreign"
    )
    steps = Table("By numbered step, medians in milliseconds (run.* are parts of run)", "state", "kept", "milliseconds")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        results = apart(
            __file__, "penstock", Path(name), {"sizes": sizes, "epochs": epochs, "skip": epochs // 3, "warm": given.rows // 2}
        )
    small = {r["what"]: r for r in results if r["size"] == sizes[0]}
    for result in sorted(results, key=lambda r: (r["what"] != "window", r["size"])):
        before = small[result["what"]]
        ratio = "" if result is before else f"**{median(result['seconds']) / median(before['seconds']):.2f}×**"
        shape = "keys of a window" if result["what"] == "window" else "rows of a join", f"{result['size']:,}"
        times = milliseconds(median(result["seconds"])), milliseconds(percentile(result["seconds"], 0.9))
        out.add(*shape, *times, milliseconds(result["cpu"]), ratio, percent(result["foreign"]))
        steps.add(*shape, " · ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in result["steps"].items()))
    publish("state", [out, steps], given.markdown)


if __name__ == "__main__":
    run_side({"penstock": penstock}) if is_side() else main()
