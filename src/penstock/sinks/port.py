"""What a sink must do to take part in exactly-once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.log.port import Log
from penstock.storage.port import Storage


@dataclass(frozen=True)
class SinkSpec:
    """What a sink knows when the flow starts."""

    flow: str
    name: str  # unique in the flow: what it writes
    schema: Schema
    key: tuple[str, ...]  # columns that name a row; () = the row's position does
    updating: bool = False  # rows carry OP
    ordered: bool = False  # rows carry ADDRESS: they are delivered in the order of the log
    unique: bool = False  # append-only, and no two rows share a key (windows: by + window_start): positions need not be kept


@dataclass(frozen=True)
class Marker:
    """Written by the sink in the same transaction as the rows."""

    incarnation: str  # one life of the flow's state
    generation: int  # one start of its driver
    epoch: int  # the last epoch delivered; -1: none yet


@dataclass(frozen=True)
class Delivery:
    """One decided epoch for one sink. Files are Arrow IPC files (schema + TIME, WATERMARK, POSITION), named in the decision. For a
    topic, records of the log have ADDRESS too: a sink that keeps an order keeps that of `staged.in_order`."""

    marker: Marker
    files: Sequence[str]  # paths in the flow's storage
    frontier: int  # the F out that this epoch used: the mark behind its rows
    inputs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # topic -> partition -> next offset after this epoch
    clock: int = 0  # when the epoch was opened, microseconds


def nothing(point: str) -> None:
    """What happens at a crash point outside of tests."""


def no_letters(marker: Marker, rows: pa.Table) -> None:
    """Where nobody keeps dead letters."""


@dataclass(frozen=True)
class SinkContext:
    """What a sink is built from: the flow's side of it, and where things are."""

    spec: SinkSpec
    log: Log
    storage: Storage  # of the flow: staged files are read from it
    views: Path  # the directory of the home's views
    fail: Callable[[str], None] = nothing  # called with each of the sink's own points as it is passed
    refuse: Callable[[Marker, pa.Table], None] = no_letters  # takes the rows of an epoch that a store refused, once for each epoch


class Sink(Protocol):
    def open(self, incarnation: str, generation: int) -> int:
        """Called at every start. Makes what is missing and returns the last epoch it has (-1: none).
        Raises Mismatch if it belongs to another incarnation, or a later generation has written."""
        ...

    def deliver(self, delivery: Delivery) -> None:
        """Rows and marker in one transaction. An epoch it has already is skipped; Mismatch as above.
        Anything else that goes wrong raises SinkError and leaves the sink as it was."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Together(Protocol):
    """A sink that takes several epochs in one transaction, when it has fallen behind."""

    def deliver_together(self, deliveries: Sequence[Delivery]) -> None:
        """As if each were delivered in turn; all of them are there, or none."""
        ...
