"""The source at one snapshot: which transactions it sees, and the rows of its tables in ranges of their keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.capture.port import Flags, Places, Table, TableFacts
from penstock.capture.writing.journal import CaptureState


@dataclass(frozen=True)
class Rows:
    """The rows of a range of keys, as the capture writes them; both are JSON objects."""

    keys: pa.Array
    rows: pa.Array

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Described:
    """A table as the source has it at the snapshot."""

    columns: tuple[str, ...]
    facts: TableFacts
    estimate: int  # of its rows; 0: unknown


class SourceSnapshot(Protocol):
    """A source as it was at one moment, however long it is looked at. Writes nothing. Used by one thread."""

    @property
    def snapshot(self) -> str:
        """What it sees, in the words of the database."""
        ...

    @property
    def position(self) -> str:
        """A position of the source's log, in its words, before which everything lies that it sees."""
        ...

    @property
    def believes(self) -> bool:
        """Whether a capture that says, behind it, that it has caught up has everything that it sees."""
        ...

    @property
    def time(self) -> int:
        """When it was taken, by the database's clock; microseconds since 1970."""
        ...

    @property
    def database(self) -> str:
        """What `source.db` says."""
        ...

    def sees(self, xids: Places, lsns: Places) -> Flags:
        """Which of these transactions, with the positions of their commits, it sees; -1, no transaction, counts as seen."""
        ...

    def copied(self, state: CaptureState, tables: Sequence[Table]) -> bool:
        """Whether a capture in this state has finished the copies of these tables, as they are at the snapshot."""
        ...

    def reached(self, state: CaptureState) -> bool:
        """Whether the log of the capture has everything that it sees, behind this state or a later one."""
        ...

    def describe(self, table: Table) -> Described: ...

    def ranges(self, table: Table) -> Iterator[Rows]: ...

    def close(self) -> None: ...
