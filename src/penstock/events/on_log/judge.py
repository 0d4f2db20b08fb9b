"""The judge of a partition: which of the appends that came together are right, and what versions their events get.

It runs in the log's writer, under the lock of the partition, so that nothing can come between the check and the append (G40).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from penstock.core.position import Position
from penstock.core.time import NEVER
from penstock.events.event import Append, StoredEvent, Written
from penstock.events.expected import judge
from penstock.events.on_log.index import PartitionIndex
from penstock.events.on_log.recent import Head
from penstock.events.on_log.rows import Row, decode
from penstock.events.rules import already, check_order
from penstock.log.port import Chunk, End


@dataclass
class Session:
    """One group of appends, judged one after the other at this end of a partition. Thrown away if they cannot be written."""

    topic: str
    partition: int
    index: PartitionIndex
    end: End
    since: Callable[[int], Iterator[Chunk]]
    now: int
    rows: list[Row] = field(default_factory=list)  # what will be appended
    heads: dict[str, Head] = field(default_factory=dict)  # of the streams of these
    ids: dict[tuple[str, str], StoredEvent] = field(default_factory=dict)

    def take(self, appends: Sequence[Append]) -> list[Written]:
        """Where the last event of each will stand; raises without a trace if one of them is wrong."""
        there = [self._there(append) for append in appends]
        if already(appends, there):
            return [Written(e[-1].stream, e[-1].version, e[-1].position, duplicate=True) for e in there]
        heads = [self._head(append.stream) for append in appends]
        for append, head in zip(appends, heads, strict=True):
            judge(append.stream, append.expected, head.version)
            check_order(append, head.at if head.version else None)
        return [self._added(append, head) for append, head in zip(appends, heads, strict=True)]

    def _head(self, stream: str) -> Head:
        return self.heads.get(stream) or self.index.head(stream, self.end.first) or Head(0, NEVER, -1)

    def _there(self, append: Append) -> list[StoredEvent]:
        """The events that the stream has already, by their ids."""
        found = (self._find(append.stream, event.id) for event in append.events if not event.fresh)
        return [event for event in found if event]

    def _find(self, stream: str, id: str) -> StoredEvent | None:
        if (stream, id) in self.ids:
            return self.ids[stream, id]
        for offset in self.index.candidates(stream, id, self.end.first):
            chunk = next(self.since(offset), None)
            for event in decode(self.topic, self.partition, [chunk], stream) if chunk else ():
                if event.id == id:
                    return event
        return None

    def _added(self, append: Append, head: Head) -> Written:
        version, at = head.version, head.at
        for event in append.events:
            version, at = version + 1, max(self.now, at) if event.at is None else event.at
            position = Position(self.topic, self.partition, self.end.next + len(self.rows))
            self.rows.append(Row(append.stream, version, at, event))
            stored = (append.stream, version, event.name, event.number, event.id, at, event.data, event.about, position)
            self.ids[append.stream, event.id] = StoredEvent(*stored)
        self.heads[append.stream] = Head(version, at, position.offset)
        return Written(append.stream, version, position)
