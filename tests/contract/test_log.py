"""Every log passes the same suite."""

from pathlib import Path

from penstock.core.time import FixedClock
from penstock.log.file.log import FileLog
from penstock.log.memory import MemoryLog
from penstock.storage.faulty import FaultyStorage
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.log import LogContract


class TestMemoryLog(LogContract):
    def make(self, place: Path, clock: FixedClock) -> MemoryLog:
        return MemoryLog(clock)


class TestFileLog(LogContract):
    def make(self, place: Path, clock: FixedClock) -> FileLog:
        return FileLog(LocalStorage(place / "log"), clock)


class TestFileLogOfTinySegments(LogContract):
    """A new segment for every frame: every reader and writer crosses their borders all the time."""

    def make(self, place: Path, clock: FixedClock) -> FileLog:
        return FileLog(FaultyStorage(), clock, segment_size=1)
