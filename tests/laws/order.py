"""What is promised of the order of an output topic, for every kind of step in front of it."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.compute as pc

from laws.evaluated import InPython
from penstock import Calendar, Count, Flow, Hopping, Session, Sliding, Tumbling, agg
from penstock.core.columns import EVENT_TIME, OP, POSITION
from penstock.flow.stream import Stream
from penstock.plan import Plan
from penstock.testing.driver import FlowTest

COLUMNS = "k string, v long, p long, at timestamp"
START = datetime(2024, 1, 15, 10, tzinfo=UTC)
INPUT = "input"  # the rows of an input partition stand as they stand there
TIME = "time"  # by (time, position)
LAST = "last"  # of each key the last record is the same: the rows change
NONE = "none"  # whatever the cut makes it

Row = dict[str, Any]
Build = Callable[["Inputs"], Stream]


@dataclass
class Inputs:
    """The sources of a flow that is tried."""

    flow: Flow
    orderly: bool  # no row is late

    def stream(self, topic: str = "rows") -> Stream:
        return self.flow.stream(topic, COLUMNS, time="at", lateness="1 hour" if self.orderly else "5 seconds")

    def table(self) -> Stream:
        return self.flow.table("names", "k string, name string, at timestamp", key="k", time="at")


def doubled(rows: Any) -> Any:
    return rows.set_column(rows.column_names.index("v"), "v", pc.multiply(rows["v"], 2))


def windowed(stream: Stream, layout: Any, **more: Any) -> Stream:
    return stream.window(layout, by="k", **more).agg(n=agg.count(), total=agg.sum("v"), name="windows")


def joined(how: str, where: str | None = None) -> Build:
    return lambda given: given.stream().join(given.stream("more"), on="k", within="3 seconds", how=how, where=where)  # type: ignore[arg-type]


ODD = "pmod(v, 2) = 1"  # Spark SQL alone evaluates it
CONDITIONS = {ODD: lambda row: None if row["v"] is None else row["v"] % 2 == 1}


CASES: dict[str, tuple[str, Build]] = {
    "a stream as it is": (INPUT, lambda given: given.stream()),
    "where": (INPUT, lambda given: given.stream().where("v <> 3")),
    "select": (INPUT, lambda given: given.stream().select("k", "v", "p", "at", w="v is null")),
    "map_arrow": (INPUT, lambda given: given.stream().map_arrow(doubled, COLUMNS)),
    "lookup": (INPUT, lambda given: given.stream().lookup(lambda keys: [{"x": 1} for _ in keys], on="k", schema="x long")),
    "where behind a lookup": (
        INPUT,
        lambda given: (
            given.stream().lookup(lambda keys: [{"x": 1} for _ in keys], on="k", schema="x long", name="x").where("v <> 3")
        ),
    ),
    "union": (INPUT, lambda given: given.stream().union(given.stream("more"))),
    "late rows": (INPUT, lambda given: windowed(given.stream(), Tumbling("2 seconds")).late),
    "late rows of a join": (INPUT, lambda given: joined("inner")(given).late),
    "enrich": (INPUT, lambda given: given.stream().enrich(given.table(), on="k")),
    "enrich with what is left of a table": (
        INPUT,
        lambda given: given.stream().where("v <> 5").enrich(given.table().where("name <> 'b'"), on="k"),
    ),
    "enrich that waits": (TIME, lambda given: given.stream().enrich(given.table(), on="k", wait="2 seconds")),
    "tumbling": (TIME, lambda given: windowed(given.stream(), Tumbling("2 seconds"))),
    "hopping": (TIME, lambda given: windowed(given.stream(), Hopping("4 seconds", every="2 seconds"))),
    "calendar": (TIME, lambda given: windowed(given.stream(), Calendar("day"))),
    "session": (TIME, lambda given: windowed(given.stream(), Session(gap="2 seconds"))),
    "session with a longest": (TIME, lambda given: windowed(given.stream(), Session(gap="3 seconds", longest="4 seconds"))),
    "sliding": (TIME, lambda given: windowed(given.stream(), Sliding("3 seconds"))),
    "count": (TIME, lambda given: windowed(given.stream(), Count(2))),
    "alert": (TIME, lambda given: given.stream().alert(when="v > 3", by="k", name="alerts")),
    "where behind windows": (TIME, lambda given: windowed(given.stream(), Tumbling("2 seconds")).where("n < 3")),
    "join, anti": (TIME, joined("anti")),
    "join, inner": (NONE, joined("inner")),
    "join, left": (NONE, joined("left")),
    "join, semi": (NONE, joined("semi")),
    "join, inner, by Spark SQL": (NONE, joined("inner", ODD)),
    "join, left, by Spark SQL": (NONE, joined("left", ODD)),
    "join, anti, by Spark SQL": (TIME, joined("anti", ODD)),
    "windows that change": (LAST, lambda given: windowed(given.stream(), Tumbling("2 seconds"), emit="updates")),
    "running": (LAST, lambda given: given.stream().group_by("k").agg(total=agg.sum("v"))),
    "alerts over rows that change": (
        LAST,
        lambda given: (
            given.stream().group_by("k").agg(total=agg.sum("v"), name="sums").alert(when="total > 9", by="k", name="alerts")
        ),
    ),
    "latest": (LAST, lambda given: given.stream().latest(by="k")),
    "a table": (LAST, lambda given: given.table()),
    "aggregates over a table": (LAST, lambda given: given.table().group_by("name").agg(n=agg.count())),
    "the last rows": (LAST, lambda given: given.stream().last("3 seconds").group_by("k").agg(n=agg.count())),
    "tables joined": (LAST, lambda given: given.stream().latest(by="k", name="newest").join(given.table(), on="k")),
}
HELD = ("enrich that waits",)  # it judges nothing: a row behind its watermark comes when it comes


def built(name: str) -> Flow:
    flow = Flow("order")
    CASES[name][1](Inputs(flow, name in HELD)).to("out", partitions=2, **({"key": "k"} if CASES[name][0] != LAST else {}))
    return flow


def rows_of(rng: random.Random, count: int, partition: int) -> list[Row]:
    """Rows in an order that their times do not follow, numbered in the order of the log."""
    times = [n + rng.randrange(-4, 4) for n in range(count)]
    return [
        {"k": rng.choice("aab"), "v": n, "p": partition, "at": START + timedelta(seconds=max(at, 0))} for n, at in enumerate(times)
    ]


def run(flow: Flow, seed: int, cut: int | None, partitions: int = 1, rows: int = 12) -> tuple[list[list[Row]], Plan]:
    """The rows of each partition of "out". cut: rows of a partition that an epoch reads; None: all; 0: now these, now those."""
    rng, cuts = random.Random(seed), random.Random(f"{seed} {cut}")
    with flow.test(analyzer=InPython(CONDITIONS)) as t:
        read = {step.name for step in t.plan.steps if not step.inputs}
        for topic in sorted({"rows", "more"} & read):
            t.topic(topic, partitions=partitions)
            for p in range(partitions):
                t.send(topic, *rows_of(rng, rows, p), partition=p)
        if "names" in read:
            for row in rows_of(rng, rows // 2, 0):
                t.send("names", {"k": row["k"], "name": rng.choice("ab"), "at": row["at"]})
        if cut is not None:
            while t.epoch(cut or (lambda source, partition, there: cuts.randrange(min(there, 4) + 1))):
                pass
        t.end()
        return [list(records(t, p)) for p in t.log.topic("out").ends()], t.plan


def records(t: FlowTest, partition: int) -> Iterator[Row]:
    for chunk in t.log.topic("out").read(partition):
        yield from chunk.rows.to_pylist()


def numbers_of(rows: Iterable[Row]) -> dict[Any, list[int]]:
    """The numbers of the rows of each input partition, as they come."""
    found: dict[Any, list[int]] = {}
    for row in rows:
        place = row[POSITION][:-8] if row[POSITION][:1] == b"s" else row[POSITION][-4:] + row[POSITION][:-12]
        found.setdefault(place, []).append(row["v"])
    return found


def places(rows: list[Row]) -> list[tuple[datetime, bytes]]:
    return [(row[EVENT_TIME], row[POSITION]) for row in rows]


def in_time(rows: list[Row]) -> bool:
    return places(rows) == sorted(places(rows))


def held(rows: Iterable[Row], key: tuple[str, ...]) -> dict[Any, Row]:
    """What the last record of each key says."""
    out: dict[Any, Row] = {}
    for row in rows:
        name = tuple(row[k] for k in key)
        out.pop(name, None)
        if row.get(OP) is None:
            out[name] = {n: v for n, v in row.items() if not n.startswith("__")}
    return out
