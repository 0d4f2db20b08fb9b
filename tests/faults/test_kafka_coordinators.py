"""A broker that is not the coordinator of a group, or not yet, must not take its clients' process with it."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]
CHILD = Path(__file__).with_name("kafka_offsets_child.py")


@pytest.mark.parametrize("brokers", [1, pytest.param(10, marks=pytest.mark.long)])
def test_the_first_offsets_of_groups_at_a_new_broker_end_no_process(
    brokers: int, tmp_path_factory: pytest.TempPathFactory, kafka_broker: KafkaBroker
) -> None:
    for _ in range(brokers):
        with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
            done = subprocess.run([sys.executable, CHILD, broker.url], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr}"
        assert done.stdout == f"{list(range(20))}\n"
