"""Every store of events passes the same suite."""

from pathlib import Path

from penstock.core.time import FixedClock
from penstock.events.memory import MemoryStreams
from penstock.events.on_log.streams import LogStreams, open_streams
from penstock.log.file.log import FileLog
from penstock.log.memory import MemoryLog
from penstock.storage.faulty import FaultyStorage
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.events import EventStoreContract


class TestMemoryStreams(EventStoreContract):
    def make(self, place: Path, clock: FixedClock) -> MemoryStreams:
        return MemoryStreams(clock=clock)


class TestStreamsOnTheLog(EventStoreContract):
    def make(self, place: Path, clock: FixedClock) -> LogStreams:
        return open_streams(FileLog(LocalStorage(place), clock), "carts", clock=clock)


class TestStreamsOnALogOfTinySegments(EventStoreContract):
    def make(self, place: Path, clock: FixedClock) -> LogStreams:
        return open_streams(FileLog(FaultyStorage(), clock, segment_size=1), "carts", clock=clock)


class TestStreamsOnALogInMemory(EventStoreContract):
    def make(self, place: Path, clock: FixedClock) -> LogStreams:
        return open_streams(MemoryLog(clock), "carts", clock=clock)
