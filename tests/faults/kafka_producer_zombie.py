"""A producer that stops itself in the middle of a transaction: after its rows have gone out, before the commit."""

import os
import signal
import sys

from penstock.errors import Fenced
from penstock.log.kafka.write.transactions import KafkaTransactions
from penstock.log.open import open_log
from penstock.log.port import Sender
from penstock.testing.contracts.log.samples import typed

whole = KafkaTransactions.flush


def stopping(self: KafkaTransactions) -> None:
    whole(self)
    KafkaTransactions.flush = whole  # type: ignore[method-assign]
    os.kill(os.getpid(), signal.SIGSTOP)


def main(url: str) -> int:
    topic = open_log(url=url).topic("orders")
    topic.append(0, typed([1]), sender=Sender("p", 0, 0))
    KafkaTransactions.flush = stopping  # type: ignore[method-assign]
    try:
        answer = topic.append(0, typed([2, 2]), sender=Sender("p", 0, 1))
    except Fenced:
        return 10
    return 20 if answer.duplicate else 30


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
