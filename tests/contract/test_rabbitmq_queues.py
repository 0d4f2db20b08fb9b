"""A real RabbitMQ passes the suite of queues, but for what it declares."""

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.errors import NotFound
from penstock.queue.rabbitmq.queue import END, LIMITS, LOOKS
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.queue_contract import QueueContract
from penstock.testing.rabbitmq_server import RabbitServer

RESTS = "a message rests in a queue of its own, and comes to the end of the line"
COMMON = {
    "clocks": "RabbitMQ has clocks of its own",
    "ordered": "RabbitMQ lends messages of one key to several consumers at once",
    "lent counts": LIMITS,
    "source limits": LIMITS,
    "test_bytes_are_a_limit_too": "RabbitMQ does not tell bytes: of messages that are sent together, those that fit are in",
    "test_a_purge_removes_what_waits_and_what_was_lost": RESTS,
    "test_one_whose_time_has_come_stands_where_it_would_have_stood": RESTS,
    "test_a_look_at_the_first_messages_changes_nothing": LOOKS,
    "test_a_look_shows_what_waits_behind_what_does_not": LOOKS,
}


class RabbitContract(QueueContract):
    tick = timedelta(seconds=0.2)
    patience = 10.0
    kind: ClassVar[str]

    def make(self, place: Path) -> RabbitQueues:
        raise NotImplementedError("the fixture knows the server")

    @pytest.fixture
    def queues(self, rabbitmq_server: RabbitServer) -> Iterator[RabbitQueues]:
        with RabbitQueues(f"{rabbitmq_server.url}?queues={self.kind}&prefix=t{secrets.token_hex(4)}.") as queues:
            yield queues
            for name in queues.names():
                with suppress(NotFound):
                    queues.delete(name)

    def advance(self, ticks: float) -> None:
        threading.Event().wait(ticks * self.tick.total_seconds())


class TestQuorumQueues(RabbitContract):
    kind = "quorum"
    gaps: ClassVar[Mapping[str, str]] = {
        **COMMON,
        "priority": "quorum queues have no priorities before RabbitMQ 4.3",
        "test_bytes_are_a_limit_for_the_newest_too": "a quorum queue notices late how many bytes it holds",
    }


class TestClassicQueues(RabbitContract):
    kind = "classic"
    gaps: ClassVar[Mapping[str, str]] = {
        **COMMON,
        "old place": END,
        "test_a_message_that_always_fails_is_dead_after_its_last_try": END,
        "test_the_state_counts_and_the_books_balance": END,
        "test_what_a_consumer_lost_leaves_room_for_more": END,
    }
