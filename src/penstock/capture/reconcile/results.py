"""What a reconcile finds: of each table how many rows were compared, their checksums, and the keys that differ and how."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock.capture.port import Table

Kind = Literal["missing", "extra", "different"]
Phase = Literal["waiting", "log", "source", "details", "repair"]


@dataclass(frozen=True)
class ColumnDifference:
    """A column of a row that differs: both values as JSON, long ones cut; None where the side has no such column."""

    name: str
    source: str | None
    log: str | None


@dataclass(frozen=True)
class Difference:
    """A key of which source and log do not say the same. missing: the log has no row of it; extra: the source has none."""

    kind: Kind
    key: str  # as the topic has it
    columns: Sequence[ColumnDifference] = ()  # of a row that is different


@dataclass(frozen=True)
class RangeDifference:
    """A range of keys whose rows are not the same on both sides."""

    first: str  # keys, as the topic has them
    last: str
    rows: int
    checksum: int  # of the source's rows
    log_checksum: int  # of the rows that the log has for their keys


@dataclass(frozen=True)
class TableResult:
    """A table of the source and its topic. Checksums do not depend on the order of rows; those of one run can be compared."""

    table: Table
    topic: str
    rows: int = 0  # of the source
    log_rows: int = 0
    checksum: int = 0
    log_checksum: int = 0
    ranges: int = 0
    differing: Sequence[RangeDifference] = ()
    missing: int = 0  # all of them are counted …
    extra: int = 0
    different: int = 0
    shown: Sequence[Difference] = ()  # … and the first ones shown
    unsettled: int = 0  # keys that were changed all the time, of topics that do not say by which transaction
    repaired: int = 0  # records that were written

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different

    @property
    def equal(self) -> bool:
        return not self.differences and not self.unsettled


@dataclass(frozen=True)
class Reconciliation:
    """The source at one snapshot against the log folded over the transactions that are visible in it."""

    capture: str
    tables: Sequence[TableResult]
    snapshot: str  # of the source, as pg_current_snapshot() writes it
    position: str  # of the source's log, taken after the snapshot: the topics were read once they had everything before it
    offsets: Mapping[str, Sequence[int]] = field(default_factory=dict)  # topic: up to where each partition was read
    seconds: float = 0.0
    rounds: int = 1  # how often the source was compared; more than once where something was repaired or unsettled
    first: "Reconciliation | None" = None  # of a repair: what the first comparison found

    @property
    def equal(self) -> bool:
        return all(each.equal for each in self.tables)

    @property
    def differences(self) -> int:
        return sum(each.differences for each in self.tables)

    @property
    def repaired(self) -> int:
        return sum(each.repaired for each in self.tables)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.tables)


@dataclass(frozen=True)
class ReconcileProgress:
    """How far a reconcile has come."""

    phase: Phase
    table: Table | None = None  # None while the log is waited for
    done: int = 0  # records of the log that were folded, rows of the source that were compared, records that were repaired
    total: int = 0  # an estimate; 0: unknown
    note: str = ""  # one line, such as what is waited for


ReconcileReport = Callable[[ReconcileProgress], None]


def silent(progress: ReconcileProgress) -> None:
    """Nobody looks."""
