"""Consumers of a queue as processes that are killed; run by `queue_crew`: WHERE QUEUE PREFETCH, a line on standard input for each.

WHERE: the URL of a RabbitMQ, or the directory of a log. A consumer takes messages, works for a moment, and acknowledges. Said on
standard output, times in microseconds (monotonic):
    pid PID
    got PID RECEIPT ID ATTEMPT BEGAN ENDED   a message was lent by a call that began and ended then
    try PID RECEIPT ID AT                    it is about to be acknowledged
    ack PID RECEIPT ID                       it is
    lost PID RECEIPT ID                      its lease had run out
"""

import os
import random
import sys
import time

import pyarrow as pa

from penstock.log.file.log import FileLog
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.port import Consumer, QueuesPort, Settlement
from penstock.queue.rabbitmq.amqp.library import library
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.storage.local import LocalStorage


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def micros() -> int:
    return time.monotonic_ns() // 1000


def opened(where: str) -> QueuesPort:
    return RabbitQueues(where) if where.startswith("amqp://") else LogQueues(FileLog(LocalStorage(where)))


def consume(where: str, name: str, prefetch: int) -> None:
    pid, rng = os.getpid(), random.Random(os.getpid())
    queue = opened(where).queue(name)
    consumer = Consumer(f"c{pid}", prefetch=prefetch)
    while True:
        began = micros()
        deliveries, ended = queue.receive(consumer, rng.randint(1, prefetch * 3 // 4)), micros()
        for delivery in deliveries:
            say("got", pid, delivery.receipt, delivery.message.id, delivery.attempt, began, ended)
        for delivery in deliveries:
            words = (pid, delivery.receipt, delivery.message.id)
            time.sleep(rng.random() * 0.004)
            say("try", *words, micros())
            say("lost" if queue.settle([Settlement(delivery.receipt, "ack")]) else "ack", *words)


def main() -> None:
    where, name, prefetch = sys.argv[1:]
    pa.array([b""])  # imports what it needs, once for all
    library()
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            try:
                consume(where, name, int(prefetch))
            finally:
                os._exit(1)
        say("pid", child)


if __name__ == "__main__":
    main()
