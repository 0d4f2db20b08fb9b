"""What a producer does about records that hang, before it writes: they are given up, or committed where their stamp is."""

import uuid
from collections.abc import Sequence

import pytest

from penstock.log.kafka import writing
from penstock.log.kafka.hanging import Partition, still_open
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.senders import NAME
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.transactions import KafkaTransactions, discarded
from penstock.log.port import Appended, Sender, TopicSpec
from penstock.testing.kafka_broker import KafkaBroker
from penstock.testing.log_samples import SCHEMA, typed, values

pytestmark = pytest.mark.timeout(120)
SENDER = Sender("till", 0, 0)


@pytest.fixture
def log(kafka_broker: KafkaBroker) -> KafkaLog:
    return KafkaLog(KafkaSettings.of(f"{kafka_broker.url}?prefix=t{uuid.uuid4().hex[:12]}."))


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Partition], bool]]:
    """What was ended, and whether by a commit."""
    calls: list[tuple[list[Partition], bool]] = []
    end = KafkaTransactions.end

    def noted(self: KafkaTransactions, partitions: Sequence[Partition], *, commit: bool) -> None:
        if partitions:
            calls.append((list(partitions), commit))
        end(self, partitions, commit=commit)

    monkeypatch.setattr(KafkaTransactions, "end", noted)
    return calls


def hanging(monkeypatch: pytest.MonkeyPatch, *, stamps: bool) -> None:
    """As if rows hung, and stamps too."""

    def found(settings: KafkaSettings, partitions: Sequence[Partition], seconds: float = 0.0) -> list[Partition]:
        return [p for p in partitions if stamps or p[0] != NAME]

    monkeypatch.setattr(writing, "still_open", found)


@pytest.mark.parametrize("stamps", [False, True])
def test_rows_that_hang_without_a_stamp_are_given_up(
    stamps: bool, log: KafkaLog, ended: list[tuple[list[Partition], bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.create(TopicSpec("orders", 2, SCHEMA, "at"))
    hanging(monkeypatch, stamps=stamps)
    topic.append(0, typed([1, 2]), sender=SENDER)
    rows = (f"{log.settings.prefix}orders", 0)
    assert [(rows in partitions, commit) for partitions, commit in ended] == [(True, False)] * (1 + stamps)
    assert values(topic, "id") == [1, 2]
    assert still_open(log.settings, [rows]) == []


def test_rows_that_hang_with_a_committed_stamp_are_committed(
    log: KafkaLog, ended: list[tuple[list[Partition], bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.create(TopicSpec("orders", 2, SCHEMA, "at"))
    first = topic.append(0, typed([1, 2]), sender=SENDER)
    discarded(log.settings, f"penstock/{log.settings.prefix}orders/{SENDER.id}")
    monkeypatch.setattr(writing, "_MEMORIES", writing.PerProcess())
    hanging(monkeypatch, stamps=False)
    assert topic.append(0, typed([1, 2]), sender=SENDER) == Appended(first.base, 2, duplicate=True)
    assert ended == [([(f"{log.settings.prefix}orders", 0)], True)]
    assert values(topic, "id") == [1, 2]
