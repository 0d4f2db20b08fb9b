"""A real RabbitMQ against the naive model, as far as it can be compared: it has clocks of its own."""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from amount import cases
from faults.queue_brokers import Broker
from faults.queue_machine import QueueMachine
from penstock.errors import NotFound
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.servers.rabbitmq_server import RabbitServer

# Counts are those of a process. What several consumers held when they were gone comes back in the order of their channels.
COMMON = {"clocks", "counts", "old place", "ordered", "lent counts", "source limits", "peek"}


class RabbitBroker(Broker):
    """Queues of a real server. What is lent comes back when whoever holds it is gone."""

    tick: ClassVar[timedelta] = timedelta(minutes=10)  # nothing may run out while the test runs
    patience: ClassVar[float] = 10.0
    frees: ClassVar[bool] = True
    url: ClassVar[str]
    kind: ClassVar[str]

    def open(self) -> RabbitQueues:
        self.prefix = f"m{secrets.token_hex(4)}."
        self.queues = self.made()
        return self.queues

    def made(self) -> RabbitQueues:
        return RabbitQueues(f"{self.url}?queues={self.kind}&prefix={self.prefix}")

    def reopen(self) -> RabbitQueues:
        self.queues.close()
        self.queues = self.made()
        return self.queues

    def close(self) -> None:
        for name in self.queues.names():
            with suppress(NotFound):
                self.queues.delete(name)
        self.queues.close()


class QuorumBroker(RabbitBroker):
    kind = "quorum"
    gaps: ClassVar[frozenset[str]] = frozenset({*COMMON, "priority"})


class ClassicBroker(RabbitBroker):
    kind = "classic"
    gaps: ClassVar[frozenset[str]] = frozenset(COMMON)


class QuorumMachine(QueueMachine):
    broker = QuorumBroker


class ClassicMachine(QueueMachine):
    broker = ClassicBroker


@pytest.fixture(autouse=True)
def server(rabbitmq_server: RabbitServer) -> Iterator[None]:
    RabbitBroker.url = rabbitmq_server.url
    yield
    del RabbitBroker.url


@pytest.mark.parametrize("machine", [QuorumMachine, pytest.param(ClassicMachine, marks=pytest.mark.long)])
def test_a_rabbitmq_does_what_the_model_does(machine: type[QueueMachine]) -> None:
    some = settings(max_examples=10, stateful_step_count=25, phases=[Phase.generate], database=None)
    run_state_machine_as_test(machine, settings=some)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("machine", [QuorumMachine, ClassicMachine])
def test_a_rabbitmq_does_what_the_model_does_in_many_runs(machine: type[QueueMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=cases(50), stateful_step_count=50))
