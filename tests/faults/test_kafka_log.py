"""A log on Kafka while its broker, its topics and its producers come and go (FAULTS 15, 28, 49)."""

import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.errors import LogError, NotFound, OffsetGone, PenstockError, SequenceGap
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.read import fetching
from penstock.log.kafka.read import ranges as reading
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.write.frames import _Signed
from penstock.log.kafka.write.transactions import KafkaTransactions
from penstock.log.port import Sender, TopicSpec
from penstock.log.producer import Producer
from penstock.testing.contracts.log.samples import SCHEMA, typed, values
from penstock.testing.servers.kafka_broker import KafkaBroker
from waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]
TESTS = Path(__file__).parents[1]


@pytest.fixture
def log(kafka_broker: KafkaBroker) -> KafkaLog:
    return KafkaLog(KafkaSettings.of(f"{kafka_broker.url}?prefix=t{uuid.uuid4().hex[:12]}.&transaction_timeout=2"))


def test_rows_that_were_acknowledged_are_there_once_though_the_broker_was_killed_and_restarted(tmp_path: Path) -> None:
    """G18: every frame is sent until it is acknowledged; a retry after an unclear answer adds nothing."""
    with KafkaBroker(tmp_path) as broker:
        topic = KafkaLog(KafkaSettings.of(f"{broker.url}?transaction_timeout=5")).create(TopicSpec("orders", schema=SCHEMA))
        acknowledged: list[int] = []
        enough = threading.Event()

        def produce() -> None:
            number = 0
            while not enough.is_set() or number < 40:
                try:
                    topic.append(0, typed([number, number]), sender=Sender("p", 0, number))
                except LogError:
                    continue
                acknowledged.append(number)
                number += 1

        writer = threading.Thread(target=produce)
        writer.start()
        for end in (broker.kill, broker.stop):
            before = len(acknowledged)
            assert until(lambda before=before: len(acknowledged) > before + 3)  # type: ignore[misc]
            end()
            broker.start()
        before = len(acknowledged)
        assert until(lambda: len(acknowledged) > before + 3)
        enough.set()
        writer.join()
        assert values(topic, "id") == [number for number in acknowledged for _ in (0, 1)]


def test_a_read_goes_on_when_the_broker_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 500)
    with KafkaBroker(tmp_path) as broker:
        topic = KafkaLog(KafkaSettings.of(f"{broker.url}?transaction_timeout=5")).create(TopicSpec("orders", schema=SCHEMA))
        for start in range(0, 20_000, 5_000):
            topic.append(0, typed(list(range(start, start + 5_000))))
        found: list[int] = []
        for number, chunk in enumerate(topic.read(0)):
            found += chunk.rows.column("id").to_pylist()
            if number == 3:
                broker.kill()
                broker.start()
        assert found == list(range(20_000))


def zombie(log: KafkaLog) -> "subprocess.Popen[bytes]":
    """Started, and stopped in the middle of its second frame."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])}
    url = f"kafka://{log.settings.servers[0]}?prefix={log.settings.prefix}&transaction_timeout=2"
    process = subprocess.Popen([sys.executable, str(TESTS / "faults" / "kafka_producer_zombie.py"), url], env=env)
    assert until(lambda: _state(process.pid) in "TZ")
    assert _state(process.pid) == "T"
    return process


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(("epoch", "code"), [(1, 10), (0, 20)], ids=["replaced", "repeated"])
def test_a_producer_that_wakes_up_after_its_time_out_adds_nothing(log: KafkaLog, epoch: int, code: int) -> None:
    """G18: its transaction was ended by whoever came after it; what it left open is never seen."""
    topic = log.create(TopicSpec("orders", schema=SCHEMA))
    process = zombie(log)
    try:
        ends = topic.ends()[0].next
        topic.append(0, typed([7, 7]), sender=Sender("p", epoch, 1))
        topic.append(0, typed([8]), sender=Sender("p", epoch, 2))
        assert topic.ends()[0].next > ends
        process.send_signal(signal.SIGCONT)
        assert process.wait(100) == code
    finally:
        process.kill()
        process.wait()
    assert values(topic, "id") == [1, 7, 7, 8]
    topic.append(0, typed([9]), sender=Sender("p", epoch, 3))
    assert values(topic, "id") == [1, 7, 7, 8, 9]


def test_what_a_silent_producer_left_open_holds_nobody_back_beyond_its_time_out(log: KafkaLog) -> None:
    topic = log.create(TopicSpec("orders", schema=SCHEMA))
    process = zombie(log)
    try:
        topic.append(0, typed([7]))
        assert until(lambda: values(topic, "id") == [1, 7], 60)
    finally:
        process.kill()
        process.wait()


def test_requests_that_come_twice_and_in_any_order_are_stored_once_and_in_order(log: KafkaLog) -> None:
    """G18."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    topic = log.create(TopicSpec("orders", schema=SCHEMA))
    rng = random.Random(seed)
    topic.append(0, typed([0]), sender=Sender("p", 0, 0))
    waiting = [n for n in range(40) for _ in (0, 1)]
    answers: dict[int, set[int]] = {}
    while waiting:
        rng.shuffle(waiting)
        for number in list(waiting):
            try:
                answers.setdefault(number, set()).add(topic.append(0, typed([number]), sender=Sender("p", 0, number)).base)
                waiting.remove(number)
            except SequenceGap:
                continue
    assert values(topic, "id") == list(range(40))
    assert all(len(offsets) == 1 for offsets in answers.values())


class Line:
    """What stands between a producer and its broker when the answer to a commit gets lost, before or after it arrived."""

    def __init__(self, producer: Any, cut: str) -> None:
        self._producer, self._cut = producer, cut

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, patience: float) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if self._cut == "after":
            self._producer.commit_transaction(patience)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))


def cut_once(monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
    opened, cuts = KafkaTransactions._open, [cut]

    def opening(self: KafkaTransactions) -> None:
        opened(self)
        if cuts:
            self._producer = Line(self._producer, cuts.pop())

    monkeypatch.setattr(KafkaTransactions, "_open", opening)


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("sender", [Sender("p", 0, 0), None], ids=["signed", "unsigned"])
def test_a_commit_without_an_answer_is_settled_by_what_the_log_holds(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch, cut: str, sender: Sender | None
) -> None:
    """G18: the producer is thrown away, and a new one looks before it writes."""
    topic = log.create(TopicSpec("orders", schema=SCHEMA))
    cut_once(monkeypatch, cut)
    answer = topic.append(0, typed([1, 2]), sender=sender)
    assert values(topic, "id") == [1, 2]
    [chunk] = topic.read(0)
    assert chunk.offsets[0] == answer.base


def test_without_the_look_a_lost_answer_would_double_rows(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: with the look taken out, rows are there twice."""
    topic = log.create(TopicSpec("orders", schema=SCHEMA))
    cut_once(monkeypatch, "after")
    monkeypatch.setattr(_Signed, "answers", lambda self: [None] * len(self.frames))
    topic.append(0, typed([1, 2]), sender=Sender("p", 0, 0))
    assert values(topic, "id") == [1, 2, 1, 2]


def test_a_topic_that_is_deleted_or_made_again_while_it_is_read_stops_the_reader(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G19: rows of another topic never come out under the name of the old one."""
    monkeypatch.setattr(reading, "PIECE", 100)
    for again in (False, True):
        topic = log.create(TopicSpec("orders", schema=SCHEMA))
        for start in range(0, 3_000, 1_000):
            topic.append(0, typed(list(range(start, start + 1_000))))
        chunks = topic.read(0)
        next(chunks)
        log.delete("orders")
        if again:
            newer = log.create(TopicSpec("orders", schema=SCHEMA))
            for start in range(10_000, 13_000, 1_000):
                newer.append(0, typed(list(range(start, start + 1_000))))
        with pytest.raises(NotFound, match="was deleted"):
            list(chunks)
        with pytest.raises(NotFound, match="was deleted"):
            topic.append(0, typed([1, 2]), sender=Sender("p", 0, 0))
        if again:
            assert values(newer, "id") == list(range(10_000, 13_000))


def test_offsets_that_go_while_they_are_read_stop_the_reader(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """G19: nothing is skipped in silence."""
    monkeypatch.setattr(reading, "PIECE", 10)
    monkeypatch.setitem(fetching.READING, "queued.min.messages", 1)
    monkeypatch.setitem(fetching.READING, "fetch.message.max.bytes", 1000)
    log = KafkaLog(log.settings.with_options(client_id="reads-little-at-a-time"))  # another client, opened with these
    topic = log.create(TopicSpec("orders", schema=SCHEMA))
    for start in range(0, 2_000, 500):
        topic.append(0, typed(list(range(start, start + 500))))
    found: list[int] = []
    chunks = topic.read(0)
    found += next(chunks).rows.column("id").to_pylist()
    admin = AdminClient(log.settings.client())
    end = topic.ends()[0].next
    [gone] = admin.delete_records([TopicPartition(log.settings.prefix + "orders", 0, end)]).values()
    gone.result(30)
    with pytest.raises(OffsetGone):
        found.extend(id for chunk in chunks for id in chunk.rows.column("id").to_pylist())
    assert found == list(range(len(found)))  # what had come before is whole


def test_a_producer_of_rows_keeps_what_was_not_acknowledged(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path) as broker:
        log = KafkaLog(KafkaSettings.of(f"{broker.url}?transaction_timeout=2"))
        topic = log.create(TopicSpec("orders", schema=SCHEMA))
        producer = Producer(topic)
        producer.send({"id": 1, "text": "a", "at": "2024-01-15T10:30:00Z"})
        producer.flush()
        broker.freeze()
        thaw = threading.Timer(3, broker.thaw)
        thaw.start()
        producer.send({"id": 2, "text": "b", "at": "2024-01-15T10:30:00Z"})
        while True:
            try:
                producer.flush()
                break
            except PenstockError:
                continue
        thaw.join()
        assert values(topic, "id") == [1, 2]
