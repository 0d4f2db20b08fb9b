"""Streams in memory: the reference for every store of events."""

import threading
from collections.abc import Iterator, Sequence

from penstock.core.position import Position
from penstock.core.time import NEVER, Clock, SystemClock
from penstock.events.event import Append, StoredEvent, Written
from penstock.events.expected import judge
from penstock.events.port import StreamInfo
from penstock.events.rules import already, check_order, check_stream, check_together


class MemoryStreams:
    """Events that live as long as this object."""

    def __init__(self, name: str = "memory", clock: Clock | None = None) -> None:
        self.name, self._clock = name, clock or SystemClock()
        self._streams: dict[str, list[StoredEvent]] = {}
        self._next = 0
        self._guard = threading.Lock()

    def append(self, appends: Sequence[Append]) -> list[Written]:
        check_together(appends)
        with self._guard:
            there = [self._there(append) for append in appends]
            if already(appends, there):
                return [_written(events[-1], duplicate=True) for events in there]
            for append in appends:
                judge(append.stream, append.expected, len(self._streams.get(append.stream, ())))
                self._check_times(append)
            return [self._added(append) for append in appends]

    def read(self, stream: str, start: int = 1, stop: int | None = None) -> Sequence[StoredEvent]:
        check_stream(stream)
        with self._guard:
            return self._streams.get(stream, [])[max(start - 1, 0) : stop]

    def version(self, stream: str) -> int:
        return len(self._streams.get(stream, ()))

    def streams(self) -> Iterator[StreamInfo]:
        with self._guard:
            found = sorted(self._streams.items())
        return (StreamInfo(name, len(e), e[-1].version, e[0].at, e[-1].at) for name, e in found)

    def _there(self, append: Append) -> list[StoredEvent]:
        ids = {event.id: event for event in self._streams.get(append.stream, ())}
        return [ids[event.id] for event in append.events if event.id in ids]

    def _check_times(self, append: Append) -> None:
        events = self._streams.get(append.stream)
        check_order(append, events[-1].at if events else None)

    def _added(self, append: Append) -> Written:
        events = self._streams.setdefault(append.stream, [])
        for event in append.events:
            at = max(self._clock.now(), events[-1].at if events else NEVER) if event.at is None else event.at
            position = Position(self.name, 0, self._next)
            stored = (append.stream, len(events) + 1, event.name, event.number, event.id, at, event.data, event.about, position)
            events.append(StoredEvent(*stored))
            self._next += 1
        return _written(events[-1])


def _written(event: StoredEvent, duplicate: bool = False) -> Written:
    return Written(event.stream, event.version, event.position, duplicate)
