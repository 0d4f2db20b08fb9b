"""Debezium's engine on a real PostgreSQL and a real MariaDB: a snapshot and whole transactions, each once, through kills."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from debezium_sources import PASSWORD, Captured, MariaDbPlace, PostgresPlace, Source, Workload, check, log_of, run_of
from penstock.testing.contracts.capture.records import journal_of
from penstock.testing.servers.mariadb import MariaDbServer
from waiting import until

SCRIPT = Path(__file__).with_name("debezium_child.py")
PATIENCE = 90.0


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.long), "mariadb"])
def source(request: pytest.FixtureRequest, debezium: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    monkeypatch.setenv(PASSWORD, MariaDbServer.password)
    made: PostgresPlace | MariaDbPlace
    if request.param == "postgres":
        made = PostgresPlace(request.getfixturevalue("postgres"))
    else:
        made = MariaDbPlace(request.getfixturevalue("mariadb"), request.getfixturevalue("mariadb_jars"))
    yield made
    made.drop()


@contextmanager
def running(source: Source, home: Path, **options: Any) -> Iterator[Captured]:
    """A capture that runs in a thread until the end; its errors are raised there."""
    run, raised = run_of(source, home, **options), list[BaseException]()

    def follow() -> None:
        try:
            run.run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield Captured(log_of(home), source)
    finally:
        run.stop()
        thread.join(PATIENCE)
        for error in raised:
            raise error


def ended(captured: Captured) -> int:
    return sum(entry.status == "END" for entry in journal_of(captured.log, captured.source.name))


def test_a_snapshot_and_then_every_transaction_whole_and_in_order(source: Source, tmp_path: Path) -> None:
    workload = Workload(Random(1))
    source.execute(workload.sql(30))
    with running(source, tmp_path) as captured:
        assert until(lambda: ended(captured) > 0, PATIENCE)
        source.execute(workload.sql(60))
        assert until(lambda: captured.fold() == workload.state, PATIENCE)
    check(captured, workload)


def test_what_is_sent_again_is_written_once(source: Source, tmp_path: Path) -> None:
    """Without heartbeats nothing moves the offset on behind the last transaction: MariaDB sends that one again."""
    workload = Workload(Random(4))
    source.execute(workload.sql(5))
    for _ in range(2):
        with running(source, tmp_path, heartbeat=600) as captured:
            assert until(lambda: ended(captured) > 0, PATIENCE)
            source.execute(workload.sql(10))
            assert until(lambda: captured.fold() == workload.state, PATIENCE)
    check(captured, workload)


def test_a_run_that_catches_up_ends_with_everything_there(source: Source, tmp_path: Path) -> None:
    workload = Workload(Random(2))
    source.execute(workload.sql(20))
    run_of(source, tmp_path).run(catch_up=True)
    source.execute(workload.sql(20))
    run_of(source, tmp_path).run(catch_up=True)
    captured = Captured(log_of(tmp_path), source)
    check(captured, workload)
    before = journal_of(captured.log, source.name)
    run_of(source, tmp_path).run(catch_up=True)
    assert journal_of(captured.log, source.name) == before


def test_kills_of_the_capture_and_of_debezium_lose_and_double_nothing(source: Source, tmp_path: Path) -> None:
    killed(source, tmp_path, Random(3), rounds=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_of_the_capture_and_of_debezium_lose_and_double_nothing(source: Source, tmp_path: Path, seed: int) -> None:
    killed(source, tmp_path, Random(100 + seed), rounds=10)


def killed(source: Source, home: Path, random: Random, rounds: int) -> None:
    """While transactions are made, the capture or the process of Debezium is killed again and again, in the snapshot too."""
    workload = Workload(random)
    source.execute(workload.sql(40))
    captured = Captured(log_of(home), source)
    (home / "definition.json").write_text(json.dumps(source.definition().json()))
    for number in range(rounds):
        with own_run(home) as process:
            source.execute(workload.sql(random.randrange(20)))
            _kill(process, random, lambda: ended(captured), first=number == 0)
        source.execute(workload.sql(random.randrange(10)))
    source.execute(workload.sql(5))
    run_of(source, home).run(catch_up=True)
    check(captured, workload)


@contextmanager
def own_run(home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen([sys.executable, str(SCRIPT), str(home)], env=env, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            failed = process.poll() is not None and process.returncode > 0
            process.kill()
            said = process.stderr.read().decode() if process.stderr else ""
            assert not failed, said


def _kill(process: "subprocess.Popen[bytes]", random: Random, done: Callable[[], int], first: bool) -> None:
    """At once, or when a batch more has come; the whole capture, or Debezium's process, which is then started again."""
    before, batches = done(), random.randrange(1, 3)
    until(lambda: done() >= before + batches or process.poll() is not None, 3.0 if first else random.uniform(2.0, 12.0))
    if random.random() < 0.5:
        _children(process, lambda children: os.kill(random.choice(children), signal.SIGKILL))
        until(lambda: done() > before + batches, random.uniform(1.0, 6.0))
    process.kill()
    process.wait(PATIENCE)


def _children(process: "subprocess.Popen[bytes]", act: Callable[[list[int]], None]) -> None:
    children = [child.pid for child in psutil.Process(process.pid).children()]
    if children:
        act(children)
