"""Tables: rows looked up as of their time, joins of two tables, aggregates over a table; all results checked against Polars."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from events import LATENESS, PARTITIONS, START, append, ddl
from flows import Bench
from measuring import Meter, median
from report import Table, milliseconds, options, parsed, percent, publish, rate
from sides import apart, is_side, run_side

from penstock import Flow, Schema, TopicSpec, agg
from penstock.core.change import Op
from penstock.core.columns import OP
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.epoch.report import Report
from penstock.flow.stream import Stream
from penstock.log.port import Topic

_FRAME = 10_000
_WARM = 3  # epochs of changes before those that count
_TIME = pa.timestamp("us", tz="UTC")


class Tables:
    """Topics that a flow reads, filled while it runs; every epoch takes what was added since the one before."""

    def __init__(self, directory: Path) -> None:
        self.bench = Bench(directory / "home")

    def topic(self, name: str, rows: pa.Table, time: str | None = None, key: str | None = None) -> Topic:
        spec = TopicSpec(name, PARTITIONS, Schema(rows.schema), time=time, key=key, durability="os")
        topic = self.bench.runtime.log.create(spec)
        add(topic, rows, key)
        return topic

    def loaded(self, define: Callable[[Flow], None]) -> Driver:
        """The flow with everything read that is there."""
        driver = self.bench.started(define)
        while driver.epoch(EpochRequest(rows=500_000)):
            pass
        return driver

    def written(self, name: str, key: str) -> pl.DataFrame:
        """What a topic holds, folded by key."""
        topic = self.bench.runtime.log.topic(name)
        chunks = [chunk.rows for p in topic.ends() for chunk in topic.read(p)]
        frames = [pl.DataFrame(pl.from_arrow(pa.Table.from_batches([chunk]))) for chunk in chunks]
        whole = pl.concat(frames, how="diagonal")
        newest = whole.group_by(key, maintain_order=True).last()
        return newest.filter(pl.col(OP).fill_null(0) != int(Op.DELETE)) if OP in newest.columns else newest


def add(topic: Topic, rows: pa.Table, key: str | None) -> None:
    """Rows of a key always in the same partition, so that their order holds."""
    if key is None:
        append(topic, rows, _FRAME)
        return
    home = rows[key].to_numpy() % PARTITIONS
    for partition in range(PARTITIONS):
        mine = rows.filter(pa.array(home == partition)).combine_chunks()
        for batch in mine.to_batches(max_chunksize=_FRAME):
            topic.append(partition, batch)


def timed(driver: Driver, changes: Callable[[int], None], epochs: int, rows: int) -> dict[str, Any]:
    """Epochs of so many changes each: what each took, without the writing of its input."""
    seconds, foreign, reports = [], [], list[Report]()
    for number in range(_WARM + epochs):
        changes(number)
        with Meter() as meter:
            while report := driver.epoch(EpochRequest(rows=rows)):
                reports.append(report)
            driver.deliverer.settle()
        if number >= _WARM:
            seconds.append(meter.seconds)
            foreign.append(meter.foreign)
    steps = reports[-1].steps
    return {"seconds": median(seconds), "foreign": median(foreign), "steps": {name: round(s, 4) for name, s in steps.items()}}


def looked_up(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    """A stream against a table with two versions of every key, into a topic."""
    tables, keys, rows, epochs = Tables(directory), wish["keys"], wish["rows"], wish["epochs"]
    rng = np.random.default_rng(1)
    number = np.arange(2 * keys)
    versions = pa.table(
        {"k": number % keys, "since": pa.array(START + number // keys * 3_600_000_000, _TIME), "x": number * 7 % 1_000_003}
    )
    count = rows * (_WARM + epochs)
    stream = pa.table(
        {
            "id": np.arange(count),
            "k": rng.integers(0, keys, count),
            "at": pa.array(START + np.sort(rng.integers(0, 7_200_000_000, count)), _TIME),
        }
    )
    tables.topic("versions", versions, "since", "k")
    events = tables.topic("events", stream.slice(0, 0), "at")

    def define(flow: Flow) -> None:
        table = flow.table("versions", ddl(versions), key="k", time="since")
        read = flow.stream("events", ddl(stream), time="at", lateness=LATENESS)
        read.enrich(table, on="k").to("answers", partitions=PARTITIONS)

    driver = tables.loaded(define)
    ran = timed(driver, lambda n: append(events, stream.slice(n * rows, rows), _FRAME), epochs, rows)
    driver.stop()
    found = tables.written("answers", "id").select("id", "x").sort("id")
    asked, known = pl.DataFrame(stream).sort("at"), pl.DataFrame(versions).sort("since")
    wanted = asked.join_asof(known, left_on="at", right_on="since", by="k").select("id", "x").sort("id")
    return ran | {"rows": rows, "equal": equal(found, wanted)}


def joined(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    """Orders and users by a foreign key, a tenth of the changes on the users' side, into a changelog."""
    tables, size, changes, epochs = Tables(directory), wish["keys"], wish["rows"], wish["epochs"]
    rng = np.random.default_rng(2)
    orders = pa.table({"o": np.arange(size), "u": rng.integers(0, size, size), "amount": rng.integers(0, 1_000, size)})
    users = pa.table({"u": np.arange(size), "name": rng.integers(0, 1_000, size)})
    left, right = tables.topic("orders", orders, None, "o"), tables.topic("users", users, None, "u")
    history = [(orders, users)]

    def define(flow: Flow) -> None:
        mine = flow.table("orders", ddl(orders), key="o")
        mine.join(flow.table("users", ddl(users), key="u"), on="u").to("joined", partitions=PARTITIONS)

    def change(number: int) -> None:
        some = pa.table({"o": rng.choice(size, changes * 9 // 10, False), "u": rng.integers(0, size, changes * 9 // 10)})
        new = some.append_column("amount", pa.array(rng.integers(0, 1_000, some.num_rows)))
        renamed = pa.table({"u": rng.choice(size, changes // 10, False), "name": rng.integers(0, 1_000, changes // 10)})
        add(left, new, "o")
        add(right, renamed, "u")
        history.append((new, renamed))

    driver = tables.loaded(define)
    ran = timed(driver, change, epochs, 2 * changes)
    driver.stop()
    mine, theirs = (current([h[side] for h in history], key) for side, key in ((0, "o"), (1, "u")))
    wanted = mine.join(theirs, on="u").select("o", "u", "amount", "name").sort("o")
    return ran | {
        "rows": changes,
        "equal": equal(tables.written("joined", "o").select("o", "u", "amount", "name").sort("o"), wanted),
    }


AGGREGATES: dict[str, Callable[[Stream], Stream]] = {
    "count, sum": lambda t: t.group_by("g").agg(n=agg.count(), total=agg.sum("v")),
    "count, sum, max": lambda t: t.group_by("g").agg(n=agg.count(), total=agg.sum("v"), most=agg.max("v")),
}


def grouped(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    """Aggregates over a table whose rows change their value and their group, into a changelog."""
    tables, size, changes, epochs, groups = Tables(directory), wish["keys"], wish["rows"], wish["epochs"], wish["groups"]
    rng = np.random.default_rng(3)

    def some(keys: Any) -> pa.Table:
        return pa.table({"k": keys, "g": rng.integers(0, groups, len(keys)), "v": rng.integers(0, 1_000, len(keys))})

    history = [some(np.arange(size))]
    topic = tables.topic("rows", history[0], None, "k")

    def define(flow: Flow) -> None:
        AGGREGATES[wish["aggregates"]](flow.table("rows", ddl(history[0]), key="k")).to("groups", partitions=PARTITIONS)

    def change(number: int) -> None:
        history.append(some(rng.choice(size, changes, False)))
        add(topic, history[-1], "k")

    driver = tables.loaded(define)
    ran = timed(driver, change, epochs, 2 * changes)
    driver.stop()
    wanted = current(history, "k").group_by("g").agg(n=pl.len(), total=pl.sum("v"), most=pl.max("v")).sort("g")
    names = [n for n in ("g", "n", "total", "most") if n in tables.written("groups", "g").columns]
    found = tables.written("groups", "g").select(pl.col(names).cast(pl.Int64)).sort("g")
    return ran | {"rows": changes, "equal": equal(found, wanted.select(pl.col(names).cast(pl.Int64)))}


def current(history: list[pa.Table], key: str) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(pl.from_arrow(t)) for t in history]).group_by(key, maintain_order=True).last()


def equal(found: pl.DataFrame, wanted: pl.DataFrame) -> str:
    """How many rows both have; the script ends if one differs."""
    if not len(found) or not found.equals(wanted):
        raise SystemExit(f"the results differ: {len(found):,} rows of Penstock, {len(wanted):,} of Polars")
    return f"{len(found):,} equal"


SIDES = {"looked_up": looked_up, "joined": joined, "grouped": grouped}
WORK: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("as-of enrich, into a topic", "looked_up", {}, 10),
    ("join of two tables, 10 % of changes on the right", "joined", {}, 100),
    ("count, sum over a table, 100 k groups", "grouped", {"aggregates": "count, sum", "groups": 100_000}, 100),
    ("count, sum, max over a table, 100 k groups", "grouped", {"aggregates": "count, sum, max", "groups": 100_000}, 100),
    ("count, sum over a table, 1,000 groups", "grouped", {"aggregates": "count, sum", "groups": 1_000}, 100),
)


def main() -> None:
    parser = options(__doc__, 1_000_000, 20_000)
    given = parsed(parser)
    out = Table(
        "Tables of so many rows a side", "what", "rows", "an epoch", "median epoch", "rows or changes/s", "result", "foreign"
    )
    steps = Table("Seconds of the last epoch by numbered step", "what", "rows", "seconds")
    epochs = 3 if given.quick else 10
    for what, side, more, part in WORK:
        for keys in (given.rows // 10, given.rows):
            for rows in {given.rows // part, given.rows // 10} if keys == given.rows else {given.rows // part}:
                with tempfile.TemporaryDirectory(prefix="bench-") as name:
                    ran = apart(__file__, side, Path(name), {"keys": keys, "rows": min(rows, keys), "epochs": epochs, **more})
                speed = ran["rows"] / ran["seconds"]
                out.add(
                    what,
                    f"{keys:,}",
                    f"{ran['rows']:,}",
                    milliseconds(ran["seconds"]),
                    rate(speed),
                    ran["equal"],
                    percent(ran["foreign"]),
                )
                steps.add(what, f"{keys:,}", " · ".join(f"{n} {s:.3f}" for n, s in ran["steps"].items()))
    publish("tables", [out, steps], given.markdown)


if __name__ == "__main__":
    run_side(SIDES) if is_side() else main()
