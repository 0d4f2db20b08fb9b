"""The offsets of a range: each is a row, a mark, or known to the log to hold nothing; a read that shows less is refused (G29)."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from penstock.core.time import NEVER
from penstock.errors import LogError, Unreachable
from penstock.log.port import Chunk, Compacted, Topic

OFFSETS, ROWS, MARKS, ABSENT = "offsets", "rows", "marks", "absent"
Account = Mapping[str, int]  # offsets = rows + marks + absent


class RangeAccount:
    """Follows the chunks of one range [start, stop) of a partition, as they are read."""

    def __init__(self, topic: Topic, partition: int, start: int, stop: int) -> None:
        self._topic, self._partition, self._start, self._stop = topic, partition, start, stop
        self._at = start
        self._holes: list[tuple[int, int]] = []  # between chunks
        self._seen: Counter[str] = Counter()

    def take(self, chunk: Chunk) -> None:
        frame = chunk.frame
        first, end = min(max(frame.base, self._at), self._stop), min(frame.end, self._stop)
        if first > self._at:
            self._holes.append((self._at, first))
            self._at = first
        if end <= first:
            return
        rows, marks = _rows(chunk, first, end), int(frame.mark > NEVER and not self._topic.headers)
        self._seen.update({ROWS: rows, MARKS: marks, ABSENT: end - first - rows - marks})
        self._at = end

    def close(self) -> Account:
        """What was seen; Unreachable where the read ended early, LogError where it left out what the log does not account for."""
        if self._at < self._stop:
            self._holes.append((self._at, self._stop))
        for first, end in self._holes:
            known = self._topic.compacted_to(self._partition) if isinstance(self._topic, Compacted) else 0
            if end > known:
                raise self._missing(first, end)
            self._seen[ABSENT] += end - first
        self._seen[OFFSETS] = self._stop - self._start
        return self._seen

    def _missing(self, first: int, end: int) -> LogError:
        return Unreachable(
            f"{self._topic.spec.name}/{self._partition} gave nothing of offsets {first} to {end - 1}",
            "neither their rows came nor word that they hold none; the epoch is not decided",
            hint="try again: the log may still be starting",
        )


def _rows(chunk: Chunk, first: int, end: int) -> int:
    """How many rows stand at [first, end)."""
    if first <= chunk.frame.base and chunk.frame.end <= end:
        return chunk.frame.count
    offsets = chunk.offsets
    return int(np.count_nonzero((offsets >= first) & (offsets < end)))


def balanced(account: Account) -> bool:
    return account.get(OFFSETS, 0) == sum(account.get(what, 0) for what in (ROWS, MARKS, ABSENT))
