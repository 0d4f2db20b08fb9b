"""A producer that stops itself (SIGSTOP) after some rows and, once woken, goes on as if nothing had happened.

Run by test_log_producers. Arguments: root, epoch, rows before the stop. Said: `sent N` for every row, `stopping`,
and at the end `fenced` or `done`.
"""

import os
import signal
import sys

from penstock.errors import Fenced
from penstock.log.file.log import FileLog
from penstock.log.producer import Producer
from penstock.storage.local import LocalStorage


def main(root: str, epoch: int, rows: int) -> None:
    producer = Producer(FileLog(LocalStorage(root)).topic("t"), id="till", epoch=epoch, batch_rows=1)
    for n in range(rows):
        producer.send({"epoch": epoch, "n": n})
        print(f"sent {n}", flush=True)
    print("stopping", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        for n in range(rows, rows + 20):
            producer.send({"epoch": epoch, "n": n})
            producer.flush()
            print(f"sent {n}", flush=True)
        print("done", flush=True)
    except Fenced:
        print("fenced", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
