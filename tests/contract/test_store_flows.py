"""Flows that write to a real store: once through kills of the server, holding nobody back, refused rows kept (G37)."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from faults.engine_shop import SparkFree, view
from penstock import Flow, Producer, Schema, TopicSpec, Tumbling, agg
from penstock.engine.flows.dead import dead_letters_of
from penstock.engine.flows.redriving import Redriving
from penstock.engine.flows.sinks import sinks_of
from penstock.engine.run import loop, waiting
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.epoch.open import EpochRequest
from penstock.sinks import mariadb, postgres
from penstock.sinks.stores.sink import IDLE
from penstock.storage.local import LocalStorage
from penstock.testing.servers.mariadb import MariaDbServer
from penstock.testing.servers.postgres import PostgresServer
from waiting import until

ORDERS = "id long, user string, amount long, at timestamp"
START = datetime(2024, 1, 15, 10, tzinfo=UTC)


class Shop:
    """Orders into a table as they come, sums by minute into a table and a view."""

    def __init__(self, home: Path, url: str, said: list[str] | None = None) -> None:
        self.home, self.said, self.sent = home, said if said is not None else [], 0
        runtime = SparkFree(home, say=self.said.append)
        self.log = runtime.log
        if "orders" not in self.log.topics():
            self.log.create(TopicSpec("orders", 1, Schema.of(ORDERS), "at"))
        flow = Flow("shop")
        orders = flow.stream("orders", ORDERS, time="at", lateness="5 seconds", idle="1 hour")
        table_of = mariadb if url.startswith("mariadb:") else postgres
        orders.sink(table_of(url, "shop.orders", key="id"))
        sums = orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), total=agg.sum("amount"))
        sums.view("sums").sink(table_of(url, "shop.sums"))
        self.driver: Driver = runtime.driver(runtime.plan(flow))

    def send(self, count: int, **values: Any) -> None:
        with Producer(self.log.topic("orders")) as producer:
            for _ in range(count):
                n, self.sent = self.sent, self.sent + 1
                row = {"id": n, "user": f"u{n % 3}", "amount": n, "at": START + timedelta(seconds=7 * n)}
                producer.send(row | values)

    def epoch(self) -> None:
        assert self.driver.epoch(EpochRequest())

    def drained(self) -> None:
        loop.drain(self.driver, threading.Event(), lambda report: None)
        self.driver.deliverer.caught_up(60)
        self.driver.stop()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST", 0.05)
    monkeypatch.setattr(waiting, "MOST", 0.2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path / "server") as started:
        yield started


def states(shop: Shop) -> dict[str, tuple[str, int]]:
    """Of each sink, as others see it."""
    return {found.sink: (found.state, found.behind_epochs) for found in sinks_of(shop.home, "shop")}


def check(shop: Shop, server: PostgresServer) -> None:
    assert server.execute("select id from shop.orders order by id") == [(n,) for n in range(shop.sent)]
    shown = sorted((row["user"], row["window_start"], row["n"], row["total"]) for row in view(shop.home, "sums"))
    columns = 'select "user", window_start, n, total from shop.sums'
    assert sorted(server.execute(columns)) == shown
    assert sum(n for _, _, n, _ in shown) == shop.sent


def test_a_server_that_is_killed_holds_back_only_itself_and_lacks_nothing_in_the_end(
    tmp_path: Path, server: PostgresServer
) -> None:
    shop = Shop(tmp_path / "home", server.url)
    shop.driver.start()
    for _ in range(3):
        shop.send(20)
        shop.epoch()
        server.kill()
        for _ in range(4):
            shop.send(20)
            shop.epoch()
        assert sum(row["n"] for row in view(shop.home, "sums")) > shop.sent - 60, "the view waits for the table"
        assert until(lambda: states(shop)["postgres.shop.orders"][0] == "away")
        assert until(lambda: states(shop)["view.sums"] == ("in step", 0))
        server.start()
        shop.driver.deliverer.caught_up(60)
        assert until(lambda: states(shop)["postgres.shop.orders"] == ("in step", 0))
    shop.drained()
    check(shop, server)
    assert any(line.startswith("sink postgres.shop.orders waits since") for line in shop.said)
    [(apart,)] = server.execute("select max(epoch) - min(epoch) from shop.penstock_marker")
    assert apart < IDLE


def call(*words: str) -> str:
    """What the command prints."""
    done = subprocess.run(
        [sys.executable, "-c", "from penstock.cli.main import main; main()", *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_flow_starts_while_its_store_is_away(tmp_path: Path, server: PostgresServer) -> None:
    first = Shop(tmp_path / "home", server.url)
    first.driver.start()
    first.send(10)
    first.epoch()
    first.driver.stop()
    server.kill()
    shop = Shop(tmp_path / "home", server.url)
    shop.sent = first.sent
    shop.driver.start()
    shop.send(30)
    shop.epoch()
    assert shop.driver.deliverer.delivered() < 1
    assert until(lambda: states(shop)["postgres.shop.sums"][0] == "away")
    said = call("--home", str(shop.home), "sink", "describe", "shop", "shop.sums")
    assert "state    away" in said
    assert "because  table shop.sums of PostgreSQL" in said
    assert '"state":"away"' in call("--home", str(shop.home), "sink", "list")
    server.start()
    shop.drained()
    check(shop, server)


def test_rows_that_the_table_refuses_are_dead_letters_that_are_not_sent_back(tmp_path: Path, server: PostgresServer) -> None:
    server.execute("create schema shop")
    server.execute(
        'create table shop.orders (id bigint primary key, "user" text, amount bigint check (amount < 5), at timestamptz)'
    )
    shop = Shop(tmp_path / "home", server.url)
    shop.driver.start()
    shop.send(8)
    shop.drained()
    assert server.execute("select id from shop.orders order by id") == [(n,) for n in range(5)]
    letters = list(dead_letters_of(shop.log, "shop"))
    assert sorted((letter.step, letter.record.offset if letter.record else -1) for letter in letters) == [
        ("postgres.shop.orders", n) for n in (5, 6, 7)
    ]
    assert all("violates check constraint" in letter.reason for letter in letters)
    decisions = Decisions(LocalStorage(str(shop.home / "flows" / "shop")), "shop")
    assert {intended.what for intended in Redriving(shop.log, decisions).intended(letters)} == {"refused by a sink"}
    assert sum(row["n"] for row in view(shop.home, "sums")) == 8, "what the table refuses others have counted"


def test_a_store_that_was_restored_from_a_copy_is_filled_again(tmp_path: Path, server: PostgresServer) -> None:
    shop = Shop(tmp_path / "home", server.url)
    shop.driver.start()
    for _ in range(3):
        shop.send(10)
        shop.epoch()
        shop.driver.deliverer.caught_up(60)
    server.execute("delete from shop.orders where id >= 10")  # as it was behind the first epoch
    server.execute("update shop.penstock_marker set epoch = 0 where sink = 'shop.orders'")
    shop.send(10)
    shop.epoch()
    assert until(lambda: server.execute("select count(*) from shop.orders") == [(40,)])
    shop.drained()
    check(shop, server)


def test_a_mariadb_that_is_killed_and_then_restored_from_a_copy_lacks_nothing_in_the_end(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path / "server", innodb_flush_log_at_trx_commit="2") as server:
        shop = Shop(tmp_path / "home", server.url("", "root"))
        shop.driver.start()
        for _ in range(2):
            shop.send(20)
            shop.epoch()
            server.kill()
            shop.send(20)
            shop.epoch()
            assert until(lambda: states(shop)["mariadb.shop.orders"][0] == "away")
            server.start()
            shop.driver.deliverer.caught_up(60)
        server.execute("delete from shop.orders where id >= 60")
        server.execute("update shop.penstock_marker set epoch = 2 where sink = 'shop.orders'")
        shop.send(20)
        shop.epoch()
        assert until(lambda: server.execute("select count(*) from shop.orders") == [["100"]])
        shop.drained()
        shown = sorted([row["user"], str(row["n"]), str(row["total"])] for row in view(shop.home, "sums"))
        assert sorted(server.execute("select user, n, total from shop.sums")) == shown
        assert server.execute("select id from shop.orders order by id") == [[str(n)] for n in range(shop.sent)]
