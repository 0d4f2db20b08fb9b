"""Where a partition's files are, and what they are called."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import NotFound
from penstock.log.port import Durability
from penstock.storage.port import Storage

_FILE = re.compile(r"(\d{20})-(\d{8})\.(log|acks)")
_MANIFEST = re.compile(r"cleaned-(\d{8})\.manifest")


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

    @property
    def cleaning(self) -> str:
        """The cleaner's lock; writers never wait for it."""
        return f"{self.directory}/cleaning"

    @property
    def cleanings(self) -> str:
        """A file that grows by a byte with every cleaning, so that readers look again."""
        return f"{self.directory}/cleanings"

    def cleanings_seen(self) -> int:
        try:
            return int(self.storage.read(self.cleanings).size)
        except NotFound:
            return 0

    def log(self, name: SegmentName) -> str:
        return f"{self.directory}/{name}.log"

    def acks(self, name: SegmentName) -> str:
        return f"{self.directory}/{name}.acks"

    def senders(self, name: SegmentName) -> str:
        return f"{self.directory}/{name}.senders"

    def cut(self, name: SegmentName, at: int, number: int) -> str:
        return f"{self.directory}/{name}.cut-{at}-{number}"

    def part(self, name: SegmentName, cleaning: int) -> str:
        """A rewritten segment, by the last one that it replaces and the cleaning that wrote it."""
        return f"{self.directory}/{name}-{cleaning:08d}.part"

    def manifest(self, number: int) -> str:
        return f"{self.directory}/cleaned-{number:08d}.manifest"

    def cleaned_senders(self, number: int) -> str:
        return f"{self.directory}/cleaned-{number:08d}.senders"


def named(files: list[str], kind: str) -> list[SegmentName]:
    """The segments among the files of a partition that have a file of this kind."""
    found = (_FILE.fullmatch(name) for name in files)
    return sorted(SegmentName(int(m[1]), int(m[2])) for m in found if m and m[3] == kind)


def newest_manifest(files: list[str]) -> int | None:
    return max((int(m[1]) for m in map(_MANIFEST.fullmatch, files) if m), default=None)
