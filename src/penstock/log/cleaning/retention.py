"""Which of the oldest segments have had their time, by age and by size, and who had not read them yet."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.core.time import FOREVER, micros
from penstock.log.cleaning.sources import Source
from penstock.log.file.manifest import Lost
from penstock.log.holding import Held
from penstock.log.port import TopicSpec


@dataclass
class Due:
    """The first `count` segments go."""

    count: int = 0
    lost: list[Lost] = field(default_factory=list)  # what readers had not read of them
    waiting: list[Held] = field(default_factory=list)  # readers for whom the next one is kept, though it has had its time


def due(sources: Sequence[Source], active: int, spec: TopicSpec, held: Sequence[Held], now: int) -> Due:
    """Whole segments from the old end. active: bytes in the segment that is written to.

    A segment that is not read yet stays up to `hold` longer than it would otherwise; then it is removed, and that is reported."""
    found = Due()
    for at, source in enumerate(sources):
        since = min(over_age(source, spec), _over_size(sources[at + 1 :], active, spec, now))
        behind = [reader for reader in held if reader.offset < source.tail.next]
        if since > now or (behind and since + micros(spec.hold) > now):
            found.waiting = behind if since <= now else []
            break
        found.count += 1
        for reader in behind:
            _lose(found.lost, Lost(reader.reader, max(reader.offset, source.base), source.tail.next, now))
    return found


def over_age(source: Source, spec: TopicSpec) -> int:
    """Since when the last record of the segment is too old."""
    return FOREVER if spec.retain is None else source.tail.appended + micros(spec.retain)


def _over_size(behind: Sequence[Source], active: int, spec: TopicSpec, now: int) -> int:
    """Since when what lies behind the segment is enough."""
    if spec.retain_bytes is None:
        return FOREVER
    total = 0
    for source in behind:
        total += source.length
        if total >= spec.retain_bytes:
            return source.tail.appended
    return now if total + active >= spec.retain_bytes else FOREVER


def _lose(lost: list[Lost], more: Lost) -> None:
    for at, known in enumerate(lost):
        if known.reader == more.reader and known.end == more.first:
            lost[at] = Lost(known.reader, known.first, more.end, known.at)
            return
    lost.append(more)
