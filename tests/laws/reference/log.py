"""The log, its marks, and W(r) by its definition."""

from dataclasses import dataclass
from typing import NamedTuple

from .values import NEVER, Row


class Entry(NamedTuple):
    """A row of a partition."""

    t: int
    key: str | None
    val: int | None
    app: int = 0  # append time
    pos: tuple | None = None  # rows written by a flow bring their position along,
    W: int | None = None  # and their watermark


class Mark(NamedTuple):
    """A producer's promise: rows behind it are judged with a watermark of at least T."""

    T: int


class EngineMark(NamedTuple):
    """A mark that a run recorded: it stands before the entry at `offset`."""

    partition: int
    offset: int
    T: int


@dataclass
class Source:
    """A stream: partitions of entries and marks. lateness=None: watermarks move by marks alone (tables, topics of flows)."""

    name: str
    partitions: list[list[Entry | Mark]]
    lateness: int | None = 0
    future: int = 2**61
    table: bool = False  # entries are versions; one without a value is a delete

    def plausible(self, entry: Entry) -> bool:
        return entry.t <= entry.app + self.future

    def watermark(self, p: int, offset: int, recorded: list[EngineMark]) -> int:
        before = self.partitions[p][:offset]
        marks = [e.T for e in before if isinstance(e, Mark)]
        marks += [m.T for m in recorded if m.partition == p and m.offset <= offset]
        times = [e.t for e in before if isinstance(e, Entry) and self.plausible(e)]
        if self.lateness is None:
            times = []
        return max([NEVER, *marks, *(t - (self.lateness or 0) for t in times)])

    def row(self, p: int, offset: int, W: int) -> Row:
        e = self.partitions[p][offset]
        assert isinstance(e, Entry)
        return Row(e.t, e.key, e.val, e.pos or (self.name, p, offset), W if e.W is None else e.W, e.app)

    def read(self, recorded: list[EngineMark]) -> tuple[list[Row], int, int]:
        """Every plausible row with its W, how many are implausible, and the frontier at the end."""
        rows, implausible = [], 0
        for p, entries in enumerate(self.partitions):
            for k, e in enumerate(entries):
                if isinstance(e, Entry) and self.plausible(e):
                    rows.append(self.row(p, k, self.watermark(p, k, recorded)))
                implausible += isinstance(e, Entry) and not self.plausible(e)
        ends = [self.watermark(p, len(entries), recorded) for p, entries in enumerate(self.partitions)]
        return rows, implausible, min(ends, default=NEVER)
