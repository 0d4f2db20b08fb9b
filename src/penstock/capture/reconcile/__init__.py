"""Proof that the log of a capture equals its source: the source at a snapshot against the log folded over the transactions that are
visible in it, down to the keys that differ; and the repair of those, through the log."""

from penstock.capture.reconcile.followed import Followed, followed
from penstock.capture.reconcile.reconciling import reconcile, repair
from penstock.capture.reconcile.results import (
    ColumnDifference,
    Difference,
    RangeDifference,
    ReconcileProgress,
    ReconcileReport,
    Reconciliation,
    TableResult,
)

__all__ = [
    "ColumnDifference",
    "Difference",
    "Followed",
    "RangeDifference",
    "ReconcileProgress",
    "ReconcileReport",
    "Reconciliation",
    "TableResult",
    "followed",
    "reconcile",
    "repair",
]
