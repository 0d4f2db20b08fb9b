"""A local copy against asking: the same rows with a table beside the flow, and with a database or a service that is asked."""

import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from events import LATENESS, PARTITIONS, START, append, ddl
from report import Table, milliseconds, options, parsed, percent, publish, rate
from sides import apart, is_side, run_side
from tables import Tables, equal, timed

from penstock import Flow, database
from penstock.flow.stream import Stream

_FRAME = 10_000
_TIME = pa.timestamp("us", tz="UTC")
_FAR = 0.01  # seconds that a call takes to a service elsewhere
_ANSWER = "x long"

Remote = Callable[[Path], Any]


def far_away(path: Path) -> Callable[[list[dict[str, Any]]], list[dict[str, Any] | None]]:
    """A service that knows what the table does, ten milliseconds away."""

    def ask(keys: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        time.sleep(_FAR)
        return [{"x": answer(key["k"])} for key in keys]

    return ask


REMOTES: dict[str, Remote] = {
    "SQLite": lambda path: database(f"sqlite:///{path}/users.db", table="users"),
    "a service, 10 ms a call": far_away,
}
WAYS: tuple[tuple[str, str | None, str | None], ...] = (  # what, who is asked (None: a local copy), how long an answer counts
    ("local copy: enrich", None, None),
    ("lookup in SQLite, every key in every epoch", "SQLite", None),
    ("lookup in SQLite, kept for a minute", "SQLite", "1 minute"),
    ("lookup at a service, every key in every epoch", "a service, 10 ms a call", None),
    ("lookup at a service, kept for a minute", "a service, 10 ms a call", "1 minute"),
)


def answer(key: Any) -> Any:
    return key * 7 % 1_000_003


def enriched(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    """A stream, into a topic, with a column of its users: from a copy, or from whoever is asked."""
    tables, keys, rows = Tables(directory), wish["keys"], wish["rows"]
    users = pa.table({"k": np.arange(keys), "x": answer(np.arange(keys)), "since": pa.array(np.full(keys, START), _TIME)})
    if wish["remote"] is None:
        tables.topic("users", users, "since", "k")
    make_database(directory / "users.db", users)
    sent = [some(-1, 1, keys).slice(0, 0)]
    topic = tables.topic("events", sent[0], "at")

    def define(flow: Flow) -> None:
        events = flow.stream("events", ddl(sent[0]), time="at", lateness=LATENESS)
        answered(events, flow, users, directory, wish).to("answers", partitions=PARTITIONS)

    def send(number: int) -> None:
        sent.append(some(number, rows, keys))
        append(topic, sent[-1], _FRAME)

    driver = tables.loaded(define)
    ran = timed(driver, send, wish["epochs"], rows)
    books = driver.last.fates.get("asked", {}) if driver.last else {}
    driver.stop()
    wanted = pl.concat([pl.DataFrame(pl.from_arrow(t)) for t in sent]).select("id", x=answer(pl.col("k"))).sort("id")
    found = tables.written("answers", "id").select("id", "x").sort("id")
    return ran | {"calls": books.get("calls", 0) / len(sent[1:]), "equal": equal(found, wanted)}


def answered(events: Stream, flow: Flow, users: pa.Table, directory: Path, wish: dict[str, Any]) -> Stream:
    if wish["remote"] is None:
        return events.enrich(flow.table("users", ddl(users), key="k", time="since").select("k", "x"), on="k")
    remote = REMOTES[wish["remote"]](directory)
    return events.lookup(remote, on="k", schema=_ANSWER, cache=wish["cache"], cache_keys=1_000_000, name="asked")


def some(number: int, rows: int, keys: int) -> pa.Table:
    rng = np.random.default_rng(number + 1)
    ids = number * rows + np.arange(rows)
    return pa.table({"id": ids, "k": rng.integers(0, keys, rows), "at": pa.array(START + ids * 1_000, _TIME)})


def make_database(path: Path, users: pa.Table) -> None:
    connection = sqlite3.connect(path)
    connection.execute("create table users (k integer primary key, x integer)")
    connection.executemany("insert into users values (?, ?)", zip(users["k"].to_pylist(), users["x"].to_pylist(), strict=True))
    connection.commit()
    connection.close()


def main() -> None:
    given = parsed(options(__doc__, 100_000, 5_000))
    columns = ["keys", "how", "median epoch", "rows/s", "of the copy's", "calls an epoch", "result", "foreign"]
    out = Table(f"Epochs of {given.rows:,} rows, a column of another table added", *columns)
    for keys in (given.rows // 100, given.rows):
        copy = 0.0
        for what, remote, cache in WAYS:
            wish = {"keys": keys, "rows": given.rows, "epochs": 2 if given.quick else 7, "remote": remote, "cache": cache}
            with tempfile.TemporaryDirectory(prefix="bench-") as name:
                ran = apart(__file__, "enriched", Path(name), wish)
            speed = given.rows / ran["seconds"]
            copy = copy or speed
            seconds, calls = milliseconds(ran["seconds"]), f"{ran['calls']:.1f}" if remote else "none"
            out.add(f"{keys:,}", what, seconds, rate(speed), percent(speed / copy), calls, ran["equal"], percent(ran["foreign"]))
    publish("lookup", [out], given.markdown)


if __name__ == "__main__":
    run_side({"enriched": enriched}) if is_side() else main()
