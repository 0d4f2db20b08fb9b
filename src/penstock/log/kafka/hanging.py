"""Transactions that hang: the broker has ended them, and partitions of them were never told.

A broker that is killed and started again ends what was open when it went, and drops the marker for a partition whose leader it does
not know yet (seen with Kafka 4.x). The records there stay open, hold back everybody who reads what is committed, and the next
commit of the same producer would commit them, too.
"""

import time
from collections.abc import Sequence

from penstock.log.kafka.client import offsets
from penstock.log.kafka.settings import KafkaSettings

Partition = tuple[str, int]  # topic, as the broker calls it, and number
MARGIN = 5.0  # seconds beyond its time-out that a broker may take to end a transaction


def still_open(settings: KafkaSettings, partitions: Sequence[Partition], seconds: float = 0.0) -> list[Partition]:
    """Those that hold records, of now, whose transaction has not ended after so long."""
    ends = {p: offsets(settings, p[0], [p[1]], committed=False)[p[1]].end for p in partitions}
    deadline = time.monotonic() + seconds
    while True:
        found = [p for p in partitions if offsets(settings, p[0], [p[1]])[p[1]].end < ends[p]]
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(0.05)


def patience(settings: KafkaSettings) -> float:
    """Seconds after which a transaction that is still open hangs."""
    return settings.transaction_timeout / 1000 + MARGIN
