"""A log on a real Kafka broker passes the suite of every log."""

import uuid
from pathlib import Path

import pytest

from penstock.core.time import FixedClock
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.testing.contracts.log import LogContract
from penstock.testing.servers.kafka_broker import KafkaBroker


class TestKafkaLog(LogContract):
    dense = False  # the end of a transaction takes an offset, and so does a mark

    @pytest.fixture(autouse=True)
    def broker(self, kafka_broker: KafkaBroker) -> None:
        self.url = kafka_broker.url

    def make(self, place: Path, clock: FixedClock) -> KafkaLog:
        return KafkaLog(KafkaSettings.of(f"{self.url}?prefix=t{uuid.uuid4().hex[:12]}."), clock)
