"""Brokers for the machine that compares queues with a naive model."""

import itertools
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from penstock.core.time import FixedClock
from penstock.log.file.log import FileLog
from penstock.log.groups.leases import ManualClock
from penstock.queue.memory import MemoryQueues
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.port import QueuesPort
from penstock.storage.local import LocalStorage


class Broker:
    """How a machine gets its queues."""

    gaps: ClassVar[frozenset[str]] = frozenset()  # of those that `penstock.testing.contracts.queue.bench` names
    patience: ClassVar[float] = 0.0  # seconds until what was sent or given back can be taken
    tick: ClassVar[timedelta] = timedelta(seconds=5)
    frees: ClassVar[bool] = False  # whether what was lent comes back when it is opened anew

    def __init__(self, wall: FixedClock, even: ManualClock) -> None:
        self.wall, self.even = wall, even

    def open(self) -> QueuesPort:
        return MemoryQueues(self.wall, self.even)

    def reopen(self) -> QueuesPort | None:
        """As another process would; None if nothing survives that."""
        return None

    def close(self) -> None:
        """Cleans up."""


class LogBroker(Broker):
    """Queues on the log. Two processes take turns, so to speak, and a third one begins anew every time."""

    def open(self) -> QueuesPort:
        self.place = tempfile.TemporaryDirectory()
        self.turns = itertools.cycle([self.made(), self.made(), None])
        return self.made()

    def made(self) -> QueuesPort:
        return LogQueues(FileLog(LocalStorage(Path(self.place.name) / "log"), self.wall), leases=self.even)

    def reopen(self) -> QueuesPort:
        return next(self.turns) or self.made()

    def close(self) -> None:
        self.place.cleanup()
