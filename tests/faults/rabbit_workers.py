"""Consumers of a RabbitMQ as processes that are killed; run by the tests: URL QUEUE, and a line on standard input for each.

Said on standard output:
    pid PID
    got PID ID ATTEMPT   a message was lent
    try PID ID           it is about to be acknowledged
    ack PID ID           it is
"""

import os
import random
import sys
import time

from penstock.queue.port import Consumer, Settlement
from penstock.queue.rabbitmq.library import library
from penstock.queue.rabbitmq.queues import RabbitQueues


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def consume(url: str, name: str) -> None:
    pid, rng = os.getpid(), random.Random(os.getpid())
    queue = RabbitQueues(url).queue(name)
    while True:
        for delivery in queue.receive(Consumer(f"c{pid}", prefetch=8), rng.randint(1, 6)):
            say("got", pid, delivery.message.id, delivery.attempt)
            time.sleep(rng.random() * 0.004)
            say("try", pid, delivery.message.id)
            if not queue.settle([Settlement(delivery.receipt, "ack")]):
                say("ack", pid, delivery.message.id)


def main() -> None:
    url, name = sys.argv[1:]
    library()  # imports what it needs, once for all
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            try:
                consume(url, name)
            finally:
                os._exit(1)
        say("pid", child)


if __name__ == "__main__":
    main()
