"""A member of a Kafka group that was stopped for longer than its lease cannot commit (G16)."""

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from penstock.log.groups.port import Source
from penstock.log.kafka.groups.keeper import KafkaGroups
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import TopicSpec
from penstock.testing.contracts.groups import settle
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.faults, pytest.mark.long]
SCRIPT = Path(__file__).with_name("kafka_zombie.py")


@pytest.mark.parametrize("heir_leaves", [False, True], ids=["while its heir reads", "after its heir has left"])
def test_a_zombie_of_a_kafka_group_cannot_commit(kafka_broker: KafkaBroker, heir_leaves: bool) -> None:
    url = f"{kafka_broker.url}?prefix=z{uuid.uuid4().hex[:12]}."
    log = KafkaLog(KafkaSettings.of(url))
    source = Source("t", log.create(TopicSpec("t", 2)).id, 2)
    zombie = subprocess.Popen([sys.executable, str(SCRIPT), url], stdout=subprocess.PIPE, text=True)
    assert zombie.stdout
    assert zombie.stdout.readline() == "stopping\n"
    groups = KafkaGroups(log.settings)
    heir = groups.join("g", source, {}, label="heir", lease=6)
    assert settle(source, heir)[0].owned == {0: 3, 1: 0}
    heir.commit({0: 10})
    if heir_leaves:
        heir.leave()
    zombie.send_signal(signal.SIGCONT)
    said = zombie.stdout.read().split()
    zombie.stdout.close()
    zombie.wait()
    assert said[0] == "fenced"
    assert heir_leaves or heir.id in said
    heir.leave()
    assert [held.offset for held in groups.positions("t") if held.partition == 0] == [10]
