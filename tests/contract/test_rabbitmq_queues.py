"""A real RabbitMQ passes the suite of queues with its quorum queues, but for what it declares."""

from collections.abc import Mapping
from typing import ClassVar

from tests.contract.rabbitmq_suite import COMMON, RabbitContract


class TestQuorumQueues(RabbitContract):
    kind = "quorum"
    gaps: ClassVar[Mapping[str, str]] = {
        **COMMON,
        "priority": "quorum queues have no priorities before RabbitMQ 4.3",
        "test_bytes_are_a_limit_for_the_newest_too": "a quorum queue notices late how many bytes it holds",
    }
