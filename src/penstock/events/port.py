"""What keeps events: streams of them, each with versions 1, 2, 3 …"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from penstock.events.event import Append, StoredEvent, Written


class StreamInfo(NamedTuple):
    """One stream now."""

    stream: str
    events: int
    version: int  # of the last event
    first: int  # when the oldest event that is there happened, microseconds
    last: int  # and the newest
    partition: int = 0


class Streams(Protocol):
    """Where events are kept. Safe to use from several threads, and from several processes where it is not in memory."""

    @property
    def name(self) -> str:
        """Of the store."""
        ...

    def append(self, appends: Sequence[Append]) -> list[Written]:
        """Adds events to streams: all of them or none. VersionConflict, without the events that were missed, where a stream is not
        at the version expected; BadInput where the streams cannot be appended to together. Events whose ids their streams have
        already are not added again: the answer says where they stand. Returns once the events survive a power loss."""
        ...

    def read(self, stream: str, start: int = 1, stop: int | None = None) -> Sequence[StoredEvent]:
        """The events of these versions, start and stop included, as far as there are any, in order."""
        ...

    def version(self, stream: str) -> int:
        """The version of the last event; 0 if there is no such stream."""
        ...

    def streams(self) -> Iterator[StreamInfo]:
        """All streams, by name."""
        ...
