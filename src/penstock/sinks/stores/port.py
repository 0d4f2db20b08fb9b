"""What a store offers a sink: rows and a marker that change together."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from penstock.sinks.port import Marker

AFRESH = "restore it from a copy; or remove it, and fill it anew: penstock sink rebuild"  # what to do about damaged files


@dataclass(frozen=True)
class Changes:
    """What an epoch, or several, do to a store: at most one change for each key, so that the order of rows does not matter."""

    put: pa.Table  # rows that are added, or replace those of their key: the columns of the schema, TIME and POSITION
    gone: pa.Table  # rows whose keys are taken out, with the same columns
    epoch: int = 0  # the last one of those whose changes these are


@dataclass(frozen=True)
class Refusal:
    """A row that the store does not take."""

    row: int  # in Changes.put
    reason: str


@dataclass(frozen=True)
class Note:
    """What a store keeps beside its rows for one sink of one flow. refused: rows that it did not take in the marker's epoch, as
    Arrow IPC; they are dead letters once the log has them."""

    marker: Marker
    refused: bytes = b""


class Transaction(Protocol):
    """Everything in it becomes visible at once, when the block around it is left, or never."""

    def note(self) -> Note | None:
        """What is kept for this sink; None before the first epoch. From here on nobody else can change it: of two drivers that
        write at once, the second one reads what the first has noted, or its commit fails."""
        ...

    def write(self, changes: Changes) -> Sequence[Refusal]:
        """Called once at most. Rows that the store refuses are left out and named; SinkError for anything else."""
        ...

    def keep(self, note: Note) -> None:
        """Replaces what is kept for this sink."""
        ...


@runtime_checkable
class Legible(Protocol):
    """A transaction of a store whose rows can be read back: such a store can be compared with the log, and put right."""

    @property
    def one_moment(self) -> bool:
        """Whether nobody writes between `note` and the end of `rows`."""
        ...

    def rows(self) -> Iterator[pa.Table]:
        """Called behind `note` and before `write`: all rows that are there. The columns of the schema that the store keeps, in its
        types or, where they are nested, as texts of JSON; POSITION where no column tells rows apart and the store keeps it."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """A transaction whose rows bear the number of their epoch."""

    def mending(self) -> None:
        """Called before `write` where rows are put right as they are behind `Changes.epoch`: they replace those of that epoch, and
        the next one replaces them."""
        ...


class Store(Protocol):
    """One place in one store, such as a table."""

    @property
    def called(self) -> str:
        """For people, without secrets: table sales of PostgreSQL db.example:5432/shop."""
        ...

    def open(self) -> None:
        """Called at every start, and after a failure: connects anew, makes what is missing, checks what is there.
        SinkUnavailable if the store cannot be reached now."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Commits, durably, when the block ends well. If it cannot be told whether a commit went through, SinkUnavailable: what is
        kept is read again behind the next `open`."""
        ...

    def close(self) -> None:
        """May be called before `open`, and twice."""
        ...
