"""Sinks of a running flow, compared with the log, put right, filled anew; one that lost everything holds back only itself (G39)."""

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from faults.engine_shop import SparkFree
from penstock import Flow, Producer, Schema, TopicSpec, Tumbling, agg
from penstock.engine.flows.sinks import sink_of
from penstock.engine.replay import instep
from penstock.engine.replay.instep import InStep, SinkCheck, places_of, sink_named
from penstock.engine.run import loop, waiting
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.apart import ApartLane
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.epoch.holds import first_held, held_last
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.waiting import WaitMessages
from penstock.errors import BadInput, Mismatch, NotFound, SinkLost
from penstock.log.file.log import FileLog
from penstock.plan import Plan
from penstock.sinks import parquet, read_parquet, redis, sqlite
from penstock.sinks.port import nothing
from penstock.sinks.stores.comparing import Compared
from penstock.storage.memory import MemoryStorage
from penstock.testing.servers.valkey import ValkeyServer
from redis_keys import found as keys_of
from waiting import until

ORDERS = "id long not null, user string not null, amount double, at timestamp"
START = datetime(2024, 1, 15, 10, tzinfo=UTC)


class Shop:
    """What users have spent, in a cache; their sales by minute, in a table and a view."""

    def __init__(self, home: Path, cache: str) -> None:
        self.home, self.sent, self.said = home, 0, list[str]()
        self.runtime = SparkFree(home, say=self.said.append)
        if "orders" not in self.runtime.log.topics():
            self.runtime.log.create(TopicSpec("orders", 2, Schema.of(ORDERS), "at"))
        flow = Flow("shop")
        orders = flow.stream("orders", ORDERS, time="at", lateness="5 seconds", idle="1 hour")
        orders.group_by("user").agg(n=agg.count(), total=agg.sum("amount")).sink(redis(cache, "spent"))
        sales = orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count())
        sales.view("sales").sink(sqlite(home / "shop.db", "sales"))
        orders.sink(sqlite(home / "shop.db", "orders", key="id"))
        self.plan: Plan = self.runtime.plan(flow)

    def driver(self) -> Driver:
        return self.runtime.driver(self.plan)

    def send(self, count: int = 20) -> None:
        with Producer(self.runtime.log.topic("orders")) as producer:
            for _ in range(count):
                n, self.sent = self.sent, self.sent + 1
                producer.send({"id": n, "user": f"u{n % 50}", "amount": n / 7, "at": START + timedelta(seconds=n)}, partition=n % 2)

    def check(self, sink: str, view: str | None = None) -> SinkCheck:
        output = sink_named(self.plan, sink)
        (place,) = places_of(output)
        return SinkCheck(self.runtime, self.plan, output, place, view)

    @contextmanager
    def running(self) -> Iterator[Driver]:
        """A live run, in a thread."""
        driver, stop = self.driver(), threading.Event()
        driver.start()
        thread = threading.Thread(
            target=loop.run, args=(driver, stop, lambda report: None, 0.0, None, WaitMessages(nothing, nothing))
        )
        thread.start()
        try:
            yield driver
        finally:
            stop.set()
            thread.join()
            driver.stop()

    def epochs(self, count: int, rows: int = 20) -> None:
        driver = self.driver()
        driver.start()
        for _ in range(count):
            self.send(rows)
            assert driver.epoch(EpochRequest())
        driver.deliverer.caught_up(60)
        driver.stop()


@pytest.fixture
def shop(tmp_path: Path, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(waiting, "FIRST", 0.05)
    monkeypatch.setattr(waiting, "MOST", 0.2)
    valkey.ask("FLUSHALL")
    return Shop(tmp_path / "home", valkey.url)


def equal(of: InStep) -> bool:
    return of.compared.equal and not of.compared.unsettled and not of.compared.ranges_apart


def agree(compared: Compared) -> bool:
    return True


@pytest.mark.parametrize("sink", ["redis.spent", "sqlite.sales", "sqlite.orders"])
def test_a_sink_is_what_the_log_says(shop: Shop, sink: str) -> None:
    shop.epochs(20)  # more than are kept
    found = shop.check(sink).reconcile()
    assert equal(found)
    assert found.epoch == 19


def test_a_view_of_the_same_step_says_it_too(shop: Shop) -> None:
    shop.epochs(3)
    assert equal(shop.check("sqlite.sales", "sales").reconcile())
    with pytest.raises(BadInput, match=r"cannot say what sqlite\.orders should hold"):
        shop.check("sqlite.orders", "sales").reconcile()
    with pytest.raises(NotFound, match="no view 'other'"):
        shop.check("sqlite.sales", "other").reconcile()


def test_sinks_are_compared_while_their_flow_writes(shop: Shop) -> None:
    shop.epochs(2)
    with shop.running() as driver:
        for sink in ("redis.spent", "sqlite.orders", "sqlite.sales"):
            shop.send(100)
            found = shop.check(sink).reconcile()
            assert found.compared.equal, found.compared.shown
        assert until(lambda: driver.read_to() and sum(driver.read_to().values()) == shop.sent)
    assert equal(shop.check("redis.spent").reconcile())


def test_what_somebody_changed_is_named_and_put_right(shop: Shop, valkey: ValkeyServer) -> None:
    shop.epochs(3)
    valkey.ask("HSET", "spent:u1", "n", "1000")
    valkey.ask("UNLINK", "spent:u2")
    valkey.ask("HSET", "spent:stranger", "user", "stranger", "n", "1", "total", "1")
    found = shop.check("redis.spent").reconcile(repair=True)
    assert [(each.kind, each.key) for each in found.compared.shown] == [
        ("missing", "u2"),
        ("extra", "stranger"),
        ("different", "u1"),
    ]
    assert found.written == 3
    assert equal(shop.check("redis.spent").reconcile())
    shop.epochs(1)
    assert equal(shop.check("redis.spent").reconcile())


def test_a_cache_that_lost_everything_is_filled_anew_while_all_others_go_on(
    shop: Shop, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instep, "PATIENCE", 3600.0)
    shop.epochs(20)
    with shop.running() as driver:
        valkey.ask("FLUSHALL")
        shop.send(40)
        assert until(lambda: sink_of(shop.home, "shop", "redis.spent").state == "away")
        assert until(lambda: "penstock sink rebuild FLOW.py redis.spent" in str(sink_of(shop.home, "shop", "redis.spent").hint))
        with pytest.raises(SinkLost, match="has nothing of flow shop, and the epochs up to"):
            shop.check("redis.spent").reconcile()  # nobody waits for what does not come
        shop.send(40)
        assert until(lambda: sink_of(shop.home, "shop", "sqlite.orders").epoch > 20)
        assert equal(shop.check("sqlite.orders").reconcile())
        (lost,) = [lane.away for lane in driver.deliverer.lanes if isinstance(lane, ApartLane) and lane.away]
        assert "penstock sink rebuild" in str(lost)
        found = shop.check("redis.spent").rebuild(agree)
        assert found.written == 50
        shop.send(40)
        assert until(lambda: sink_of(shop.home, "shop", "redis.spent").state == "in step")
    assert equal(shop.check("redis.spent").reconcile())
    assert len(keys_of(valkey, "spent")) == 50


def test_a_run_to_the_end_says_at_once_that_a_store_lacks_what_is_not_kept(shop: Shop, valkey: ValkeyServer) -> None:
    shop.epochs(20)
    valkey.ask("FLUSHALL")
    driver = shop.driver()
    driver.start()
    with pytest.raises(SinkLost, match=r"redis\.spent lacks the epochs 0 to"):
        driver.deliverer.caught_up(60)
    driver.stop()
    shop.check("redis.spent").rebuild(agree)
    shop.epochs(1)
    assert equal(shop.check("redis.spent").reconcile())


def test_a_rebuild_that_nobody_agrees_to_writes_nothing(shop: Shop, valkey: ValkeyServer) -> None:
    shop.epochs(2)
    valkey.ask("FLUSHALL")
    asked: list[Compared] = []
    found = shop.check("redis.spent").rebuild(lambda compared: bool(asked.append(compared)))
    assert (found.written, asked[0].missing) == (0, 40)
    assert not keys_of(valkey, "spent")


def test_a_store_of_an_earlier_life_of_the_flow_is_taken_over(shop: Shop, tmp_path: Path, valkey: ValkeyServer) -> None:
    shop.epochs(2)
    later = Shop(tmp_path / "later", valkey.url)
    later.send(10)
    driver = later.driver()
    with pytest.raises(Mismatch, match="another incarnation"):
        driver.start()
    with pytest.raises(NotFound, match="has decided nothing yet"):
        later.check("redis.spent").rebuild(agree)


def test_epochs_are_kept_for_whoever_needs_them_and_no_longer(shop: Shop) -> None:
    shop.epochs(2)
    decisions = Decisions(shop.runtime.flow_storage("shop"), "shop")
    with held_last(decisions) as last:
        shop.epochs(30, rows=1)
        assert decisions.epochs()[0] <= last.epoch
    shop.epochs(2, rows=1)
    assert decisions.epochs()[0] > last.epoch


@pytest.mark.parametrize(
    "left",
    [
        {"pid": 999_999_999, "since": 0.0, "host": socket.gethostname()},
        {"pid": os.getpid(), "since": 1.0, "host": socket.gethostname()},  # its number was given out again
        {"pid": 1, "since": 0.0, "host": "a container of last week"},
    ],
)
def test_what_a_process_that_is_gone_has_held_is_held_no_longer(left: dict[str, Any]) -> None:
    storage = MemoryStorage()
    storage.publish("holds/left", orjson.dumps({"epoch": 3, "at": time.time() - 7 * 86_400} | left))
    assert first_held(storage) is None
    assert not storage.list("holds")


def test_another_host_may_hold_epochs_for_a_day() -> None:
    storage = MemoryStorage()
    storage.publish("holds/other", orjson.dumps({"epoch": 3, "at": time.time(), "pid": 1, "since": 0.0, "host": "elsewhere"}))
    assert first_held(storage) == 3


def test_an_input_that_was_cut_is_named(shop: Shop) -> None:
    shop.epochs(2)
    log = shop.runtime.log
    assert isinstance(log, FileLog)
    log.alter(replace(log.topic("orders").spec, retain=timedelta(microseconds=1)))
    shop.send(40)
    log.clean("orders")
    with pytest.raises(Mismatch, match="topic orders has no records before offset"):
        shop.check("sqlite.orders").reconcile()


def test_a_directory_of_files_that_was_removed_under_its_flow_gets_again_what_is_kept(tmp_path: Path) -> None:
    runtime = SparkFree(tmp_path / "home")
    runtime.log.create(TopicSpec("orders", 1, Schema.of(ORDERS), "at"))
    flow = Flow("shop")
    flow.stream("orders", ORDERS, time="at").sink(parquet(tmp_path / "lake", key="id"))
    driver = runtime.driver(runtime.plan(flow))
    driver.start()
    with Producer(runtime.log.topic("orders")) as producer:
        for n in range(3):
            producer.send({"id": n, "user": "u", "amount": 1.0, "at": START})
            producer.flush()
            assert driver.epoch(EpochRequest())
            driver.deliverer.caught_up(60)
            if n == 1:
                shutil.rmtree(tmp_path / "lake")
    driver.stop()
    assert sorted(read_parquet(tmp_path / "lake")["id"].to_pylist()) == [0, 1, 2]
