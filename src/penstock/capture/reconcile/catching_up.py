"""The log of a capture brought up to a snapshot of its source: waited for where the capture runs, run here where nobody does."""

import time
from dataclasses import dataclass

from penstock.capture.reconcile.followed import Followed
from penstock.capture.reconcile.results import ReconcileProgress, ReconcileReport
from penstock.capture.runner import Progress
from penstock.errors import InUse, NotYet

LOOK = 0.1  # seconds between two looks at a capture that runs elsewhere


@dataclass
class CatchingUp:
    """Waits for the log of one capture. patience: seconds without progress after which it gives up. alone: the capture must not run
    elsewhere. resnapshot: one that was begun is about to be finished."""

    of: Followed
    patience: float
    report: ReconcileReport
    alone: bool = False
    resnapshot: bool = False

    def __post_init__(self) -> None:
        self._moved, self._batch = time.monotonic(), -1

    def step(self, what: str) -> bool:
        """Brings the log on; whether it has everything that was committed in the source before the call, by the capture's own word.
        InUse if it runs elsewhere and must not; NotYet if it has not moved for too long."""
        try:
            self._run()
            return True
        except InUse:
            if self.alone:
                raise
        batch = self.of.journal().state.batch
        if batch != self._batch:
            self._moved, self._batch = time.monotonic(), batch
        if time.monotonic() - self._moved > self.patience:
            raise NotYet(
                f"the log of capture {self.of.name!a} has not come as far as its source within {self.patience:g} seconds",
                f"it runs in another process of this machine, and {what}",
                hint="see `penstock cdc status`; or stop it and try again: its log is then brought up to date here",
            )
        self.report(ReconcileProgress("waiting", note=what))
        time.sleep(LOOK)
        return False

    def _run(self) -> None:
        """Until it has caught up, and no transaction is written in part."""
        going_on = True
        while going_on:
            going_on = self.of.run(self._told).run(catch_up=True, resnapshot=self.resnapshot).open is not None

    def _told(self, progress: Progress) -> None:
        copies = sum(each.rows for each in progress.status.snapshots), sum(each.estimate for each in progress.status.snapshots)
        note = progress.waiting or f"bringing the log up to date: {progress.changes} changes written"
        self.report(ReconcileProgress("waiting", None, *copies, note=note))
