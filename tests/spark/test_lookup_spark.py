"""Lookups inside Spark's tasks: one answer everywhere though a worker dies, and one paragraph when none comes."""

import os
import random
import signal
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from faults.engine_shop import last_decision, topic_rows, view
from penstock import Flow, Tumbling, agg, lookups
from penstock.engine.run import waiting
from penstock.errors import Unanswered
from penstock.plan import Remote
from penstock.testing.servers.mariadb import MariaDbServer

from .test_engine_spark import ROWS, Placed, orders, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS = sorted({row["user"] for row in ROWS})
Ask = Callable[[list[dict[str, Any]]], list[dict[str, Any] | None]]


def answers(calls: Path) -> Ask:
    """Another answer at every call, and a file for each."""

    def ask(keys: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        (calls / uuid.uuid4().hex).write_text("asked")
        return [{"draw": random.randrange(10**9)} for _ in keys]

    return ask


def dying_once(marker: Path) -> Callable[[pa.Table], pa.Table]:
    """A step behind the lookup whose process dies as by `kill -9`, the first time."""

    def function(rows: pa.Table) -> pa.Table:
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows

    return function


def flow_of(ask: Ask | Remote, marker: Path, **other: Any) -> Flow:
    flow = Flow("asking")
    asked = stream(flow).lookup(ask, on="user", schema="draw long", cache=None, name="asked", **other)
    asked.view("rows").to("out")
    later = asked.map_arrow(dying_once(marker), "user string, amount long, at timestamp, draw long", name="later")
    later.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), draws=agg.sum("draw"), name="sums").view("sums")
    return flow


def drawn(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter((row["user"], row["amount"], row["draw"]) for row in rows)


@pytest.mark.parametrize("where", ["one task", "across tasks"])
def test_a_worker_that_dies_behind_a_lookup_asks_nobody_again(where: str, tmp_path: Path, spark: "SparkSession") -> None:
    (tmp_path / "calls").mkdir()
    orders(tmp_path, ROWS)
    runtime, marker = Placed(tmp_path, spark=spark, where=where), tmp_path / "killed"
    driver = runtime.drain(flow_of(answers(tmp_path / "calls"), marker))
    assert marker.exists()
    rows = view(tmp_path, "rows")
    assert drawn(rows) == drawn(topic_rows(runtime.log, "out"))
    sums: Counter[tuple[str, str]] = Counter()
    for row in rows:
        sums[row["user"], f"{row['at']:%H:%M}"] += row["draw"]
    assert {(r["user"], f"{r['window_start']:%H:%M}"): r["draws"] for r in view(tmp_path, "sums")} == dict(sums)
    books = last_decision(tmp_path, "asking").fates["asked"]
    assert (books["in"], books["answered"]) == (len(ROWS), len(ROWS))
    assert len(list((tmp_path / "calls").iterdir())) == books["calls"], "who had answered was not asked again"
    assert driver.program.segments == 2


@pytest.mark.parametrize("where", ["one task", "across tasks"])
def test_when_nobody_answers_it_is_one_paragraph_and_nothing_is_decided(
    where: str, tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LIMIT", 0.0)
    orders(tmp_path, ROWS)

    def silent(keys: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        raise ConnectionError("line is dead")

    runtime = Placed(tmp_path, spark=spark, where=where)
    (tmp_path / "killed").touch()
    with pytest.raises(Unanswered, match="did not answer: 2 calls failed in a row") as failed:
        runtime.drain(flow_of(silent, tmp_path / "killed", retries=1, pause="1 ms"))
    assert len(str(failed.value).splitlines()) == 4
    assert 'step "asked"' in str(failed.value)
    (tmp_path / "calls").mkdir()
    runtime.drain(flow_of(answers(tmp_path / "calls"), tmp_path / "killed"))
    assert len(view(tmp_path, "rows")) == len(ROWS), "nothing is lost"


@pytest.mark.parametrize("where", ["one task", "across tasks"])
def test_tasks_ask_a_store_by_a_password_that_is_named(
    where: str, tmp_path: Path, spark: "SparkSession", mariadb: MariaDbServer
) -> None:
    database, secret = f"asked_{where.replace(' ', '_')}", tmp_path / "secret"
    mariadb.execute(
        f"create or replace database {database}; create table {database}.users (name varchar(9) primary key, draw bigint)"
    )
    mariadb.execute(f"insert into {database}.users values " + ", ".join(f"('{user}', {n})" for n, user in enumerate(USERS)))
    mariadb.execute(f"create or replace user asker@'%' identified by 'canary'; grant select on {database}.* to asker@'%'")
    secret.write_text("canary")
    secret.chmod(0o600)
    (tmp_path / "killed").touch()
    orders(tmp_path, ROWS)
    remote = lookups.mariadb(mariadb.url(database, "asker"), "users", key="name", password=f"file:{secret}", connections=1)
    Placed(tmp_path, spark=spark, where=where).drain(flow_of(remote, tmp_path / "killed"))
    draws = {user: n for n, user in enumerate(USERS)}
    rows = view(tmp_path, "rows")
    assert len(rows) == len(ROWS)
    assert all(row["draw"] == draws[row["user"]] for row in rows)
    mariadb.execute(f"drop database {database}; drop user asker@'%'")
