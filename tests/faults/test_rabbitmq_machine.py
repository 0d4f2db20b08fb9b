"""A real RabbitMQ against the naive model of queues."""

import secrets
from contextlib import suppress
from datetime import timedelta
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from faults.queue_brokers import Broker
from faults.queue_machine import QueueMachine
from penstock.errors import NotFound
from penstock.queue.port import QueuesPort
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.rabbitmq_server import RabbitServer

pytestmark = pytest.mark.faults


class RabbitBroker(Broker):
    """Its clocks are its own, so leases are so long that none runs out. Counts are those of the queue that was sent to."""

    gaps: ClassVar[frozenset[str]] = frozenset(
        {"clocks", "old place", "ordered", "lent counts", "source limits", "priority", "peek", "counts"}
    )
    patience = 10.0
    tick = timedelta(hours=1)
    url: ClassVar[str]

    def open(self) -> QueuesPort:
        self.queues = RabbitQueues(f"{self.url}&prefix=t{secrets.token_hex(4)}.")
        return self.queues

    def close(self) -> None:
        for name in self.queues.names():
            with suppress(NotFound):
                self.queues.delete(name)
        self.queues.close()


def machine_over(server: RabbitServer, kind: str) -> type[QueueMachine]:
    class Machine(QueueMachine):
        broker = type("ThisBroker", (RabbitBroker,), {"url": f"{server.url}?queues={kind}"})

    return Machine


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_queues_of_a_rabbitmq_do_what_the_model_does(rabbitmq_server: RabbitServer, kind: str) -> None:
    run_state_machine_as_test(machine_over(rabbitmq_server, kind), settings=settings(max_examples=6, stateful_step_count=30))


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_queues_of_a_rabbitmq_do_what_the_model_does_in_many_runs(rabbitmq_server: RabbitServer, kind: str) -> None:
    run_state_machine_as_test(machine_over(rabbitmq_server, kind), settings=settings(max_examples=150, stateful_step_count=50))
