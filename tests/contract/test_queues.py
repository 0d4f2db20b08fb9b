"""Every broker's queues pass the same suite."""

from pathlib import Path

from penstock.log.file import FileLog
from penstock.queue.memory import MemoryQueues
from penstock.queue.on_log import LogQueues
from penstock.storage.local import LocalStorage
from penstock.testing.queue_contract import QueueContract


class TestMemoryQueues(QueueContract):
    def make(self, place: Path) -> MemoryQueues:
        return MemoryQueues(self.wall, self.even)


class TestLogQueues(QueueContract):
    def make(self, place: Path) -> LogQueues:
        return LogQueues(FileLog(LocalStorage(place, sync=False), self.wall), leases=self.even)
