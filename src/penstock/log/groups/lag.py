"""How far a group is behind its topic: in records, and in seconds since the oldest of them was appended."""

from typing import NamedTuple

from penstock.core.columns import VALUE
from penstock.core.time import NEVER
from penstock.errors import NotFound
from penstock.log.groups.port import GroupState, PartitionState
from penstock.log.port import End, Log, Topic


class Lag(NamedTuple):
    """One partition. Compaction and transactions leave holes in the offsets, so there may be fewer records than offsets."""

    partition: int
    end: int  # the offset the next record will get
    records: int  # offsets from the committed one to the end, as far as they are still there
    seconds: float  # since the oldest record that was not committed was appended; 0 where there is none
    removed: int = 0  # offsets that were removed before they were read


def lags(log: Log, state: GroupState, now: int) -> dict[int, Lag] | None:
    """Of every partition of the topic; None where the topic is gone, or another one was made under its name."""
    try:
        topic = log.topic(state.topic)
        if topic.id != state.topic_id:
            return None
        ends = topic.ends()
    except NotFound:
        return None
    known = {part.partition: part for part in state.partitions}
    return {number: _lag(topic, number, end, known.get(number), now) for number, end in sorted(ends.items())}


def _lag(topic: Topic, number: int, end: End, part: PartitionState | None, now: int) -> Lag:
    offset = part.offset if part else end.first
    start = max(offset, end.first)
    oldest = _appended(topic, number, start, end.next) if start < end.next else NEVER
    seconds = max(0.0, (now - oldest) / 1e6) if oldest != NEVER else 0.0
    return Lag(number, end.next, max(0, end.next - start), seconds, start - offset)


def _appended(topic: Topic, number: int, start: int, stop: int) -> int:
    """When the first record from start on was appended; NEVER if there is none."""
    column = topic.spec.schema.names[:1] if topic.spec.schema else [VALUE]
    for chunk in topic.read(number, start, stop, column):
        found = chunk.appended[chunk.offsets >= start]
        if len(found):
            return int(found[0])
    return NEVER
