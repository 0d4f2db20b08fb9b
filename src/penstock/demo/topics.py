"""The topics of the demo."""

from pathlib import Path

from penstock.core.schema import Schema
from penstock.log.open import open_log
from penstock.log.port import TopicSpec

TOPICS = ("orders", "payments")
_SETTLED = "order_id string, product string, cents long, at timestamp, paid long, payments_at timestamp"


def make_topics(home: Path) -> None:
    """Orders and payments are raw, so that what cannot be read gets as far as the flow, which has a fate for it.

    The topic between the two flows is made as well: it must be known when the second one is checked, before the first runs."""
    log = open_log(home)
    log.create(TopicSpec("settled_orders", schema=Schema.of(_SETTLED), key="order_id", writer="shop"))
    for name in TOPICS:
        log.create(TopicSpec(name, partitions=2, time="at", key="order_id"))
