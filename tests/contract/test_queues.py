"""Every broker's queues pass the same suite."""

from pathlib import Path

from penstock.log.file.log import FileLog
from penstock.queue.memory import MemoryQueues
from penstock.queue.on_log.queues import LogQueues
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.queue import QueueContract


class TestMemoryQueues(QueueContract):
    def make(self, place: Path) -> MemoryQueues:
        return MemoryQueues(self.wall, self.even)


class TestLogQueues(QueueContract):
    def make(self, place: Path) -> LogQueues:
        return LogQueues(FileLog(LocalStorage(place, sync=False), self.wall), leases=self.even)
