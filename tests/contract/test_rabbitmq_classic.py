"""A real RabbitMQ passes the suite of queues with its classic queues, but for what it declares."""

from collections.abc import Mapping
from typing import ClassVar

from tests.contract.rabbitmq_suite import COMMON, RabbitContract

from penstock.queue.rabbitmq.queue import END


class TestClassicQueues(RabbitContract):
    kind = "classic"
    gaps: ClassVar[Mapping[str, str]] = {
        **COMMON,
        "old place": END,
        "test_a_message_that_always_fails_is_dead_after_its_last_try": END,
        "test_the_state_counts_and_the_books_balance": END,
        "test_what_a_consumer_lost_leaves_room_for_more": END,
    }
