"""Where a partition's files are, and what they are called."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from penstock.log.port import Durability
from penstock.storage.port import Storage

_FILE = re.compile(r"(\d{20})-(\d{8})\.(log|acks)")


class SegmentName(NamedTuple):
    """Segments sort by first offset, then by number: two may start at one offset if the first got marks alone, or failed."""

    base: int
    serial: int

    def __str__(self) -> str:
        return f"{self.base:020d}-{self.serial:08d}"


@dataclass(frozen=True)
class Place:
    """One partition of one topic."""

    storage: Storage
    directory: str
    topic: str
    id: str
    partition: int
    durability: Durability = "fsync"

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}"

    @property
    def durable(self) -> bool:
        """Whether an acknowledged frame survives a power loss."""
        return self.durability == "fsync"

    @property
    def lock(self) -> str:
        return f"{self.directory}/lock"

    def segments(self) -> list[SegmentName]:
        return self._named("log")

    def acknowledged(self) -> list[SegmentName]:
        """Segments that have a file of acknowledgements."""
        return self._named("acks")

    def _named(self, kind: str) -> list[SegmentName]:
        found = (_FILE.fullmatch(name) for name in self.storage.list(self.directory))
        return sorted(SegmentName(int(m[1]), int(m[2])) for m in found if m and m[3] == kind)

    def log(self, name: SegmentName) -> str:
        return f"{self.directory}/{name}.log"

    def acks(self, name: SegmentName) -> str:
        return f"{self.directory}/{name}.acks"

    def senders(self, name: SegmentName) -> str:
        return f"{self.directory}/{name}.senders"

    def cut(self, name: SegmentName, at: int, number: int) -> str:
        return f"{self.directory}/{name}.cut-{at}-{number}"
