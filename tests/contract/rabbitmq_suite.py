"""The suite of queues over a real RabbitMQ, and what it lacks whatever its queues are."""

import inspect
import secrets
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.errors import NotFound
from penstock.queue.rabbitmq.queue import LIMITS, LOOKS
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.contracts.queue import QueueContract
from penstock.testing.servers.rabbitmq_server import RabbitServer

RESTS = "a message rests in a queue of its own, and comes to the end of the line"
COMMON = {
    "clocks": "RabbitMQ has clocks of its own",
    "ordered": "RabbitMQ delivers messages of one key to several consumers at once",
    "lent counts": LIMITS,
    "source limits": LIMITS,
    "test_bytes_are_a_limit_too": "RabbitMQ does not tell bytes: of messages that are sent together, those that fit are in",
    "test_a_purge_removes_what_waits_and_what_was_lost": RESTS,
    "test_one_whose_time_has_come_stands_where_it_would_have_stood": RESTS,
    "test_a_look_at_the_first_messages_changes_nothing": LOOKS,
    "test_a_look_shows_what_waits_behind_what_does_not": LOOKS,
}


def passes_time(test: pytest.Item) -> bool:
    """Whether it is a test of the suite that waits by the broker's clock."""
    suite = getattr(test, "cls", None)
    return bool(suite) and issubclass(suite, RabbitContract) and "advance(" in inspect.getsource(test.obj)  # type: ignore[attr-defined]


class RabbitContract(QueueContract):
    tick = timedelta(seconds=0.5)
    patience = 30.0
    kind: ClassVar[str]

    def make(self, place: Path) -> RabbitQueues:
        raise NotImplementedError("the fixture knows the server")

    @pytest.fixture(autouse=True)
    def pace(self, request: pytest.FixtureRequest) -> None:
        """Nothing runs out where no time has to pass; where it has to, it passes more slowly in a test that is tried again."""
        self.tick = self.tick * request.node.slower if passes_time(request.node) else timedelta(minutes=10)

    @pytest.fixture
    def queues(self, rabbitmq_server: RabbitServer) -> Iterator[RabbitQueues]:
        with RabbitQueues(f"{rabbitmq_server.url}?queues={self.kind}&prefix=t{secrets.token_hex(4)}.") as queues:
            yield queues
            for name in queues.names():
                with suppress(NotFound):
                    queues.delete(name)

    def advance(self, ticks: float) -> None:
        threading.Event().wait(ticks * self.tick.total_seconds())
