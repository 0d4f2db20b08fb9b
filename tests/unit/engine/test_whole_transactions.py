"""An epoch over captured topics holds whole transactions alone, and cuts all tables of a capture at one commit."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from captured import Captured, Write
from penstock import Flow, agg
from penstock.capture.commits import Commits, commits_of
from penstock.core.columns import VALUE
from penstock.engine.run import loop
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.epoch.report import Report
from penstock.errors import Mismatch
from penstock.log.memory import MemoryLog
from penstock.log.port import Chunk, Topic, TopicSpec
from penstock.testing.waiting import until
from unit.engine.homes import Home

ACCOUNTS = "id long, balance long"
TABLES = {"savings": ACCOUNTS, "checking": ACCOUNTS}
PATIENCE = 30.0


class Killed(BaseException):
    """The capture is gone."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def transfer(savings: int, checking: int, op: str = "u") -> list[Write]:
    """Both accounts as they are behind it."""
    return [Write("savings", op, {"id": 1, "balance": savings}), Write("checking", op, {"id": 1, "balance": checking})]


def bank() -> Flow:
    """Two tables, brought together: the sum never changes."""
    flow = Flow("bank")
    savings, checking = (flow.table(f"shop.public.{name}", name=name) for name in ("savings", "checking"))
    savings.join(checking, on="id").view("accounts")
    return flow


def total(home: Home) -> int:
    return sum(row["balance"] + row["checking_balance"] for row in home.rows("accounts"))


def started(home: Home, flow: Flow) -> Driver:
    driver = home.driver(flow)
    driver.start()
    return driver


def read(report: Report | None) -> dict[str, int]:
    """The rows that an epoch has read, by table."""
    assert report
    ranges = report.decision.ranges
    return {name.rpartition(".")[2]: sum(stop - start for start, stop in parts.values()) for name, parts in ranges.items()}


def test_rows_behind_the_last_end_wait_for_theirs(home: Home) -> None:
    points: list[str] = []

    def fail(point: str) -> None:
        points.append(point)
        if points.count("capture.appended") == 4:
            raise Killed

    captured = Captured(home.log, TABLES, fail=fail)
    captured.write(transfer(100, 0, "c"))
    driver = started(home, bank())
    assert driver.epoch()
    captured.fail = lambda point: None
    with pytest.raises(Killed):
        captured.write(transfer(70, 30), transfer(60, 40))
    assert home.log.topic("shop.public.savings").ends()[0].next == 3, "the rows of one table are there"
    assert driver.epoch() is None
    captured.start()
    captured.write(transfer(70, 30), transfer(60, 40))
    assert read(driver.epoch()) == {"savings": 2, "checking": 2}
    driver.release()
    assert total(home) == 100


def test_a_transaction_that_goes_on_in_the_next_batch_is_waited_for(home: Home) -> None:
    captured = Captured(home.log, TABLES)
    captured.write(transfer(100, 0, "c"))
    driver = started(home, bank())
    driver.epoch()
    captured.write(transfer(90, 10), transfer(80, 20)[:1], ends=False)
    assert driver.epoch() is None, "an END behind which a transaction is open is none"
    captured.write(transfer(80, 20)[1:])
    assert read(driver.epoch()) == {"savings": 2, "checking": 2}
    driver.release()


def test_the_row_budget_chooses_an_earlier_commit_and_a_large_transaction_goes_whole(home: Home) -> None:
    captured = Captured(home.log, TABLES)
    captured.write(transfer(100, 0, "c"))
    for moved in range(1, 6):
        captured.write(transfer(100 - moved, moved))
    captured.write(*([transfer(50, 50)] * 4))
    driver = started(home, bank())
    epochs = [driver.epoch(EpochRequest(rows=rows)) for rows in (5, 1, 6, 3)]
    assert [read(epoch)["savings"] for epoch in epochs] == [2, 1, 3, 4]
    assert [read(epoch)["checking"] for epoch in epochs] == [2, 1, 3, 4]
    assert [epoch.behind for epoch in epochs if epoch] == [16, 14, 8, 0]
    assert driver.epoch() is None
    driver.release()


def test_an_epoch_that_was_opened_and_not_decided_is_opened_anew_from_where_it_was(home: Home) -> None:
    captured = Captured(home.log, TABLES)
    captured.write(transfer(100, 0, "c"))
    for moved in range(1, 6):
        captured.write(transfer(100 - moved, moved))
    driver = started(home, bank())
    assert driver.open(EpochRequest(rows=6)).rows == 6
    assert read(driver.epoch(EpochRequest(rows=2))) == {"savings": 1, "checking": 1}
    driver.release()


@pytest.mark.parametrize("most", [1, 3, 7, None])
def test_a_bounded_run_reads_every_commit_that_was_there(home: Home, most: int | None) -> None:
    captured = Captured(home.log, TABLES)
    captured.write(transfer(100, 0, "c"))
    for moved in range(20):
        captured.write(transfer(100 - moved, moved))
    driver = home.run(bank(), most=most)
    assert driver.last
    assert driver.last.fates["savings"]["in"] == 21
    assert total(home) == 100


def test_a_bounded_run_stops_at_the_commit_before_its_ends(home: Home) -> None:
    captured = Captured(home.log, TABLES)
    captured.write(transfer(100, 0, "c"))
    driver = started(home, bank())
    stops = loop.ends(driver)
    captured.write(transfer(99, 1))
    assert read(driver.epoch(EpochRequest(stops=stops))) == {"savings": 1, "checking": 1}
    assert driver.epoch(EpochRequest(stops=stops)) is None
    assert driver.epoch()
    driver.release()


def test_other_topics_are_read_beside_captured_ones_with_what_is_left_of_the_budget(home: Home) -> None:
    captured = Captured(home.log, TABLES)
    captured.write(transfer(100, 0, "c"))
    home.send("clicks", *({"id": n} for n in range(10)), schema="id long", time=None)
    flow = bank()
    flow.stream("clicks", "id long").view("clicks")
    driver = started(home, flow)
    assert read(driver.epoch(EpochRequest(rows=3))) == {"savings": 1, "checking": 1, "clicks": 10}
    captured.write(transfer(90, 10))
    home.send("clicks", {"id": 10}, schema="id long", time=None)
    assert read(driver.epoch(EpochRequest(rows=2))) == {"savings": 1, "checking": 1}
    assert read(driver.epoch(EpochRequest(rows=2))) == {"clicks": 1}
    driver.release()


def test_streams_over_captured_topics_and_the_journal_are_cut_alike(home: Home) -> None:
    captured = Captured(home.log, TABLES)
    flow = Flow("raw")
    flow.stream("shop.public.savings", "op string").view("ops")
    flow.stream("shop.transaction", "status string, id string").view("transactions")
    captured.write(transfer(100, 0, "c"))
    driver = started(home, flow)
    driver.epoch()
    captured.write(transfer(90, 10)[:1], ends=False)
    assert driver.epoch() is None
    captured.write(transfer(90, 10)[1:])
    driver.epoch()
    driver.release()
    assert [row["op"] for row in home.rows("ops")] == ["c", "u"]
    assert [row["status"] for row in home.rows("transactions")] == ["BEGIN", "END", "BEGIN", "PART", "PART", "END"]


def test_a_table_that_is_added_later_is_read_from_its_first_commit_on(home: Home) -> None:
    captured = Captured(home.log, {"savings": ACCOUNTS})
    captured.write([Write("savings", "c", {"id": 1, "balance": 100})])
    flow = Flow("bank")
    flow.table("shop.public.savings").view("savings")
    flow.table("shop.public.checking", ACCOUNTS, key="id").view("checking")
    driver = started(home, flow)
    assert read(driver.epoch()) == {"savings": 1}
    captured.tables["checking"] = ACCOUNTS
    captured.write(transfer(90, 10))
    assert read(driver.epoch()) == {"savings": 1, "checking": 1}
    driver.release()


def test_what_retention_has_removed_in_part_is_read_with_what_follows_it(home: Home) -> None:
    captured = Captured(home.log, TABLES)
    captured.write(transfer(100, 0, "c"))
    for moved in range(1, 5):
        captured.write(transfer(100 - moved, moved))
    trimmed = Trimmed(home.log.topic("shop.public.savings"), 3)
    home.log = Standing(home.log, trimmed)  # type: ignore[assignment]
    driver = started(home, bank())
    assert read(driver.epoch(EpochRequest(rows=1))) == {"checking": 3}, "up to where both tables are there"
    assert read(driver.epoch(EpochRequest(rows=1))) == {"savings": 1, "checking": 1}
    assert read(driver.epoch(EpochRequest(rows=1))) == {"savings": 1, "checking": 1}
    driver.release()
    assert total(home) == 100


class Trimmed:
    """A topic whose first rows were removed."""

    def __init__(self, topic: Topic, first: int) -> None:
        self._topic, self._first = topic, first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)

    def ends(self) -> dict[int, Any]:
        return {number: end._replace(first=self._first) for number, end in self._topic.ends().items()}


class Standing:
    """A log with another topic in the place of one."""

    def __init__(self, log: Any, topic: Any) -> None:
        self._log, self._topic = log, topic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def topic(self, name: str) -> Any:
        return self._topic if name == self._topic.spec.name else self._log.topic(name)


def test_a_journal_that_is_gone_stops_the_flow(home: Home) -> None:
    Captured(home.log, TABLES).write(transfer(100, 0, "c"))
    home.log.delete("shop.transaction")
    flow = Flow("savings")
    flow.table("shop.public.savings", ACCOUNTS, key="id").view("savings")
    driver = started(home, flow)
    with pytest.raises(Mismatch, match=r"topic shop\.transaction is gone"):
        driver.epoch()
    driver.release()


class Counted:
    """A topic that counts the rows that are read of it."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)

    def read(self, *args: Any, **how: Any) -> Iterator[Chunk]:
        for chunk in self._topic.read(*args, **how):
            self.rows += chunk.frame.count
            yield chunk


@pytest.fixture(scope="module")
def long() -> MemoryLog:
    """With the journal of 500 transactions, a row each."""
    log = MemoryLog()
    captured = Captured(log, {"savings": ACCOUNTS})
    for number in range(500):
        captured.write([Write("savings", "c", {"id": number, "balance": 0})])
    return log


def up_to(rows: int) -> Callable[[Any], bool]:
    return lambda commit: commit.at("shop.public.savings", 0) <= rows


@pytest.mark.parametrize("rows", [0, 1, 2, 249, 250, 498, 499, 500, 1_000])
def test_a_commit_is_found_in_a_long_journal_by_reading_little_of_it(long: MemoryLog, rows: int) -> None:
    counted = Counted(long.topic("shop.transaction"))
    commits = Commits(counted)  # type: ignore[arg-type]
    last, first = commits.divided(up_to(rows))
    assert (last.at("shop.public.savings", 0) if last else 0) == min(rows, 500)
    assert (first.at("shop.public.savings", 0) if first else None) == (rows + 1 if rows < 500 else None)
    assert counted.rows < 100, "of a thousand"
    counted.rows = 0
    commits.newest()
    assert counted.rows == 0, "a journal that has not grown is not read again"


def test_a_journal_without_an_end_has_no_commit() -> None:
    log = MemoryLog()
    log.create(TopicSpec("shop.transaction", capture="shop"))
    assert commits_of(log, "shop").divided(up_to(1)) == (None, None)


def test_a_live_run_is_woken_by_the_end_of_a_transaction(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "IDLE_WAIT", PATIENCE)
    captured = Captured(home.log, TABLES)
    captured.write(transfer(100, 0, "c"))
    driver, stop, reports = started(home, bank()), threading.Event(), list[Report]()
    running = threading.Thread(target=loop.run, args=(driver, stop, reports.append))
    running.start()
    try:
        assert until(lambda: len(reports) == 1, PATIENCE)
        captured.write(transfer(90, 10))
        assert until(lambda: len(reports) == 2, PATIENCE / 2)
    finally:
        stop.set()
        captured.write(transfer(80, 20))
        running.join(PATIENCE)
        driver.release()


def test_a_live_run_that_was_there_before_the_capture_is_woken_by_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "IDLE_WAIT", PATIENCE)
    flow = Flow("savings")
    flow.table("shop.public.savings", ACCOUNTS, key="id").view("savings")
    driver, stop, reports = started(home, flow), threading.Event(), list[Report]()
    running = threading.Thread(target=loop.run, args=(driver, stop, reports.append))
    running.start()
    captured = Captured(home.log, TABLES)
    try:
        for balance in range(3):
            captured.write(transfer(balance, 0, "u" if balance else "c"))
            assert until(lambda: driver.last is not None and driver.last.fates["shop.public.savings"]["in"] > balance, PATIENCE / 2)  # noqa: B023
    finally:
        stop.set()
        captured.write(transfer(80, 20))
        running.join(PATIENCE)
        driver.release()


def test_rows_of_an_unfinished_batch_do_not_keep_an_idle_run_busy(home: Home) -> None:
    captured = Captured(home.log, TABLES)
    captured.write(transfer(100, 0, "c"))
    driver = started(home, bank())
    driver.epoch()
    savings = home.log.topic("shop.public.savings")
    savings.append(0, next(iter(savings.read(0))).rows.select([VALUE]))
    assert driver.watched == ["shop.transaction"]
    assert driver.read_to() == {("shop.transaction", 0): home.log.topic("shop.transaction").ends()[0].next}
    driver.release()


def test_aggregates_over_both_tables_agree_at_every_epoch(home: Home) -> None:
    captured = Captured(home.log, TABLES)
    captured.write(transfer(100, 0, "c"))
    for moved in range(1, 8):
        captured.write(transfer(100 - moved, moved))
    flow = Flow("sums")
    for table in TABLES:
        flow.table(f"shop.public.{table}").group_by("id").agg(total=agg.sum("balance")).view(table)
    driver = started(home, flow)
    seen = []
    while driver.epoch(EpochRequest(rows=3)):
        seen.append(sum(row["total"] for table in TABLES for row in home.rows(table)))
    driver.release()
    assert seen == [100] * 8
