"""The newest events of a partition, in memory: those that no file of the index holds yet."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from penstock.events.on_log.rows import AT, ID, STREAM, VERSION
from penstock.log.port import Chunk


class Head(NamedTuple):
    """The last event of a stream."""

    version: int
    at: int
    offset: int


@dataclass
class Line:
    """The events of one stream, in the order of their versions."""

    versions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    at: int = 0  # of the last one

    @property
    def head(self) -> Head:
        return Head(self.versions[-1], self.at, self.offsets[-1])


class Recent:
    """Events from offset `base` up to, not including, `next`."""

    def __init__(self, base: int) -> None:
        self.base = self.next = base
        self.lines: dict[str, Line] = {}
        self.ids: dict[tuple[str, str], int] = {}  # stream and id: offset

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, stream: str, version: int, id: str, at: int, offset: int) -> None:
        line = self.lines.get(stream)
        if line is None:
            line = self.lines[stream] = Line()
        line.versions.append(version)
        line.offsets.append(offset)
        line.at = at
        self.ids[stream, id] = offset

    def feed(self, chunk: Chunk) -> None:
        """Takes the rows of a frame that are not known yet."""
        rows = chunk.rows
        times = rows.column(AT).cast(pa.int64()).to_pylist()
        columns = (rows.column(name).to_pylist() for name in (STREAM, VERSION, ID))
        for offset, stream, version, id, at in zip(chunk.offsets.tolist(), *columns, times, strict=True):
            if offset >= self.next:
                self.add(stream, version, id, at, offset)
        self.next = max(self.next, chunk.frame.end)

    def since(self, base: int) -> "Recent":
        """The part of it from an offset on."""
        rest = Recent(base)
        rest.next = max(base, self.next)
        for stream, line in self.lines.items():
            if line.offsets[-1] >= base:
                known = bisect_left(line.offsets, base)
                rest.lines[stream] = Line(line.versions[known:], line.offsets[known:], line.at)
        rest.ids = {named: offset for named, offset in self.ids.items() if offset >= base}
        return rest
