"""A PostgreSQL whose triggers fill an outbox at one snapshot, for a reconcile."""

from collections.abc import Sequence

import numpy as np

from penstock.capture.definition import CaptureDefinition
from penstock.capture.port import Flags, Places, Table
from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.tables import described
from penstock.capture.reconcile.postgres_source import AtSnapshot, TypedColumn
from penstock.capture.triggers.position import Copied, named
from penstock.capture.triggers.postgres.position import OutboxPosition
from penstock.capture.triggers.postgres.setting_up import outbox_of
from penstock.capture.writing.journal import CaptureState

# Seen from the snapshot: what it sees and the position does not.
_LEFT = "select exists (select from {}.outbox where not pg_visible_in_snapshot(txid, %s::pg_snapshot))"


class OutboxSnapshot(AtSnapshot):
    """For captures that read an outbox: what is left in it says whether the log has everything that the snapshot sees."""

    believes = False

    def __init__(self, definition: CaptureDefinition) -> None:
        self._outbox = outbox_of(definition).quoted
        super().__init__(definition)

    def sees(self, xids: Places, lsns: Places) -> Flags:
        running = np.array(sorted(self.seen.running), np.int64)
        found: Flags = (xids < self.seen.xmax) & ~np.isin(xids, running)  # these ids have all their bits
        return found

    def copied(self, state: CaptureState, tables: Sequence[Table]) -> bool:
        if state.position is None:
            return False
        copied = OutboxPosition.of(state.position).copied
        return all(copied.get(named(table), Copied()).done for table in tables)

    def reached(self, state: CaptureState) -> bool:
        position = OutboxPosition.of(state.position) if state.position else None
        if position is None or position.later:
            return False
        with translated("look what is left in the outbox"):
            ((left,),) = self._connection.execute(_LEFT.format(self._outbox).encode(), (position.snapshot,))
        return not left

    def _columns(self, table: Table) -> Sequence[TypedColumn]:
        return described(self._connection, table).columns
