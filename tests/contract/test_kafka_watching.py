"""A reader of Kafka is woken by every record that it does not have, and by no other."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from penstock.core.columns import VALUE
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.topic import KafkaTopic
from penstock.log.port import Sender, TopicSpec
from penstock.log.watching import Watch, watch
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.timeout(120)
LONG = 30.0  # seconds: a wait that is not woken fails by the time it takes
SHORT = 0.3  # seconds that nobody should be woken in
RECORDS = 12


@pytest.fixture
def log(kafka_broker: KafkaBroker) -> KafkaLog:
    return KafkaLog(KafkaSettings.of(f"{kafka_broker.url}?prefix=t{uuid.uuid4().hex[:12]}."))


@pytest.fixture
def orders(log: KafkaLog) -> KafkaTopic:
    return log.create(TopicSpec("orders", 2))


@pytest.fixture
def waiting(log: KafkaLog, orders: KafkaTopic) -> Iterator[Watch]:
    made = watch(log, ["orders"])
    yield made
    made.close()


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({VALUE: pa.array([b"{}"] * count, pa.binary())})


def read_to(topic: KafkaTopic) -> dict[tuple[str, int], int]:
    return {("orders", number): end.next for number, end in topic.ends().items()}


def waited(waiting: Watch, places: dict[tuple[str, int], int], seconds: float = LONG) -> float:
    started = time.monotonic()
    waiting.wait(seconds, places)
    return time.monotonic() - started


def meanwhile(function: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(0.05, function)
    timer.start()
    return timer


def test_records_one_behind_the_other_wake_a_reader_each_at_once(waiting: Watch, orders: KafkaTopic) -> None:
    waiting.wait(0.5, read_to(orders))  # the client has found the leaders
    took = list[float]()
    for number in range(RECORDS):
        places = read_to(orders)
        sender = meanwhile(lambda number=number: orders.append(number % 2, rows(1)))  # type: ignore[misc]
        took.append(waited(waiting, places))
        sender.join()
    assert sorted(took)[RECORDS // 2] < 0.5  # a client that backs off after every record takes a second


def test_what_came_before_the_wait_wakes_at_once(waiting: Watch, orders: KafkaTopic) -> None:
    places = read_to(orders)
    orders.append(1, rows(3))
    assert waited(waiting, places) < LONG / 2
    assert waited(waiting, places) < LONG / 2  # the reader did not take it


@pytest.mark.parametrize("count", [3, 1000], ids=["few", "many"])
def test_what_the_reader_has_wakes_nobody(count: int, waiting: Watch, orders: KafkaTopic) -> None:
    places = read_to(orders)
    orders.append(0, rows(count))
    waiting.wait(LONG, places)
    assert waited(waiting, read_to(orders), SHORT) > 0.9 * SHORT


def test_a_frame_that_ends_with_its_transaction_wakes_once(waiting: Watch, orders: KafkaTopic) -> None:
    for number in range(1, 4):
        places = read_to(orders)
        orders.append(0, rows(2), sender=Sender("shop", 1, number))
        assert waited(waiting, places) < LONG / 2
    assert waited(waiting, read_to(orders), SHORT) > 0.9 * SHORT
