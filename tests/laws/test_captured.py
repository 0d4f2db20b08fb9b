"""Transfers between the accounts of three tables: their sum is the same at every epoch, however the capture has cut its batches,
whoever was killed, and whatever an epoch was allowed to read."""

import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from captured import START, Captured, Write
from penstock import Flow, View
from penstock.core.time import FixedClock
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.captures import Captures, Limit, Reading, Stops
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.outputs import targets
from penstock.engine.run.planning import facts_of, topics_read
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.log.memory import MemoryLog
from penstock.plan import Plan
from penstock.storage.local import LocalStorage

TABLES, ACCOUNTS, SUM = ("a", "b", "c"), 4, 100
POINTS = ("after_open", "after_run", "before_decide", "after_decide", "after_sweep", "view.rows")

Accounts = dict[tuple[str, int], int]  # table, id -> balance
Transaction = Sequence[Write]


class Killed(BaseException):
    """A process is gone."""


def transactions(rng: random.Random, count: int) -> list[list[Write]]:
    """Transfers over one to three tables, with accounts that are opened and closed; each leaves the sum as it was."""
    accounts: Accounts = {("a", 0): SUM}
    made = [[Write("a", "c", {"id": 0, "balance": SUM})]]
    while len(made) < count:
        made.append([write for _ in range(rng.randint(1, 4)) for write in _transfer(rng, accounts)])
    return made


def _transfer(rng: random.Random, accounts: Accounts) -> Iterator[Write]:
    source = rng.choice(sorted(accounts))
    target = (rng.choice(TABLES), rng.randrange(ACCOUNTS))
    if source == target:
        return
    amount = rng.choice([accounts[source], rng.randint(0, max(accounts[source], 0))])
    for account, change in ((source, -amount), (target, amount)):
        there = account in accounts
        accounts[account] = accounts.get(account, 0) + change
        row = {"id": account[1], "balance": accounts[account]}
        if not accounts[account] and there and rng.random() < 0.5:
            del accounts[account]
            yield Write(account[0], "d", row)
        else:
            yield Write(account[0], "u" if there else "c", row)


class Run:
    """A capture that writes, and a flow that reads, taking turns."""

    def __init__(self, seed: int, directory: Path, captures: type[Captures]) -> None:
        self.rng, self.directory, self.make = random.Random(seed), directory, captures
        self.log = MemoryLog(FixedClock(START))
        self.script = transactions(self.rng, self.rng.randint(3, 25))
        self.done, self.part = 0, 0  # transactions that were written, and writes of the next one
        self.kill: list[int] = []
        ddl = "id long, balance long"
        flat, partitions = self.rng.random() < 0.3, self.rng.choice([1, 3])
        self.capture = Captured(self.log, dict.fromkeys(TABLES, ddl), flat=flat, partitions=partitions, fail=self._capture_fails)
        self.capture.write()  # as an engine that knows of its tables, and has read nothing of them
        self.driver: Driver | None = None
        self.crash_at: str | None = None
        self.plan = self._plan()

    def _plan(self) -> Plan:
        flow = Flow("bank")
        for name in TABLES:
            flow.table(f"shop.public.{name}").view(name)
        return resolve(flow, NoAnalyzer(), facts_of(self.log, topics_read(flow)))

    def go(self) -> None:
        while self.done < len(self.script):
            self.rng.choice([self.write, self.epoch, self.crash, self.epoch])()
        while self.epoch():
            pass
        self.stop()

    # the capture

    def write(self) -> None:
        """A batch of some transactions, perhaps of parts of them; and perhaps not in one go."""
        part, ends = self._next()
        self.kill = [self.rng.randint(1, 6)] if self.rng.random() < 0.3 else []
        batch = self.capture.batch(part, ends)
        try:
            self.capture.writer.write(batch)
        except Killed:
            for _ in range(self.rng.randint(0, 2)):
                self.epoch()
            self.capture.start()
            self.capture.writer.write(batch)
        self.capture.number += len(part) if ends else len(part) - 1
        self.capture.begun = ends

    def _next(self) -> tuple[list[Transaction], bool]:
        stop = min(len(self.script), self.done + self.rng.randint(1, 3))
        found: list[Transaction] = [*self.script[self.done : stop]]
        found[0] = found[0][self.part :]
        self.done, self.part = stop, 0
        if len(found[-1]) > 1 and self.rng.random() < 0.3:
            kept = self.rng.randrange(1, len(found[-1]))
            self.part = len(self.script[stop - 1]) - len(found[-1]) + kept
            self.done, found[-1] = stop - 1, found[-1][:kept]
        return found, self.part == 0

    def _capture_fails(self, point: str) -> None:
        if self.kill:
            self.kill[0] -= 1
            if not self.kill[0]:
                self.kill.clear()
                raise Killed

    # the flow

    def epoch(self) -> bool:
        """Whether there was anything to do; what is to be seen behind it adds up."""
        driver = self._started()
        budget = self.rng.choice([1, 2, 5, 100])
        share = self.rng.random()
        request = EpochRequest(cut=lambda step, partition, rows: int(rows * share)) if self.rng.random() < 0.3 else None
        found = driver.epoch(request or EpochRequest(rows=budget))
        if found or request:
            self.check()
        return found is not None or (request is not None and driver.epoch() is not None)

    def crash(self) -> None:
        self.crash_at = self.rng.choice(POINTS)
        try:
            self.epoch()
        except Killed:
            self.stop()
        self.crash_at = None

    def check(self) -> None:
        found = {name: self._rows(name) for name in TABLES}
        total = sum(row["balance"] for rows in found.values() for row in rows)
        assert total == SUM or not any(found.values()), found

    def _rows(self, name: str) -> list[Mapping[str, int]]:
        with View(self.directory / "views", name) as view:
            rows: list[Mapping[str, int]] = view.rows().to_pylist()
            return rows

    def result(self) -> dict[tuple[str, int], int]:
        return {(name, row["id"]): row["balance"] for name in TABLES for row in self._rows(name)}

    def _started(self) -> Driver:
        if self.driver is None:
            storage = LocalStorage(str(self.directory / "flow"), sync=False)
            make = targets(self.log, storage, self.directory / "views", self._flow_fails)
            context = FlowContext(self.log, storage, make, buckets=2, clock=FixedClock(START), fail=self._flow_fails)
            self.driver = Driver(self.plan, context)
            self.driver.captures = self.make(self.log)
            self.driver.start()
        return self.driver

    def _flow_fails(self, point: str) -> None:
        if point == self.crash_at:
            self.crash_at = None
            raise Killed

    def stop(self) -> None:
        if self.driver:
            self.driver.release()
            self.driver = None


def expected(script: Sequence[Transaction]) -> dict[tuple[str, int], int]:
    """The tables as the database has them."""
    accounts: Accounts = {}
    for table, op, row in (write for transaction in script for write in transaction):
        accounts.pop((table, row["id"]), None)
        if op != "d":
            accounts[table, row["id"]] = row["balance"]
    return accounts


@contextmanager
def ran(seed: int, captures: type[Captures] = Captures) -> Iterator[Run]:
    directory = Path(tempfile.mkdtemp(prefix="penstock-law-"))
    try:
        run = Run(seed, directory, captures)
        try:
            run.go()
            yield run
        finally:
            run.stop()
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("seed", range(25))
def test_every_epoch_adds_up_and_any_cut_ends_in_the_tables_of_the_database(seed: int) -> None:
    with ran(seed) as run:
        assert run.result() == expected(run.script)


class EndsOfTopics(Captures):
    """Planted: reads what is there."""

    def limits(self, readings: Sequence[Reading], budget: int, stops: Stops) -> dict[tuple[str, int], Limit]:
        ends = {r: self._log.topic(r.topic).ends()[r.partition].next for r in readings}
        return {(r.step, r.partition): Limit(end, end) for r, end in ends.items()}


class EachTableAlone(Captures):
    """Planted: every table is cut at a commit, and each at one of its own."""

    def limits(self, readings: Sequence[Reading], budget: int, stops: Stops) -> dict[tuple[str, int], Limit]:
        found: dict[tuple[str, int], Limit] = {}
        for topic in {r.topic for r in readings}:
            found |= Captures(self._log).limits([r for r in readings if r.topic == topic], budget, stops)
        return found


@pytest.mark.parametrize("planted", [EndsOfTopics, EachTableAlone])
def test_a_flow_that_sees_half_of_a_transaction_is_caught(planted: type[Captures]) -> None:
    caught = 0
    for seed in range(12):
        try:
            with ran(seed, planted):
                pass
        except AssertionError:
            caught += 1
    assert caught
