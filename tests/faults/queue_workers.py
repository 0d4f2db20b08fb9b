"""Consumers of a queue as processes that are killed; run by the tests of queues: HOME QUEUE, and a line on standard input for each.

A consumer takes messages, works for a moment, and acknowledges. Said on standard output, times in microseconds (monotonic):
    pid PID
    got PID RECEIPT ID BEGAN ENDED   a message was lent by a call that began and ended then
    try PID RECEIPT ID AT            it is about to be acknowledged
    ack PID RECEIPT ID               it is
    lost PID RECEIPT ID              its lease had run out
"""

import os
import random
import sys
import time

import pyarrow as pa

from penstock.log.file import FileLog
from penstock.queue.on_log import LogQueues
from penstock.queue.port import Consumer, Settlement
from penstock.storage.local import LocalStorage


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def micros() -> int:
    return time.monotonic_ns() // 1000


def consume(home: str, name: str) -> None:
    pid, rng = os.getpid(), random.Random(os.getpid())
    queue = LogQueues(FileLog(LocalStorage(home))).queue(name)
    consumer = Consumer(f"c{pid}", prefetch=4)
    while True:
        began = micros()
        deliveries, ended = queue.receive(consumer, rng.randint(1, 3)), micros()
        for delivery in deliveries:
            say("got", pid, delivery.receipt, delivery.message.id, began, ended)
        for delivery in deliveries:
            words = (pid, delivery.receipt, delivery.message.id)
            time.sleep(rng.random() * 0.004)
            say("try", *words, micros())
            say("lost" if queue.settle([Settlement(delivery.receipt, "ack")]) else "ack", *words)


def main() -> None:
    home, name = sys.argv[1:]
    pa.array([b""])  # imports what it needs, once for all
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            try:
                consume(home, name)
            finally:
                os._exit(1)
        say("pid", child)


if __name__ == "__main__":
    main()
