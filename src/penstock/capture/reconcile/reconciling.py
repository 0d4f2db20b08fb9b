"""Reconciles captures: opens a snapshot of the source, waits until the log has all of it, compares table by table, repairs."""

from collections.abc import Sequence

from penstock.capture.port import Table
from penstock.capture.reconcile.followed import Followed
from penstock.capture.reconcile.results import ReconcileReport, Reconciliation, silent

SHOWN = 20  # differences of a table that are shown
PATIENCE = 600.0  # seconds without progress after which the log is not waited for any longer


def reconcile(
    of: Followed,
    tables: Sequence[Table] | None = None,
    *,
    shown: int = SHOWN,
    patience: float = PATIENCE,
    report: ReconcileReport = silent,
) -> Reconciliation:
    """Compares tables (None: all of the capture) with their topics; writes nothing to the source. No quiet time is needed: writers
    go on, and so does the capture. If the capture runs elsewhere, its log is waited for; if nobody runs it, it is run here until
    it has everything that the snapshot sees. NotYet if the log does not come that far."""
    raise NotImplementedError


def repair(
    of: Followed,
    tables: Sequence[Table] | None = None,
    *,
    shown: int = SHOWN,
    patience: float = PATIENCE,
    report: ReconcileReport = silent,
) -> Reconciliation:
    """Compares as `reconcile` does, and writes what differs to the topics, marked (`source.snapshot` is "repair"), until both are
    equal; a change that is newer than the snapshot is never overwritten. The result is that of the last comparison, `first` that of
    the first one. InUse while the capture runs elsewhere: it is the capture's own writer that writes, and there is one at a time.
    A repair that was killed is finished by the next start of the capture, or of the repair."""
    raise NotImplementedError
