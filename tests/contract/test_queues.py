"""Every broker's queues pass the same suite."""

from pathlib import Path

from penstock.queue.memory import MemoryQueues
from penstock.testing.queue_contract import QueueContract


class TestMemoryQueues(QueueContract):
    def make(self, place: Path) -> MemoryQueues:
        return MemoryQueues(self.wall, self.even)
