"""A capture whose place in the source is lost goes on from a new one, and what it has missed is compared and written: only that."""

from typing import Unpack

from penstock.capture.postgres.lsn import lsn_text
from penstock.capture.reconcile import Followed, ReconcileProgress, ReconcileReport, Reconciliation
from penstock.capture.reconcile.reconciling import How, asked_for, locked_writer, repaired, written_by
from penstock.capture.registry import ENGINE
from penstock.capture.repairs import finished
from penstock.errors import BadInput


def resnapshot(of: Followed, **how: Unpack[How]) -> Reconciliation:
    """After a lost slot, on another server, on another timeline, or where the server's log went back: makes a new slot, goes on
    from there, and repairs every row that differs from its topic. Rows that are equal are not written again. Killed in between, it
    has to be started again: a plain run of the capture is refused until it has come to its end. InUse while the capture runs."""
    if of.definition.engine != "postgres":
        raise BadInput(
            f"capture {of.name!a} has no replication slot that could be lost: its engine is {of.definition.engine!a}",
            hint=f"`penstock cdc reconcile {of.name} --repair` writes what differs",
        )
    asked = asked_for(of, None, **how)
    _move(of, asked.patience, asked.report)
    result = repaired(asked, resnapshot=True)
    if not result.differences:  # what is unsettled has come from the new slot
        with written_by(of, resnapshot=True) as writer:
            writer.moved(f"resnapshot:{writer.state.batch + 1}:done")
    return result


def _move(of: Followed, patience: float, report: ReconcileReport) -> None:
    """Sets the capture to a new slot. What was begun before and cannot be made again is left as it is; what differs by it is found
    as everything else is."""
    from penstock.capture.postgres.new_slot import with_new_slot

    with locked_writer(of) as writer:
        finished(writer, of.storage, writer.open(), resnapshot=True)
        position = with_new_slot(of.definition, patience, lambda note: report(ReconcileProgress("waiting", note=note)))
        writer.move(position.json(), f"resnapshot:{writer.state.batch + 1}:{lsn_text(position.end)}")
        of.storage.remove(ENGINE)  # what it keeps belongs to the old slot
