"""A capture whose topics are a Kafka broker's: through crashes each change is there once, and zombies are refused."""

import uuid
from random import Random

import pytest

from capture_scripted import ScriptedEngine, Work, random_script
from capture_topics import check_journal, check_topics
from penstock.capture.definition import CaptureDefinition
from penstock.capture.runner import CaptureRun
from penstock.errors import Fenced
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import Crash
from penstock.testing.servers.kafka_broker import KafkaBroker

SHOP = CaptureDefinition("shop", "scripted", "script://", (), partitions=2)


@pytest.fixture
def log(kafka_broker: KafkaBroker) -> KafkaLog:
    return KafkaLog(KafkaSettings.of(f"{kafka_broker.url}?prefix=t{uuid.uuid4().hex[:12]}."))


def written(log: KafkaLog, script: list[Work]) -> None:
    check_topics(log, SHOP.names, script)
    check_journal(log, SHOP.names, script)


def test_crashes_upon_crashes_lose_nothing_and_double_nothing(log: KafkaLog) -> None:
    random = Random(1)
    script = random_script(random, 6)
    for _ in range(100):
        left = random.randint(1, 12)

        def crash(point: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Crash(point)

        try:
            CaptureRun(SHOP, log, MemoryStorage(), ScriptedEngine(script, random), fail=crash).run(catch_up=True)
            break
        except Crash:
            check_journal(log, SHOP.names, script, whole=False)
    written(log, script)


def test_a_run_that_was_replaced_is_refused(log: KafkaLog) -> None:
    script, points = random_script(Random(2), 4), 0

    def replaced(point: str) -> None:
        nonlocal points
        points += 1
        if points == 4:
            CaptureRun(SHOP, log, MemoryStorage(), ScriptedEngine(script, Random(3))).run(catch_up=True)

    with pytest.raises(Fenced):
        CaptureRun(SHOP, log, MemoryStorage(), ScriptedEngine(script, Random(2)), fail=replaced).run(catch_up=True)
    written(log, script)
