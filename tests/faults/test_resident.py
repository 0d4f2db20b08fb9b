"""Resident tasks that die, stop, run out of memory or come back too late: every row counts once, and the flow goes on (G30).

The tasks run in processes of their own, as in Spark's workers, but without Spark: see tests/spark for the same with it.
"""

import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faults.engine_shop import SparkFree, last_decision, view
from penstock import Flow, Producer, Schema, Tumbling, agg
from penstock.engine.execute.job import travels_whole
from penstock.engine.execute.placement import InProcess, Placement
from penstock.engine.execute.resident import residents as module
from penstock.engine.execute.resident.listening import Listener
from penstock.engine.execute.resident.residents import Residents, ResidentTask
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.progress import balance
from penstock.log.port import TopicSpec
from spawned import SpawnedTasks
from waiting import until

pytestmark = pytest.mark.faults

ORDERS = "user string, amount long, at timestamp"
START = datetime(2024, 1, 15, 10, tzinfo=UTC)
ROWS = 20  # of an epoch


class Misbehaves:
    """Passes rows on; in a task, when the file that it was given is there, takes that away and does what the file says."""

    def __init__(self, order: Path) -> None:
        self.order, self.driver = str(order), os.getpid()

    def __call__(self, rows: pa.Table) -> pa.Table:
        if os.getpid() == self.driver:
            return rows
        try:
            with open(self.order) as file:
                what = file.read()
            os.unlink(self.order)
        except FileNotFoundError:
            return rows
        if what == "memory":
            raise MemoryError("no more of it")
        os.kill(os.getpid(), signal.Signals[what])
        return rows


def shop(through: Callable[[pa.Table], pa.Table]) -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="5 seconds", idle="1 hour").map_arrow(through, ORDERS, name="passed")
    orders.view("rows")
    orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), total=agg.sum("amount"), name="sales").view("sales")
    return flow


class Resident(SparkFree):
    """Small epochs go to a resident task; `elsewhere` counts those that were run again, or at once, without one."""

    def __init__(self, home: Path, tasks: SpawnedTasks) -> None:
        super().__init__(home)
        self.said: list[str] = []
        self.residents = Residents(tasks, lambda: Listener(home), 1, self.said.append)
        self.elsewhere = 0

    def place(self, rows: int) -> Placement:
        return ResidentTask(self.residents, self)

    def run(self, job: Any) -> Any:
        self.elsewhere += 1
        return InProcess().run(job)


@pytest.fixture(autouse=True, scope="module")
def _functions_travel() -> None:
    travels_whole(sys.modules[__name__])  # tasks cannot import it


@pytest.fixture
def tasks() -> Iterator[SpawnedTasks]:
    made = SpawnedTasks()
    yield made
    made.close()


class Shop:
    def __init__(self, tmp_path: Path, tasks: SpawnedTasks, epochs: int) -> None:
        (tmp_path / "h").mkdir(0o700)
        self.home, self.order, self.tasks = tmp_path / "h", tmp_path / "order", tasks
        self.runtime = Resident(self.home, tasks)
        spec = TopicSpec("orders", 1, Schema.of(ORDERS), "at", durability="os")
        with Producer(self.runtime.log.create(spec), batch_rows=ROWS, linger="1 day") as producer:
            for n in range(epochs * ROWS):
                producer.send({"user": f"u{n % 3}", "amount": n, "at": START + timedelta(seconds=3 * n)})
        self.driver: Driver = self.runtime.driver(self.runtime.plan(shop(Misbehaves(self.order))), threaded=False)
        self.driver.start()

    def epoch(self) -> None:
        report = self.driver.epoch(EpochRequest(rows=ROWS))
        assert report
        assert report.rows == ROWS

    def until_resident(self) -> None:
        """Waits for a task to be connected, without running anything."""

        def there() -> bool:
            with self.runtime.residents.taken() as resident:
                return resident is not None

        assert until(there), "no task has come back"

    def check(self, epochs: int) -> None:
        """Every row once, every closed window with the sum of its rows, balanced books."""
        self.driver.stop()
        assert sorted(row["amount"] for row in view(self.home, "rows")) == list(range(epochs * ROWS))
        sums: Counter[tuple[str, datetime]] = Counter()
        for n in range(epochs * ROWS):
            sums[f"u{n % 3}", (START + timedelta(seconds=3 * n)).replace(second=0)] += n
        closed = START + timedelta(seconds=3 * (epochs * ROWS - 1) - 5)
        expected = {key: total for key, total in sums.items() if key[1] + timedelta(minutes=1) <= closed}
        assert {(row["user"], row["window_start"]): row["total"] for row in view(self.home, "sales")} == expected
        last = last_decision(self.home, "shop")
        assert last
        assert [(step, rows) for step, rows, known in balance(last.fates) if rows != known] == []


def kill(tasks: SpawnedTasks) -> None:
    for process in list(tasks.live):
        if process.pid:
            os.kill(process.pid, signal.SIGKILL)


def test_small_epochs_go_to_the_task_that_stays(tmp_path: Path, tasks: SpawnedTasks) -> None:
    shop = Shop(tmp_path, tasks, 6)
    for _ in range(6):
        shop.epoch()
    assert (tasks.started, shop.runtime.elsewhere) == (1, 0)
    shop.check(6)


@pytest.mark.parametrize("what", ["SIGKILL", "memory", "SIGSTOP"])
def test_an_epoch_whose_task_dies_is_run_again_and_another_task_comes(
    what: str, tmp_path: Path, tasks: SpawnedTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HUNG", 3.0)
    shop = Shop(tmp_path, tasks, 8)
    shop.epoch()
    stopped = list(tasks.live)
    shop.order.write_text(what)
    shop.epoch()
    assert not shop.order.exists()
    assert shop.runtime.elsewhere == 1
    shop.epoch()
    shop.until_resident()
    before = shop.runtime.elsewhere
    for _ in range(4):
        shop.epoch()
    assert shop.runtime.elsewhere == before
    assert [process for process in stopped if process.is_alive()] == []
    shop.epoch()
    shop.check(8)


def test_a_task_that_wakes_too_late_harms_nobody(tmp_path: Path, tasks: SpawnedTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HUNG", 3.0)
    monkeypatch.setattr(tasks, "cancelJobGroup", lambda group: None)  # Spark cannot reach it either
    shop = Shop(tmp_path, tasks, 6)
    shop.epoch()
    (zombie,) = tasks.live
    shop.order.write_text("SIGSTOP")
    shop.epoch()
    shop.epoch()
    assert zombie.pid
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.join(30)
    for _ in range(3):
        shop.epoch()
    shop.check(6)


def test_a_task_that_is_killed_between_two_epochs_is_noticed_by_the_next(tmp_path: Path, tasks: SpawnedTasks) -> None:
    shop = Shop(tmp_path, tasks, 4)
    shop.epoch()
    kill(tasks)
    for _ in range(3):
        shop.epoch()
    shop.check(4)


def test_tasks_that_never_come_to_be_are_given_up_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoTasks(SpawnedTasks):
        def parallelize(self, rows: Any, parts: int) -> Any:
            raise RuntimeError("Spark has no slots")

    shop = Shop(tmp_path, NoTasks(), 12)
    for _ in range(12):
        shop.epoch()
    assert shop.runtime.elsewhere == 12
    assert len(shop.runtime.said) == 1
    assert "every epoch is a Spark job" in shop.runtime.said[0]
    shop.check(12)


def test_a_task_gives_its_slot_back_for_a_large_epoch(tmp_path: Path, tasks: SpawnedTasks) -> None:
    shop = Shop(tmp_path, tasks, 3)
    shop.epoch()
    (process,) = tasks.live
    shop.runtime.residents.release()
    assert until(lambda: process not in tasks.live)
    assert process.exitcode == 0
    shop.epoch()
    shop.epoch()
    shop.check(3)


STEPS = ("after_open", "after_run", "before_decide", "after_decide", "after_sweep")


def _lost_at(step: str, how: signal.Signals, tmp_path: Path, tasks: SpawnedTasks) -> None:
    shop = Shop(tmp_path, tasks, 6)
    reached: list[str] = []

    def fail(point: str) -> None:
        reached.append(point)
        if point == step and reached.count(step) == 2:
            for process in tasks.live:
                assert process.pid
                os.kill(process.pid, how)

    shop.driver.context.fail = fail
    for _ in range(6):
        shop.epoch()
    assert reached.count(step) >= 6
    assert shop.runtime.elsewhere >= 1
    shop.check(6)


@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_is_killed_at_a_step_of_its_flow_costs_no_row(step: str, tmp_path: Path, tasks: SpawnedTasks) -> None:
    _lost_at(step, signal.SIGKILL, tmp_path, tasks)


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_is_stopped_at_a_step_of_its_flow_costs_no_row(
    step: str, tmp_path: Path, tasks: SpawnedTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HUNG", 3.0)
    _lost_at(step, signal.SIGSTOP, tmp_path, tasks)


def _killed_at_random(tmp_path: Path, tasks: SpawnedTasks, epochs: int) -> None:
    """A tenth of the epochs lose their task, before them or while they run."""
    rng = random.Random(epochs)
    shop = Shop(tmp_path, tasks, epochs)
    tasks.tries = 2
    for _ in range(epochs):
        draw = rng.random()
        if draw < 0.05:
            shop.order.write_text("SIGKILL")
        elif draw < 0.1:
            threading.Timer(rng.random() * 0.02, kill, [tasks]).start()
        shop.epoch()
    assert tasks.started > 1
    shop.check(epochs)


def test_a_task_that_is_killed_at_random_costs_no_row(tmp_path: Path, tasks: SpawnedTasks) -> None:
    _killed_at_random(tmp_path, tasks, 60)


@pytest.mark.long
def test_a_task_that_is_killed_at_random_over_a_thousand_epochs(tmp_path: Path, tasks: SpawnedTasks) -> None:
    _killed_at_random(tmp_path, tasks, 1000)
