"""Rows of a copy that a change has told of before the copy came to them: they are left out, so that no row comes twice.

A copy is written once the stream has come past it, so what the log says of such a row is as new as the copy, or newer."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from penstock.capture.port import Batch, Changes, Flags, Table
from penstock.capture.writing.last_records import LoggedRows, Written


class CopiedRows:
    """Knows which tables may have such rows. written: what the topic of a table has."""

    def __init__(self, logged: LoggedRows, written: Callable[[Table], Written]) -> None:
        self._logged, self._written = logged, written
        self._only_copied: set[Table] = set()  # tables whose topics have rows of a copy and nothing else

    def new(self, batch: Batch) -> Batch:
        """The batch without the rows that need not be told."""
        if not batch.copy:
            self._only_copied -= {each.table for each in batch.changes}
            return batch
        return replace(batch, changes=[self._new(each) for each in batch.changes])

    def _new(self, changes: Changes) -> Changes:
        table, written = changes.table, self._written(changes.table)
        if not any(written.ends):
            self._only_copied.add(table)
        if table in self._only_copied or not len(changes):
            return changes
        known = np.array([value is not None for value in self._logged.values(table, changes.key, written)], np.bool_)
        return _without(changes, known) if known.any() else changes


def _without(changes: Changes, known: Flags) -> Changes:
    kept = np.flatnonzero(~known)
    return replace(
        changes,
        op=changes.op[kept],
        key=changes.key.take(kept),
        before=changes.before.take(kept),
        after=changes.after.take(kept),
        transaction=changes.transaction[kept],
        index=changes.index[kept],
    )
