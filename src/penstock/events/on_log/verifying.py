"""Whether a store is what it should be: versions dense, ids unique, times in order, and the index equal to the log."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.events.event import StoredEvent
from penstock.events.on_log.index import PartitionIndex
from penstock.events.on_log.streams import LogStreams


@dataclass
class Verified:
    """What was looked at, and a sentence for everything that is wrong."""

    streams: int = 0
    events: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class _Stream:
    events: list[StoredEvent] = field(default_factory=list)
    ids: dict[str, StoredEvent] = field(default_factory=dict)


def verify(streams: LogStreams) -> Verified:
    """Reads the whole topic, and asks the index about all that is there."""
    found = Verified()
    for number in range(streams.topic.spec.partitions):
        first, index = streams.topic.end(number).first, streams.index(number)
        index.refresh()
        seen: dict[str, _Stream] = {}
        for event in streams.events(number):
            found.events += 1
            found.wrong += _misplaced(event, seen.setdefault(event.stream, _Stream()), streams, first)
        found.streams += len(seen)
        for name, stream in seen.items():
            found.wrong += _differences(name, stream, index, first)
    return found


def _misplaced(event: StoredEvent, stream: _Stream, streams: LogStreams, first: int) -> Iterator[str]:
    last, known = stream.events[-1] if stream.events else None, stream.ids.get(event.id)
    cleaned = streams.topic.spec.compact or (not last and first > 0)
    if event.version != (last.version if last else 0) + 1 and not (cleaned and event.version > (last.version if last else 0)):
        after = f"follows version {last.version}" if last else "is its first"
        yield f"{event.position}: version {event.version} of stream {event.stream!r} {after}"
    if known:
        yield f"{event.position}: id {event.id!r} of stream {event.stream!r} is that of version {known.version}, too"
    if last and event.at < last.at:
        yield f"{event.position}: version {event.version} of stream {event.stream!r} happened before version {last.version}"
    if streams.partition_of(event.stream) != event.position.partition:
        yield f"{event.position}: stream {event.stream!r} belongs in partition {streams.partition_of(event.stream)}"
    stream.events.append(event)
    stream.ids[event.id] = event


def _differences(name: str, stream: _Stream, index: PartitionIndex, first: int) -> Iterator[str]:
    """What the index says of a stream, against its events."""
    head, last = index.head(name, first), stream.events[-1]
    if head is None or (head.version, head.at, head.offset) != (last.version, last.at, last.position.offset):
        yield f"stream {name!r}: the index has {f'version {head.version}' if head else 'nothing'}, the log version {last.version}"
    there, offsets = index.places(name, 1, None, first), [event.position.offset for event in stream.events]
    if not set(offsets) <= set(there) or there != sorted(there):
        yield f"stream {name!r}: the index says that its events stand at {there[:5]} …, the log has them at {offsets[:5]} …"
    for event in stream.events:
        if event.position.offset not in index.candidates(name, event.id, first):
            yield f"{event.position}: the index does not know the id {event.id!r} of stream {name!r}"
