"""G24: bridges lose nothing, whoever is killed: into a topic each message comes once, into a queue at least once."""

import random
import secrets
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from amount import cases
from faults.seeds import SEED
from penstock.errors import NotFound
from penstock.log.consumer import records
from penstock.log.file.log import FileLog
from penstock.log.open import open_log
from penstock.log.port import Topic, TopicSpec
from penstock.log.producer import Producer
from penstock.queue.on_log.records import HEADER
from penstock.queue.open import open_queues
from penstock.queue.port import Consumer, Message, QueuePort, QueueSpec, Settlement
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.servers.rabbitmq_server import RabbitServer
from waiting import until

pytestmark = pytest.mark.faults
SCRIPT = Path(__file__).with_name("bridge_child.py")


class Bridge:
    """A bridge that is killed and started again."""

    def __init__(self, home: Path, url: str, direction: str) -> None:
        self._command = [sys.executable, str(SCRIPT), str(home), url, direction, "q", "t"]
        self.kills = 0
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        threading.Thread(target=self._listen, args=(self.process, self.lines), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[str]", lines: list[str]) -> None:
        assert process.stdout
        with suppress(ValueError):  # closed
            lines.extend(iter(process.stdout.readline, ""))

    def kill(self) -> None:
        self.end()
        self.kills += 1
        self._start()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    log = open_log(tmp_path)
    assert isinstance(log, FileLog)
    return log.create(TopicSpec("t", partitions=2))


@pytest.fixture(params=["log", "rabbitmq"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[QueuePort, str]]:
    """A queue, and where a process finds it."""
    if request.param == "log":
        yield open_queues(None, tmp_path).create(QueueSpec("q", lease=timedelta(seconds=1), tries=1_000)), "log"
        return
    server: RabbitServer = request.getfixturevalue("rabbitmq_server")
    url = f"{server.url}?prefix=t{secrets.token_hex(4)}."
    with RabbitQueues(url) as queues:
        yield queues.create(QueueSpec("q", tries=1_000)), url
        for name in queues.names():
            with suppress(NotFound):
                queues.delete(name)


def in_topic(topic: Topic) -> Counter[bytes]:
    return Counter(record.value for record in records(topic))  # type: ignore[misc]


def drained(queue: QueuePort, found: Counter[str]) -> None:
    while deliveries := queue.receive(Consumer("drain", prefetch=10_000), 500):
        found.update(delivery.message.id for delivery in deliveries)
        assert not queue.settle([Settlement(delivery.receipt, "ack") for delivery in deliveries])


def into_a_topic(queue: QueuePort, url: str, topic: Topic, home: Path, kills: int, rng: random.Random) -> None:
    count, sent = 0, Counter[bytes]()
    bridge = Bridge(home, url, "in")
    try:
        while bridge.kills < kills:
            bodies = [b"%d" % number for number in range(count, count + 100)]
            queue.send([Message(body, f"m-{body.decode()}", key=body.decode()) for body in bodies])
            sent.update(bodies)
            count += 100
            wanted = sum(in_topic(topic).values()) + rng.randint(1, 60)
            until(lambda wanted=wanted: topic_size(topic) >= wanted, 20)  # type: ignore[misc]
            bridge.kill()
        assert until(lambda: topic_size(topic) >= count, 120)
        assert until(lambda: not queue.state().ready and not queue.state().lent, 60)
    finally:
        bridge.end()
    assert in_topic(topic) == sent, "each message stands in the topic once"


def topic_size(topic: Topic) -> int:
    return sum(end.next - end.first for end in topic.ends().values())


def into_a_queue(queue: QueuePort, url: str, topic: Topic, home: Path, kills: int, rng: random.Random) -> None:
    count, found = 0, Counter[str]()
    bridge = Bridge(home, url, "out")
    try:
        while bridge.kills < kills:
            with Producer(topic) as producer:
                for number in range(count, count + 100):
                    producer.send(b"%d" % number, partition=number % 2)
            count += 100
            wanted = len(found) + rng.randint(1, 60)
            until(lambda wanted=wanted: bool(drained(queue, found) or len(found) >= wanted), 20)  # type: ignore[misc]
            bridge.kill()
        assert until(lambda: bool(drained(queue, found) or len(found) >= count), 120)
    finally:
        bridge.end()
    drained(queue, found)
    assert found.keys() == {f"t/{number % 2}/{number // 2}" for number in range(count)}
    doubles = found.total() - len(found)
    assert doubles <= 40 * bridge.kills, "no more than what a bridge had in hand when it was killed"


def test_into_a_topic_each_message_comes_once_although_the_bridge_is_killed(
    queue: tuple[QueuePort, str], topic: Topic, tmp_path: Path
) -> None:
    into_a_topic(*queue, topic, tmp_path, kills=4, rng=random.Random(SEED))


def test_into_a_queue_each_record_comes_although_the_bridge_is_killed(
    queue: tuple[QueuePort, str], topic: Topic, tmp_path: Path
) -> None:
    into_a_queue(*queue, topic, tmp_path, kills=4, rng=random.Random(SEED))


@pytest.mark.parametrize("direction", ["in", pytest.param("out", marks=pytest.mark.long)])
def test_a_broker_that_is_killed_under_the_bridge_loses_nothing(
    rabbitmq_server: RabbitServer, topic: Topic, tmp_path: Path, direction: str
) -> None:
    """FAULTS row 50."""
    restarts(rabbitmq_server, topic, tmp_path, direction, kills=1)


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(cases(2)))
def test_into_a_topic_each_message_comes_once_through_many_kills(
    queue: tuple[QueuePort, str], topic: Topic, tmp_path: Path, seed: int
) -> None:
    into_a_topic(*queue, topic, tmp_path, kills=40, rng=random.Random(SEED + seed))


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(cases(2)))
def test_into_a_queue_each_record_comes_through_many_kills(
    queue: tuple[QueuePort, str], topic: Topic, tmp_path: Path, seed: int
) -> None:
    into_a_queue(*queue, topic, tmp_path, kills=40, rng=random.Random(SEED + seed))


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_broker_that_is_killed_again_and_again_loses_nothing(
    rabbitmq_server: RabbitServer, topic: Topic, tmp_path: Path, direction: str
) -> None:
    restarts(rabbitmq_server, topic, tmp_path, direction, kills=15)


def restarts(server: RabbitServer, topic: Topic, home: Path, direction: str, kills: int) -> None:
    """The broker is killed while messages go in on one side and come out on the other."""
    url = f"{server.url}?prefix=t{secrets.token_hex(4)}."
    with RabbitQueues(url) as queues:
        queue = queues.create(QueueSpec("q", tries=1_000))
        server.flush()
        bridge, expected, found = Bridge(home, url, direction), set[str](), Counter[str]()
        try:
            assert until(lambda: "ready\n" in bridge.lines, 60)
            for round in range(kills):
                before = len(_there(queue, topic, direction, found))
                expected |= _through(queue, topic, direction, round, server)
                assert until(lambda before=before: len(_there(queue, topic, direction, found)) > before, 120)  # type: ignore[misc]
            assert until(lambda: _there(queue, topic, direction, found) >= expected, 120)
        finally:
            bridge.end()
        if direction == "in":
            assert set(_ids(topic).values()) == {1}, "each message stands in the topic once"
            assert _ids(topic).keys() == expected
        for name in queues.names():
            queues.delete(name)


def _through(queue: QueuePort, topic: Topic, direction: str, round: int, server: RabbitServer) -> set[str]:
    """Sends while the broker is killed; the ids that have to come out."""
    numbers = range(500 * round, 500 * (round + 1))
    sender = threading.Thread(target=_send, args=(queue, topic, direction, numbers))
    sender.start()
    server.kill()
    server.start()
    sender.join()
    return {f"m-{number}" for number in numbers} if direction == "in" else {f"t/{n % 2}/{n // 2}" for n in numbers}


def _send(queue: QueuePort, topic: Topic, direction: str, numbers: range) -> None:
    for start in range(numbers.start, numbers.stop, 20):
        part = range(start, start + 20)
        if direction == "in":
            queue.send([Message(b"%d" % number, f"m-{number}") for number in part])
        else:
            with Producer(topic) as producer:
                for number in part:
                    producer.send(b"%d" % number, partition=number % 2)


def _there(queue: QueuePort, topic: Topic, direction: str, found: Counter[str]) -> set[str]:
    if direction == "in":
        return set(_ids(topic))
    drained(queue, found)
    return set(found)


def _ids(topic: Topic) -> Counter[str]:
    import orjson

    return Counter(orjson.loads(record.headers[HEADER])["id"] for record in records(topic))
