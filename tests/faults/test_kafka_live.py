"""A live flow whose broker is killed or stopped and comes back: it waits, goes on by itself, and costs no row (G30)."""

import itertools
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from faults.engine_shop import SparkFree, view
from penstock import Flow
from penstock.engine.run import loop
from penstock.engine.run.waiting import WaitMessages
from penstock.errors import Unreachable
from penstock.log.open import open_log
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer
from penstock.testing.servers.kafka_broker import KafkaBroker
from waiting import until

pytestmark = pytest.mark.faults
GROUPS = Path(__file__).with_name("kafka_groups_child.py")
PARTITIONS = 4


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory, kafka_broker: KafkaBroker) -> Iterator[KafkaBroker]:
    """One that may be hurt."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as mine:
        yield mine


def passing_on() -> Flow:
    flow = Flow("pass")
    numbers = flow.stream("numbers", "n long")
    numbers.view("numbers", key="n")
    numbers.to("copies", partitions=2)
    return flow


class Writer:
    """Writes number after number, each until it is acknowledged."""

    def __init__(self, url: str) -> None:
        self.topic = open_log(url=url).topic("numbers")
        self.sent, self.stop = 0, threading.Event()
        self.thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        with Producer(self.topic, linger="1 ms") as producer:
            for n in itertools.count():
                if self.stop.wait(0.01):
                    return
                try:
                    producer.send({"n": n}, partition=n % PARTITIONS)
                except Unreachable:  # it is kept, and sent again
                    self._flush(producer)
                if n % 10 == 9:
                    self._flush(producer)
                    self.sent = n + 1

    def _flush(self, producer: Producer) -> None:
        """A producer gives up after a minute or so; what was not acknowledged is sent again under its own numbers."""
        while True:
            with suppress(Unreachable):
                return producer.flush()


class Running:
    """The flow, live, in a thread."""

    def __init__(self, home: Path) -> None:
        runtime = SparkFree(home)
        self.driver = runtime.driver(runtime.plan(passing_on()))
        self.driver.start()
        self.stop, self.said, self.failed = threading.Event(), list[str](), list[BaseException]()
        self.epochs = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            loop.run(self.driver, self.stop, self._seen, every=0.02, messages=WaitMessages(self.said.append, self.said.append))
        except BaseException as error:
            self.failed.append(error)

    def _seen(self, report: Any) -> None:
        self.epochs += 1


def live_through(rounds: int, broker: KafkaBroker, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """So many kills and orderly stops, in turn, under a flow that runs and a producer that writes."""
    monkeypatch.setenv("PENSTOCK_LOG", f"{broker.url}?transaction_timeout=5")
    log = open_log()
    log.create(TopicSpec("numbers", PARTITIONS, _schema("n long")))
    writer, running = Writer(f"{broker.url}?transaction_timeout=5"), Running(home)
    writer.thread.start()
    for number in range(rounds):
        before = running.epochs
        assert until(lambda seen=before: running.epochs > seen + 2 or running.failed or not writer.thread.is_alive()), running.said  # type: ignore[misc]
        broker.kill() if number % 2 == 0 else broker.stop()
        words = len(running.said)
        if number == 0:  # it says that it waits
            assert until(lambda said=words: len(running.said) > said or running.failed), running.said  # type: ignore[misc]
        broker.start()
    before = running.epochs
    assert until(lambda: running.epochs > before + 2 or running.failed), running.said
    assert running.failed == [], [str(error) for error in running.failed]
    writer.stop.set()
    writer.thread.join()
    running.stop.set()
    running.thread.join()
    loop.catch_up(running.driver, threading.Event(), lambda report: None)
    running.driver.stop()
    assert running.failed == []
    came = Counter(row["n"] for row in view(home, "numbers"))
    assert writer.sent
    assert came == Counter(range(max(came) + 1))
    assert max(came) + 1 >= writer.sent
    copies = log.topic("copies")
    assert Counter(n for p in copies.ends() for chunk in copies.read(p) for n in chunk.rows["n"].to_pylist()) == came
    return running.said


def _schema(ddl: str) -> Any:
    from penstock import Schema

    return Schema.of(ddl)


@pytest.mark.long
def test_a_live_flow_waits_for_its_broker_and_goes_on(tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while nobody writes; the long form kills it in the middle of everything."""
    monkeypatch.setenv("PENSTOCK_LOG", f"{broker.url}?transaction_timeout=5")
    log = open_log()
    log.create(TopicSpec("numbers", PARTITIONS, _schema("n long")))
    running = Running(tmp_path)
    send(log, 0, 20)
    assert until(lambda: arrived(tmp_path, 20) or bool(running.failed)), running.said
    broker.kill()
    words = len(running.said)
    assert until(lambda: len(running.said) > words or bool(running.failed)), running.said
    broker.start()
    send(log, 20, 40)
    assert until(lambda: arrived(tmp_path, 40) or bool(running.failed)), running.said
    running.stop.set()
    running.thread.join()
    assert running.failed == [], [str(error) for error in running.failed]
    running.driver.stop()
    copies = log.topic("copies")
    assert sorted(n for p in copies.ends() for chunk in copies.read(p) for n in chunk.rows["n"].to_pylist()) == list(range(40))
    said = running.said
    assert any("pass waits since" in text and f"Kafka at {broker.address} cannot be used" in text for text in said), said
    assert any(text.startswith("pass goes on after ") for text in said), said


def send(log: Any, start: int, stop: int) -> None:
    with Producer(log.topic("numbers")) as producer:
        for n in range(start, stop):
            producer.send({"n": n}, partition=n % PARTITIONS)


def arrived(home: Path, numbers: int) -> bool:
    return (home / "views" / "numbers.db").exists() and len(view(home, "numbers")) == numbers


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_live_flow_lives_through_many_restarts_of_its_broker(
    tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_through(8, broker, tmp_path, monkeypatch)


@pytest.mark.long
def test_requests_about_groups_that_a_dead_broker_left_open_do_not_end_the_process(tmp_path: Path, broker: KafkaBroker) -> None:
    """librdkafka aborts, or hangs, when it finds the coordinator of a request that has timed out (its issue 4605)."""
    command = [sys.executable, str(GROUPS), broker.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == "put\n"
        for _ in range(2):
            broker.kill()
            child.stdin.write("gone\n")
            assert child.stdout.readline() == "Unreachable\n"
            broker.start()
            child.stdin.write("back\n")
            assert child.stdout.readline() == "put\n", child.poll()
