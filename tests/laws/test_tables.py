"""Tables over the real engine: whatever the order of versions, the cut, the crashes and the buckets, views are what a query says.

PENSTOCK_LAW_SEED moves the cases that are tried.
"""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amount import cases
from penstock import Flow, Tumbling, agg
from penstock.testing.driver import CRASH_POINTS, FlowTest

from .reference.tables import Row, grouped, joined

FIRST = int(os.environ.get("PENSTOCK_LAW_SEED", "0"))
START = datetime(2024, 1, 15, 10, tzinfo=UTC)
HOWS = ("inner", "left", "right", "full", "semi", "anti")

Sender = Callable[[FlowTest, random.Random], None]


def some_time(rng: random.Random) -> datetime:
    return START + timedelta(seconds=rng.randrange(20))


@dataclass
class Versions:
    """A topic of versions: the greatest (time, partition, offset) of a key is what holds."""

    topic: str
    columns: dict[str, Sequence[Any]]  # what may be in them; the first is the key
    best: dict[Any, tuple[Any, Row | None]] = field(default_factory=dict)

    @property
    def schema(self) -> str:
        types = {int: "long", str: "string"}
        columns = [f"{name} {next(types[type(v)] for v in values if v is not None)}" for name, values in self.columns.items()]
        return ", ".join([*columns, "at timestamp"])

    def send(self, t: FlowTest, rng: random.Random) -> None:
        """A version of some row, older or newer than others of it; or that it is gone."""
        p, at = rng.randrange(len(t.log.topic(self.topic).ends())), some_time(rng)
        row = {name: rng.choice(values) for name, values in self.columns.items()}
        key = next(iter(self.columns))
        if rng.random() < 0.25:
            (position,) = t.delete(self.topic, {key: row[key]}, partition=p, at=at)
            self._take((at, position), row[key], None)
        else:
            (position,) = t.send(self.topic, row | {"at": at}, partition=p)
            self._take((at, position), row[key], row | {"at": at})

    def _take(self, place: Any, key: Any, row: Row | None) -> None:
        if key not in self.best or place > self.best[key][0]:
            self.best[key] = (place, row)

    @property
    def rows(self) -> list[Row]:
        return [row for _, row in self.best.values() if row is not None]


def orders() -> Versions:
    return Versions("orders", {"order_id": range(5), "user_id": (1, 2, 3, None), "v": range(4)})


def users() -> Versions:
    return Versions("users", {"user_id": (1, 2, 3), "w": ("a", "b", None)})


def places() -> Versions:
    return Versions("places", {"w": ("a", "b"), "z": (1, 2)})


def table(flow: Flow, versions: Versions) -> Any:
    return flow.table(versions.topic, versions.schema, key=next(iter(versions.columns)), time="at")


def run(
    flow: Flow, topics: Sequence[str], senders: Sequence[Sender], check: Callable[[FlowTest], None], rng: random.Random
) -> None:
    """Rounds of rows, of epochs cut anywhere, of crashes and of other numbers of buckets; after each round views are compared."""
    with flow.test(buckets=rng.choice((1, 2, 3))) as t:
        for topic in topics:
            t.topic(topic, partitions=rng.choice((1, 2)))
        for _ in range(rng.choice((1, 2, 3))):
            for _ in range(rng.randrange(1, 12)):
                rng.choice(senders)(t, rng)
                if rng.random() < 0.3:
                    t.epoch(rng.choice((None, 1, 2)))
            senders[0](t, rng)  # so that there is an epoch to crash in
            if rng.random() < 0.5:
                t.crash(rng.choice(CRASH_POINTS[:-1]), rng.choice((None, 1)))
            if rng.random() < 0.4:
                t.restart(buckets=rng.choice((1, 2, 4)))
            t.catch_up()
            check(t)


def same(t: FlowTest, view: str, expected: Sequence[Row]) -> None:
    assert sorted(map(told, t.rows(view))) == sorted(map(told, expected)), view


def told(row: Row) -> str:
    return str(sorted((name, str(value)) for name, value in row.items()))


def merged(left: Row | None, right: Row | None, on: str, columns: dict[str, tuple[int, str]]) -> Row:
    """A row of a join: `on`, and columns of either side (0 or 1) under their names."""
    sides = (left, right)
    made = {name: side[own] if (side := sides[i]) else None for name, (i, own) in columns.items()}
    return {on: (left or right or {})[on]} | made


JOINED = {"order_id": (0, "order_id"), "v": (0, "v"), "at": (0, "at"), "w": (1, "w"), "users_at": (1, "at")}


@pytest.mark.parametrize("how", HOWS)
def test_a_join_of_tables_is_the_join_of_their_current_rows(how: Any) -> None:
    for seed in range(FIRST, FIRST + cases(7)):
        rng, left, right = random.Random(f"{how} {seed}"), orders(), users()
        flow, hidden = Flow("shop"), rng.random() < 0.4
        mine = table(flow, left)
        mine = mine.where("v <> 3") if hidden else mine
        mine.join(table(flow, right), on="user_id", how=how, name="joined").view("joined")

        def check(t: FlowTest, left: Versions = left, right: Versions = right, hidden: bool = hidden) -> None:
            seen = [row for row in left.rows if not hidden or row["v"] != 3]
            pairs = joined(seen, right.rows, ["user_id"], how)
            of_left = how in ("semi", "anti")
            same(t, "joined", [dict(a or {}) if of_left else merged(a, b, "user_id", JOINED) for a, b in pairs])

        run(flow, ["orders", "users"], [left.send, right.send], check, rng)


@pytest.mark.parametrize("kept", ["sums", "rows"])
def test_groups_over_a_join_of_three_tables_are_those_of_their_current_rows(kept: str) -> None:
    for seed in range(FIRST, FIRST + cases(7)):
        rng, first, second, third = random.Random(f"{kept} {seed}"), orders(), users(), places()
        flow, hows = Flow("shop"), [rng.choice(("inner", "left")) for _ in range(2)]
        pairs = table(flow, first).join(table(flow, second), on="user_id", how=hows[0], name="pairs")
        three = pairs.join(table(flow, third).select("w", "z"), on="w", how=hows[1], name="three")
        three.view("three")
        more = {"high": agg.max("v"), "different": agg.distinct("user_id")} if kept == "rows" else {}
        three.group_by("z").agg(n=agg.count(), total=agg.sum("v"), mean=agg.avg("v"), **more).view("groups")

        def check(
            t: FlowTest, first: Versions = first, second: Versions = second, third: Versions = third, hows: Any = hows
        ) -> None:
            two = [merged(a, b, "user_id", JOINED) for a, b in joined(first.rows, second.rows, ["user_id"], hows[0])]
            rows = [dict(a or {}) | {"z": b["z"] if b else None} for a, b in joined(two, third.rows, ["w"], hows[1])]
            same(t, "three", rows)
            same(t, "groups", [group_of(group, kept) for group in grouped(rows, ["z"])])

        run(flow, ["orders", "users", "places"], [first.send, second.send, third.send], check, rng)


def group_of(rows: Sequence[Row], kept: str) -> Row:
    vs = [row["v"] for row in rows]
    row = {"z": rows[0]["z"], "n": len(vs), "total": sum(vs), "mean": sum(vs) / len(vs)}
    more = {"high": max(vs), "different": len({r["user_id"] for r in rows} - {None})}
    return row | (more if kept == "rows" else {})


@dataclass
class Events:
    """A stream of rows in any order."""

    rows: list[Row] = field(default_factory=list)

    def send(self, t: FlowTest, rng: random.Random) -> None:
        row = {"user_id": rng.choice((1, 2, 3, None)), "v": rng.randrange(4), "at": some_time(rng)}
        self.rows.append(row)
        t.send("events", row, partition=rng.randrange(len(t.log.topic("events").ends())))

    def windows(self) -> list[Row]:
        """Count and sum per user and ten seconds."""
        cut = [row | {"window_start": row["at"] - timedelta(seconds=row["at"].second % 10)} for row in self.rows]
        return [
            {n: g[0][n] for n in ("user_id", "window_start")} | {"n": len(g), "total": sum(r["v"] for r in g)}
            for g in grouped(cut, ["user_id", "window_start"])
        ]


def windows_of(flow: Flow) -> Any:
    stream = flow.stream("events", "user_id long, v long, at timestamp", time="at", lateness="0 seconds")
    corrected = stream.window(Tumbling("10 seconds"), by="user_id", late="correct", allowed="1 day", emit="updates")
    return corrected.agg(n=agg.count(), total=agg.sum("v"), name="windows").select("user_id", "window_start", "n", "total")


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_corrected_windows_joined_with_a_table_follow_both(how: Any) -> None:
    for seed in range(FIRST, FIRST + cases(7)):
        rng, events, right, flow = random.Random(f"{how} {seed}"), Events(), users(), Flow("shop")
        windows_of(flow).join(table(flow, right).select("user_id", "w"), on="user_id", how=how, name="joined").view("joined")
        columns = {"window_start": (0, "window_start"), "n": (0, "n"), "total": (0, "total"), "w": (1, "w")}

        def check(t: FlowTest, events: Events = events, right: Versions = right, columns: Any = columns) -> None:
            pairs = joined(events.windows(), right.rows, ["user_id"], how)
            same(t, "joined", [merged(a, b, "user_id", columns) for a, b in pairs])

        run(flow, ["events", "users"], [events.send, right.send], check, rng)


def test_groups_over_corrected_windows_follow_the_corrections() -> None:
    for seed in range(FIRST, FIRST + cases(7)):
        rng, events, flow = random.Random(f"groups {seed}"), Events(), Flow("shop")
        told = windows_of(flow)
        told.group_by("user_id").agg(windows=agg.count(), rows=agg.sum("n"), name="per-user").view("sums")
        told.group_by("n").agg(windows=agg.count(), high=agg.max("total"), name="per-size").view("rows")

        def check(t: FlowTest, events: Events = events) -> None:
            windows = events.windows()
            by_user, by_size = grouped(windows, ["user_id"]), grouped(windows, ["n"])
            same(t, "sums", [{"user_id": g[0]["user_id"], "windows": len(g), "rows": sum(w["n"] for w in g)} for g in by_user])
            same(t, "rows", [{"n": g[0]["n"], "windows": len(g), "high": max(w["total"] for w in g)} for g in by_size])

        run(flow, ["events"], [events.send], check, rng)


def test_alerts_over_a_table_are_those_of_its_current_rows_in_the_order_of_their_time() -> None:
    """Rows come, change and go between others, and move from one key to another."""
    for seed in range(FIRST, FIRST + cases(10)):
        rng, versions, flow = random.Random(f"alerts {seed}"), orders(), Flow("shop")
        alerts = table(flow, versions).alert(when="v = 3", resolve="v = 0", by="user_id", name="alerts")
        alerts.view("alerts")

        def check(t: FlowTest, versions: Versions = versions) -> None:
            there = [row for _, row in sorted(versions.best.values(), key=lambda best: best[0]) if row is not None]
            same(t, "alerts", [standing(rows) for rows in grouped(there, ["user_id"])])

        run(flow, ["orders"], [versions.send], check, rng)


def standing(rows: Sequence[Row]) -> Row:
    """rows: in their order."""
    word = since = None
    for row in rows:
        if row["v"] == 3 and word != "fired":
            word, since = "fired", row["at"]
        elif row["v"] == 0:
            word = "resolved"
    return {**rows[-1], "alert": word, "since": since}
