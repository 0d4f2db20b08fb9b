"""What a replay of decided epochs goes by: the engine's marks as they were put then, instead of new ones."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.time import NEVER


@dataclass(frozen=True)
class Recorded:
    """marks: (source, partition) -> offset -> time, of marks for whoever judges. ends: source -> partition -> where it had been
    read to; other partitions had not been seen. answered: step -> the mark that stands on its table. most: source -> the frontier
    that may be used of it."""

    marks: Mapping[tuple[str, int], Mapping[int, int]]
    ends: Mapping[str, Mapping[int, int]]
    answered: Mapping[str, int]
    most: Mapping[str, int]

    def mark_at(self, source: str, partition: int, offset: int) -> int:
        return self.marks.get((source, partition), {}).get(offset, NEVER)
