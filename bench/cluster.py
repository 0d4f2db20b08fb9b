"""Windows on a standalone cluster of two workers with a core each, against local[2] on the same machine: what leaving it costs."""

import tempfile
from pathlib import Path
from typing import Any

import polars as pl
from events import LATENESS, ddl, events, fill
from flows import Bench
from measuring import median
from report import Table, milliseconds, options, parsed, percent, publish, rate
from sides import apart, is_side, run_side

from penstock import Flow, Tumbling, agg
from penstock.engine.run.runtime import ONE_TASK_ROWS
from penstock.testing.servers.spark_cluster import SparkCluster

_KEYS = 1_000
_SMALL = 1_000  # rows of a small epoch
_NAMES = ["k", "window_start", "window_end", "n", "total"]


class Side:
    """A home with two topics, one in large frames and one in small, and flows over them."""

    def __init__(self, bench: Bench, wish: dict[str, Any]) -> None:
        self.bench, self.wish, self.number = bench, wish, 0
        self.table = events(wish["rows"], _KEYS)
        fill(bench.runtime.log, "events", self.table)
        fill(bench.runtime.log, "few", events(wish["small"] * _SMALL, _KEYS), frame=_SMALL // 4)

    def run(self, topic: str, epoch: int, most: int | None = None) -> Any:
        self.number += 1

        def define(flow: Flow) -> None:
            stream = flow.stream(topic, ddl(self.table), time="ts", lateness=LATENESS)
            stream.window(Tumbling("1 minute"), by="k").agg(n=agg.count(), total=agg.sum("v")).view(f"out{self.number}")

        return self.bench.run(define, epoch, most)

    def rates(self) -> list[dict[str, Any]]:
        """One epoch of everything, and twenty."""
        rows, out = self.wish["rows"], []
        self.run("events", max(1_000, rows // 60), self.wish["warm"])
        for epoch in (rows * 2, rows // 20):
            runs = [self.run("events", epoch) for _ in range(self.wish["repeat"])]
            seconds = {name: median(getattr(r, name) for r in runs) for name in ("rate", "cpu", "foreign")}
            out.append(seconds | {"epochs": len(runs[-1].reports)})
        return out

    def small(self) -> dict[str, Any]:
        ran = self.run("few", _SMALL)
        cpu = ran.cpu / len(ran.reports)
        return {"seconds": median(r.seconds for r in ran.reports[self.wish["small"] // 2 :]), "cpu": cpu, "foreign": ran.foreign}

    def crossing(self) -> list[list[float]]:
        """Epochs of so many rows: as one task, and across tasks; seconds."""
        out = []
        for epoch in self.wish["sizes"]:
            pair = []
            for limit in (10**9, 0):
                self.bench.conf[ONE_TASK_ROWS] = str(limit)
                ran = self.run("events", epoch, 3 + self.wish["repeat"] * 2)
                pair.append(median(r.seconds for r in ran.reports[min(3, len(ran.reports) - 1) :]))
            out.append([epoch, *pair])
        self.bench.conf.pop(ONE_TASK_ROWS)
        return out

    def told(self, directory: Path, name: str) -> dict[str, Any]:
        found = {"rates": self.rates(), "small": self.small(), "crossing": self.crossing()}
        self.run("events", self.wish["rows"] * 2)
        pl.DataFrame(self.bench.view(f"out{self.number}")).select(_NAMES).sort(_NAMES).write_parquet(directory / f"{name}.parquet")
        return found


def local(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    return Side(Bench(directory / "local"), wish).told(directory, "local")


def _cluster(directory: Path, wish: dict[str, Any], name: str, protected: bool) -> dict[str, Any]:
    (directory / name).mkdir()
    with SparkCluster(directory / name, memory="2g", protected=protected) as cluster:
        secret = {k: v for k, v in cluster.settings().items() if "secret" in k}
        conf = {"spark.executor.memory": "1g", "spark.executor.cores": "1", "spark.authenticate": str(protected).lower(), **secret}
        found = Side(Bench(directory / f"home-{name}", None, cluster.url, conf), wish).told(directory, name)
        from pyspark import SparkContext

        SparkContext.getOrCreate().stop()
        return found


def cluster(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    return _cluster(directory, wish, "cluster", True)


def unprotected(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    return _cluster(directory, wish, "unprotected", False)


def same(directory: Path) -> str:
    """How many rows of the results are equal; the script ends if one differs."""
    first, *others = (pl.read_parquet(directory / f"{name}.parquet") for name in ("local", "cluster", "unprotected"))
    if not len(first) or not all(first.equals(other) for other in others):
        raise SystemExit("the results differ between one machine and the cluster")
    return f"{len(first):,} equal"


def _all(*sides: dict[str, float]) -> tuple[str, str]:
    """The share that others used of the machine, and our own processor seconds, of each side."""
    return " / ".join(percent(s["foreign"]) for s in sides), " / ".join(f"{s['cpu']:.2f}" for s in sides) + " s"


def main() -> None:
    given = parsed(options(__doc__, 4_000_000, 100_000))
    small = 20 if given.quick else 120
    sizes = [50_000] if given.quick else [50_000, 100_000, 200_000, 500_000, 1_000_000]
    wish = {"rows": given.rows, "repeat": given.repeat, "warm": 2 if given.quick else 60, "small": small, "sizes": sizes}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        here, there, bare = (apart(__file__, side, directory, wish) for side in ("local", "cluster", "unprotected"))
        equal = same(directory)
    columns = ["what", "local[2]", "cluster", "cluster / local", "cluster without encryption", "CPU", "rows", "foreign"]
    title = "Tumbling count + sum, 1,000 keys. Three values: local[2] / two workers with a core each / the same without encryption"
    out = Table(title, *columns)
    for h, t, b in zip(here["rates"], there["rates"], bare["rates"], strict=True):
        shares, cpu = _all(h, t, b)
        cells = (rate(h["rate"]), rate(t["rate"]), f"**{t['rate'] / h['rate']:.2f}×**", rate(b["rate"]))
        what = f"{given.rows / 1e6:g} M events in {h['epochs']}, events/s"
        out.add(what, *cells, cpu, equal, shares)
    h, t, b = (side["small"] for side in (here, there, bare))
    times = [milliseconds(x["seconds"]) for x in (h, t, b)]
    shares, cpu = _all(h, t, b)
    out.add("an epoch of 1,000 events", *times[:2], f"**{t['seconds'] / h['seconds']:.2f}×**", times[2], cpu, "", shares)
    cross = Table("An epoch as one task / across two tasks with a shuffle", "events", "local[2]", "cluster")
    for h, t in zip(here["crossing"], there["crossing"], strict=True):
        cross.add(f"{int(h[0]):,}", *(f"{milliseconds(x[1])} / {milliseconds(x[2])}" for x in (h, t)))
    publish("cluster", [out, cross], given.markdown)


if __name__ == "__main__":
    run_side({"local": local, "cluster": cluster, "unprotected": unprotected}) if is_side() else main()
