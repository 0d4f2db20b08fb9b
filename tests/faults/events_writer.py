"""Appends to an event store until it is killed; run by test_events_kill. Every line on standard input starts one more writer.

A line is the writer's name. Said on standard output: `pid N`, then `name id stream version` for every event that was acknowledged
and `lost name stream version` for every conflict.
"""

import os
import signal
import sys
from itertools import count

from penstock.errors import VersionConflict
from penstock.events import EventStore
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.events.samples import EVENTS, ItemAdded


def say(text: str) -> None:
    os.write(1, (text + "\n").encode())


def write(root: str, name: str, streams: int) -> None:
    """Takes the next version of one stream after the other, from all who want the same."""
    store = EventStore.open("carts", EVENTS, log=FileLog(LocalStorage(root), segment_size=20_000))
    for number in count():
        stream, id = f"cart-{number % streams}", f"{name}-{os.getpid()}-{number}"
        version = store.version(stream)
        try:
            written = store.append(stream, [ItemAdded(name)], version, ids=[id])
            say(f"{name} {id} {stream} {written.version}")
        except VersionConflict as conflict:
            say(f"lost {name} {stream} {conflict.actual}")


def main(root: str, streams: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            write(root, line.strip(), int(streams))
        say(f"pid {pid}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
