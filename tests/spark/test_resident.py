"""Resident tasks on Spark: one worker process takes small epochs; when it dies, or stops for good, another one does."""

import os
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest

from faults.engine_shop import view
from penstock import Flow, Producer, Schema, Tumbling, agg
from penstock.engine.execute.job import travels_whole
from penstock.engine.execute.resident import residents as module
from penstock.engine.execute.resident.residents import residents_of
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.runtime import RESIDENT, Runtime
from penstock.log.port import TopicSpec
from waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "user string, amount long, at timestamp"
START = datetime(2024, 1, 15, 10, tzinfo=UTC)
ROWS = 20


@pytest.fixture(autouse=True, scope="module")
def _functions_travel() -> None:
    travels_whole(sys.modules[__name__])  # tasks cannot import it


class Named:
    """Leaves the number of the process that runs it in a file."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)

    def __call__(self, rows: pa.Table) -> pa.Table:
        with open(self.place, "w") as file:
            file.write(str(os.getpid()))
        return rows


class Shop:
    def __init__(self, home: Path, epochs: int, conf: dict[str, str]) -> None:
        self.home, self.epochs, self.place = home, epochs, home / "pid"
        runtime = Runtime(home, "local[2]", conf)
        spec = TopicSpec("orders", 1, Schema.of(ORDERS), "at", durability="os")
        with Producer(runtime.log.create(spec), batch_rows=ROWS, linger="1 day") as producer:
            for n in range(epochs * ROWS):
                producer.send({"user": f"u{n % 3}", "amount": n, "at": START + timedelta(seconds=3 * n)})
        flow = Flow("shop")
        orders = flow.stream("orders", ORDERS, time="at", lateness="5 seconds", idle="1 hour")
        named = orders.map_arrow(Named(self.place), ORDERS, name="named")
        named.view("rows")
        named.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), name="sales").view("sales")
        self.driver: Driver = runtime.driver(runtime.plan(flow))
        self.driver.start()

    def epoch(self) -> int:
        """One more; the process that it ran in."""
        report = self.driver.epoch(EpochRequest(rows=ROWS))
        assert report
        assert report.rows == ROWS
        return int(self.place.read_text())

    def check(self) -> None:
        self.driver.stop()
        assert sorted(row["amount"] for row in view(self.home, "rows")) == list(range(self.epochs * ROWS))


@pytest.fixture
def shops(tmp_path: Path, spark: "SparkSession") -> Iterator[list[Shop]]:
    made: list[Shop] = []
    yield made
    for shop in made:
        shop.driver.release()
    residents_of(spark.sparkContext, True, print).release()


def connected(spark: "SparkSession") -> None:
    """Waits until a task is there for the next epoch."""

    def there() -> bool:
        with residents_of(spark.sparkContext, True, print).taken() as resident:
            return resident is not None

    assert until(there), "no task has come"


def test_small_epochs_run_in_one_process(tmp_path: Path, spark: "SparkSession", shops: list[Shop]) -> None:
    shop = Shop(tmp_path, 6, {})
    shops.append(shop)
    processes = {shop.epoch() for _ in range(6)}
    assert len(processes) == 1
    shop.check()


def test_every_epoch_is_a_job_where_that_is_asked_for(
    tmp_path: Path, spark: "SparkSession", shops: list[Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, 2, {RESIDENT: "false"})
    shops.append(shop)
    known = residents_of(spark.sparkContext, True, print)
    monkeypatch.setattr(known, "taken", lambda: pytest.fail("a resident task was asked for"))
    shop.epoch()
    shop.epoch()
    shop.check()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_another_process_takes_over_and_no_row_is_lost(
    how: signal.Signals, tmp_path: Path, spark: "SparkSession", shops: list[Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HUNG", 3.0)
    shop = Shop(tmp_path, 8, {})
    shops.append(shop)
    connected(spark)
    first = shop.epoch()
    os.kill(first, how)
    for _ in range(3):
        assert shop.epoch() != first
    connected(spark)
    assert len({shop.epoch() for _ in range(4)}) == 1
    shop.check()
    assert until(lambda: not psutil.pid_exists(first)), "Spark has not ended the process that does not answer"
