"""A live flow over Kafka whose broker is killed, and whose fetches are cut, held back and ended anywhere: every row once (G29).

The work is done without Spark, so that it is the log that is tested. A driver that fails is replaced, and so is its process."""

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from faults.engine_shop import last_decision
from faults.kafka_passer import PARTITIONS
from faults.kafka_proxy import Fault, KafkaProxy
from penstock.errors import PenstockError
from penstock.log.accounting import balanced
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import TopicSpec
from penstock.testing.contracts.log.samples import raw
from penstock.testing.servers.kafka_broker import KafkaBroker
from waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(1200)]
PASSER = Path(__file__).with_name("kafka_passer.py")
KILLS = 15
CUTS = 120


class Live:
    """The flow, in a process that is started again when it dies, and whoever writes its input, until they are told to end."""

    def __init__(self, home: Path, url: str) -> None:
        self.home, self.settings = home, KafkaSettings.of(url)
        self.stop, self.written, self.failures = threading.Event(), 0, Counter[str]()
        KafkaLog(self.settings).create(TopicSpec("orders", PARTITIONS))
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._run)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in self._threads:
                thread.join()

    def _write(self) -> None:
        """What is in the topic counts: an append that failed may be there or not."""
        topic, rng = KafkaLog(self.settings).topic("orders"), random.Random(7)
        while not self.stop.wait(0.02):
            rows = [json.dumps({"n": self.written + i}).encode() for i in range(rng.choice([1, 4, 16]))]
            with suppress(PenstockError):
                topic.append(rng.randrange(PARTITIONS), raw(rows))
            self.written += len(rows)

    def _run(self) -> None:
        while not self.stop.is_set():
            with self._passer() as process:
                until(lambda: self.stop.is_set() or process.poll() is not None, 1200)
                self._told(process)

    def _passer(self, *more: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(PASSER), str(self.home), *more]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _told(self, process: "subprocess.Popen[str]") -> None:
        said, words = process.communicate(timeout=300)
        self.failures.update(said.splitlines())
        if process.returncode:
            self.failures[f"exit {process.returncode}: {words.splitlines()[0] if words else ''}"] += 1

    def finish(self) -> None:
        """To the end of what is there, and delivered."""
        with self._passer("--finish") as process:
            ended = until(lambda: process.poll() is not None, 300)
            if not ended:
                process.kill()
            self._told(process)
        assert ended, self.failures
        assert process.returncode == 0, self.failures


def records(url: str, topic: str) -> Counter[int]:
    """What Kafka's own consumer finds in a topic, committed."""
    settings = KafkaSettings.of(url)
    options = {
        "group.id": "auditor",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer, found = Consumer(settings.client(**options)), Counter[int]()
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ended.add(message.partition())
        elif message.value() is not None:  # not a mark
            found[json.loads(message.value())["n"]] += 1
    consumer.close()
    return found


def check(live: Live, url: str) -> None:
    given, got = records(url, "orders"), records(url, "copied")
    assert len(given) > KILLS
    print(f"{len(given)} rows; errors on the way: {dict(live.failures)}")
    assert {"lost": sorted(given - got), "doubled or made up": sorted(got - given)} == {"lost": [], "doubled or made up": []}
    decided = last_decision(live.home, "passed")
    assert balanced(decided.accounts["orders"])
    assert decided.accounts["orders"]["rows"] == decided.fates["orders"]["in"] == given.total()


def test_a_broker_that_is_killed_under_a_live_flow_costs_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(29)
    place = tmp_path / "kafka"
    place.mkdir()
    with KafkaBroker(place) as broker:
        url = f"{broker.url}?transaction_timeout=2"
        monkeypatch.setenv("PENSTOCK_LOG", url)
        live = Live(tmp_path / "home", url)
        with live.at_work():
            for _ in range(KILLS):
                before = live.written
                assert until(lambda: live.written > before + rng.randrange(1, 60), 120)  # noqa: B023
                broker.kill()
                broker.start()
        live.finish()
        check(live, url)


def test_fetches_that_are_cut_anywhere_cost_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(29)
    active = threading.Event()

    def fault() -> Fault | None:
        if not active.is_set() or rng.random() < 0.5:
            return None
        return Fault(rng.choice(["cut", "hold"]), rng.choice([0.0, 0.01, 0.5, 0.99, rng.random()]), rng.choice([0.05, 1.0]))

    place = tmp_path / "kafka"
    place.mkdir()
    ports: list[int] = []
    with KafkaProxy(lambda: ports[0], fault) as proxy:
        broker = KafkaBroker(place, advertised_listeners=f"PLAINTEXT://127.0.0.1:{proxy.port}")
        ports[:] = [broker.port]
        with broker:
            ports[:] = [broker.port]
            url = f"kafka://127.0.0.1:{proxy.port}?transaction_timeout=2"
            monkeypatch.setenv("PENSTOCK_LOG", url)
            live = Live(tmp_path / "home", url)
            with live.at_work():
                active.set()
                assert until(lambda: proxy.done >= CUTS, 900)
                active.clear()
            live.finish()
            check(live, url)
