"""Every log whose topics ask a judge passes the same suite."""

from pathlib import Path

from penstock.core.time import FixedClock
from penstock.log.file.log import FileLog
from penstock.log.memory import MemoryLog
from penstock.storage.faulty import FaultyStorage
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.log.judging import JudgedContract


class TestMemoryLog(JudgedContract):
    def make(self, place: Path, clock: FixedClock) -> MemoryLog:
        return MemoryLog(clock)


class TestFileLog(JudgedContract):
    def make(self, place: Path, clock: FixedClock) -> FileLog:
        return FileLog(LocalStorage(place / "log", sync=False), clock)


class TestFileLogOfTinySegments(JudgedContract):
    def make(self, place: Path, clock: FixedClock) -> FileLog:
        return FileLog(FaultyStorage(), clock, segment_size=1)


class TestFileLogOfSmallSegments(JudgedContract):
    def make(self, place: Path, clock: FixedClock) -> FileLog:
        return FileLog(FaultyStorage(), clock, segment_size=1_500)
