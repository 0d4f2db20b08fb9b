"""Epochs that have no rows for a store cost it nothing, and a start never misses what its marker has not seen."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from faults.engine_shop import SparkFree
from penstock import Flow, Producer, Schema, TopicSpec
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.epoch.sweep import KEEP
from penstock.sinks import sqlite
from penstock.sinks.port import Delivery, Marker
from penstock.sinks.stores.sink import IDLE, POINTS
from stored import LIFE, Staged

ORDERS = "id long, amount long, at timestamp"
START = datetime(2024, 1, 15, 10, tzinfo=UTC)


def marker_in(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("select epoch from penstock_marker").fetchone()[0])


def test_epochs_without_rows_leave_the_store_alone_but_for_its_marker_now_and_then(tmp_path: Path) -> None:
    epochs, passed = Staged(sqlite(tmp_path / "s.db", "t"), "id long"), list[str]()
    sink = epochs.sink(fail=passed.append)
    sink.deliver(epochs.epoch_of({"id": 1}))
    assert passed == list(POINTS)
    for epoch in range(1, 3 * IDLE + 1):
        sink.deliver(Delivery(Marker(LIFE, 1, epoch), [], frontier=0))
        assert epoch - marker_in(tmp_path / "s.db") < IDLE
    assert passed.count("store.committed") == 1 + 3
    sink.close()


def test_a_start_gives_again_what_the_marker_has_not_seen(tmp_path: Path) -> None:
    epochs = Staged(sqlite(tmp_path / "s.db", "t"), "id long")
    sink = epochs.sink()
    sink.deliver(epochs.epoch_of({"id": 1}))
    for epoch in range(1, IDLE):
        sink.deliver(Delivery(Marker(LIFE, 1, epoch), [], frontier=0))
    sink.close()
    sink = epochs.sink(generation=2)
    assert epochs.epoch == 0
    for epoch in range(1, IDLE):
        sink.deliver(Delivery(Marker(LIFE, 2, epoch), [], frontier=0))
    epochs.epoch = IDLE - 1
    sink.deliver(epochs.epoch_of({"id": 2}, generation=2))
    sink.close()
    assert marker_in(tmp_path / "s.db") == IDLE


def shop(home: Path) -> Driver:
    """Large orders go to a table; all others pass."""
    runtime = SparkFree(home)
    if "orders" not in runtime.log.topics():
        runtime.log.create(TopicSpec("orders", 1, Schema.of(ORDERS), "at"))
    flow = Flow("shop")
    flow.stream("orders", ORDERS, time="at").where("amount > 100").sink(sqlite(home / "s.db", "large", key="id"))
    return runtime.driver(runtime.plan(flow))


def given(driver: Driver, id: int, amount: int) -> None:
    """An epoch with one order."""
    with Producer(driver.context.log.topic("orders")) as producer:
        producer.send({"id": id, "amount": amount, "at": START + timedelta(seconds=id)})
    assert driver.epoch(EpochRequest())
    driver.deliverer.caught_up(60)


def test_a_flow_whose_store_had_nothing_to_do_for_longer_than_epochs_are_kept_starts_again(tmp_path: Path) -> None:
    driver = shop(tmp_path)
    driver.start()
    given(driver, 0, 1_000)
    for n in range(1, 2 * KEEP + IDLE - 1):
        given(driver, n, 1)
    driver.stop()
    again = shop(tmp_path)
    again.start()
    given(again, 99, 1_000)
    again.stop()
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("select id from large order by id").fetchall() == [(0,), (99,)]
