"""Writes to a topic until it is killed; run by test_log_kill. Every line on standard input starts one more writer.

A line is `producer sequence`. Said on standard output: `pid N`, then `producer sequence base duplicate` for every acknowledgement.
"""

import os
import signal
import sys

import pyarrow as pa

from penstock.log.file.log import FileLog
from penstock.log.port import Sender
from penstock.storage.local import LocalStorage


def say(text: str) -> None:
    os.write(1, (text + "\n").encode())


def rows_of(text: str, count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([text.encode()] * count, pa.binary())})


def write(root: str, producer: str, sequence: int) -> None:
    topic = FileLog(LocalStorage(root), segment_size=20_000).topic("t")
    while True:
        answer = topic.append(0, rows_of(f"{producer} {sequence}", 1 + sequence % 3), sender=Sender(producer, 0, sequence))
        say(f"{producer} {sequence} {answer.base} {int(answer.duplicate)}")
        sequence += 1


def main(root: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    rows_of("", 1)  # what Arrow imports when first used is imported once, here
    for line in sys.stdin:
        producer, sequence = line.split()
        pid = os.fork()
        if not pid:
            write(root, producer, int(sequence))
        say(f"pid {pid}")


if __name__ == "__main__":
    main(sys.argv[1])
