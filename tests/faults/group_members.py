"""Members of a group as processes, until they are ended; run by the tests of groups. Every line on standard input starts one.

A line is `name kind`. Kinds: `plain` reads on; `zombie` stops itself (SIGSTOP) with its first batch in hand. SIGTERM makes a
member leave in order. Said on standard output, times in microseconds of the monotonic clock:
    pid NAME PID
    ask NAME BEGAN               a heartbeat begins, or the member leaves: it may give partitions up
    own NAME BEGAN ENDED 0,2     a heartbeat has ended, and the partitions that it was told
    read NAME PARTITION OFFSET…  rows that were handed out
    commit NAME PARTITION OFFSET
    stopped NAME                 it is about to stop itself
    fenced NAME                  its commit was refused
    left NAME
"""

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from penstock.errors import Fenced
from penstock.log.file.log import FileLog
from penstock.log.groups import rules
from penstock.log.groups.consumer import GroupConsumer, GroupSettings
from penstock.log.groups.port import InFlight, Source, Standing
from penstock.log.groups.reading import read_batch
from penstock.log.groups.sqlite import SqliteGroups, SqliteMembership
from penstock.log.memory import MemoryLog
from penstock.log.port import TopicSpec
from penstock.storage.local import LocalStorage

LEASE = 2.0


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def micros() -> int:
    return time.monotonic_ns() // 1000


class Telling(SqliteMembership):
    """Says what it was told."""

    name = ""

    def heartbeat(self, source: Source, busy: Mapping[int, InFlight] | None = None) -> Standing:
        began = micros()
        say("ask", self.name, began)
        standing = super().heartbeat(source, busy)
        say("own", self.name, began, micros(), ",".join(map(str, sorted(standing.owned))) or "-")
        return standing

    def leave(self) -> None:
        say("ask", self.name, micros())
        super().leave()

    def commit(self, offsets: Mapping[int, int]) -> None:
        super().commit(offsets)
        for partition, offset in offsets.items():
            say("commit", self.name, partition, offset)


class TellingGroups(SqliteGroups):
    def join(self, group: str, source: Source, begin: Mapping[int, int], *, label: str, lease: float) -> Telling:
        seat = super().join(group, source, begin, label=label, lease=lease)
        told = Telling(self, group, source, seat.id)
        told.name = label
        return told


class TellingLog(FileLog):
    def groups(self) -> TellingGroups:
        return TellingGroups(Path(self.storage.root) / "groups.db")  # type: ignore[attr-defined]


def member(root: str, name: str, kind: str) -> None:
    settings = GroupSettings(lease=f"{LEASE} seconds", max_rows=7, label=name)
    reader = GroupConsumer(TellingLog(LocalStorage(root)), "g", "t", settings=settings)
    signal.signal(signal.SIGTERM, lambda number, frame: reader.stop())
    try:
        with reader:
            for batch in reader:
                say("read", name, batch.partition, *batch.table.column("offset").to_pylist())
                if kind == "zombie":
                    with reader.session.guard:  # between two heartbeats: a stopped process must not hold SQLite's lock
                        say("stopped", name)
                        os.kill(os.getpid(), signal.SIGSTOP)
    except Fenced:
        say("fenced", name)
    say("left", name)


def grab(state: rules.State, id: str, busy: Mapping[int, InFlight], now: rules.Beat) -> None:
    """A planted bug: takes partitions before they are given up."""
    for number, part in list(state.parts.items()):
        if part.target == id:
            state.change(number, owner=id)


def main(root: str, planted: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if planted == "grab":
        rules.pass_on = grab
    warm = MemoryLog().create(TopicSpec("t"))  # what is imported when first used is imported once, here
    warm.append(0, pa.record_batch({"value": pa.array([b"x"], pa.binary())}))
    read_batch(warm, 0, 0, 1, 1)
    for line in sys.stdin:
        name, kind = line.split()
        pid = os.fork()
        if not pid:
            try:
                member(root, name, kind)
            finally:
                os._exit(0)
        say("pid", name, pid)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
