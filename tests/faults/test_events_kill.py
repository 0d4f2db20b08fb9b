"""Processes that race for the versions of the same streams are killed at any moment: one of them wins each version (G40)."""

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from faults.seeds import SEED
from penstock.events import EventStore
from penstock.events.on_log.streams import LogStreams
from penstock.events.on_log.verifying import verify
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.events.samples import EVENTS, ItemAdded

pytestmark = pytest.mark.faults
SCRIPT = Path(__file__).with_name("events_writer.py")


class Writers:
    """Processes that append to one store, and the ledger of what they were answered."""

    def __init__(self, root: Path, streams: int) -> None:
        self.store = EventStore.open("carts", EVENTS, log=FileLog(LocalStorage(root), segment_size=20_000))
        self.acked: dict[tuple[str, int], str] = {}
        self.lost = 0
        self.alive: dict[str, int] = {}
        command = [sys.executable, str(SCRIPT), str(root), str(streams)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def start(self, name: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        while name not in self.alive:
            self.hear(name)

    def hear(self, starting: str = "") -> None:
        assert self.process.stdout
        self.take(self.process.stdout.readline(), starting)

    def take(self, line: str, starting: str = "") -> None:
        match line.split():
            case ["pid", pid]:
                self.alive[starting] = int(pid)
            case ["lost", *_]:
                self.lost += 1
            case [_, id, stream, version]:
                assert (stream, int(version)) not in self.acked, "two winners of a version"
                self.acked[stream, int(version)] = id

    def kill(self, name: str) -> None:
        os.kill(self.alive.pop(name), signal.SIGKILL)

    def close(self) -> None:
        for name in list(self.alive):
            with suppress(ProcessLookupError):
                self.kill(name)
        rest, _ = self.process.communicate()
        for line in rest.splitlines():
            self.take(line)

    def check(self) -> None:
        assert isinstance(self.store.port, LogStreams)
        assert verify(self.store.port).wrong == []
        there = {(e.stream, e.version): e.id for stream in self.store.streams() for e in self.store.read(stream.stream)}
        assert self.acked.items() <= there.items(), "acknowledged and not there"


@pytest.mark.parametrize("streams", [1, 3])
def test_writers_that_are_killed_leave_every_version_to_one_winner(tmp_path: Path, streams: int) -> None:
    rng, names = random.Random(SEED), ["a", "b", "c", "d"]
    writers = Writers(tmp_path, streams)
    try:
        for name in names:
            writers.start(name)
        for _ in range(12):
            for _ in range(rng.randint(1, 30)):
                writers.hear()
            victim = rng.choice(names)
            writers.kill(victim)
            writers.start(victim)
    finally:
        writers.close()
    writers.check()
    assert len(writers.acked) > 20
    assert writers.store.append("cart-0", [ItemAdded("after")], writers.store.version("cart-0"))
    writers.check()
