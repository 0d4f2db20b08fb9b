"""A capture whose place in the source is lost goes on from a new one, and what it has missed is compared and written: only that."""

from penstock.capture.reconcile import Followed, ReconcileReport, Reconciliation
from penstock.capture.reconcile.reconciling import PATIENCE, SHOWN
from penstock.capture.reconcile.results import silent


def resnapshot(of: Followed, *, shown: int = SHOWN, patience: float = PATIENCE, report: ReconcileReport = silent) -> Reconciliation:
    """After a lost slot, on another server, on another timeline, or where the server's log went back: makes a new slot, goes on from
    there, and repairs every row that differs from its topic. Rows that are equal are not written again. Killed in between, it has
    to be started again: a plain run of the capture is refused until it has come to its end. InUse while the capture runs."""
    raise NotImplementedError
