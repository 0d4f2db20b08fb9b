"""Changes of tables by columns: what a batch of messages says, each change with its position."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.capture.postgres.decode.messages import LogicalMessage, Relation, Truncate
from penstock.core.arrow import array_of, chosen

Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Lsns = npt.NDArray[np.uint64]
Xids = npt.NDArray[np.uint32]

NO_OLD, OLD_KEY, OLD_ROW = 0, *b"KO"  # what is sent of a row as it was before


class Column(NamedTuple):
    """The values of one column as PostgreSQL writes them as text. `unchanged`: large values that were not sent, as the change left
    them as they were; they are null here and mean anything but null."""

    values: pa.Array  # of utf8
    unchanged: Flags


@dataclass(frozen=True)
class TableChanges:
    """Changes of one table, in their order, while it had these columns. `before` and `after` have a value for each change: null
    where there is no such row, and in the columns of `before` that are no key where only the key was sent."""

    relation: Relation
    op: Bytes  # c, u or d
    old: Bytes  # NO_OLD, OLD_KEY or OLD_ROW
    before: tuple[Column, ...]
    after: tuple[Column, ...]
    commit_lsn: Lsns
    index: Places  # in its transaction, over all tables, from 0
    time: Places  # of the commit, microseconds since 1970
    xid: Xids

    def __len__(self) -> int:
        return len(self.op)

    def with_old_values(self) -> "TableChanges":
        """The same, with values that were not changed taken from the rows before, where those were sent whole."""
        whole = self.old == OLD_ROW
        after = tuple(_filled(new, old, whole) for new, old in zip(self.after, self.before, strict=True))
        return replace(self, after=after)

    def taken(self, which: Flags) -> "TableChanges":
        """Some of these changes, as they stand."""
        places = np.flatnonzero(which)
        before, after = (tuple(_taken(column, places) for column in side) for side in (self.before, self.after))
        place = self.commit_lsn[places], self.index[places], self.time[places], self.xid[places]
        return TableChanges(self.relation, self.op[places], self.old[places], before, after, *place)


def _taken(column: Column, places: Places) -> Column:
    return Column(column.values.take(places), column.unchanged[places])


def _filled(new: Column, old: Column, whole: Flags) -> Column:
    known = new.unchanged & whole & ~old.unchanged
    return Column(chosen(array_of(known), old.values, new.values), new.unchanged & ~known) if known.any() else new


@dataclass(frozen=True)
class Transactions:
    """The transactions that ended, in the order of their commits."""

    commit_lsn: Lsns
    end_lsn: Lsns  # what is confirmed once all of it is durable
    time: Places
    xid: Xids
    changes: Places  # of all tables, truncates included

    @staticmethod
    def together(parts: "Sequence[Transactions]") -> "Transactions":
        return Transactions(
            np.concatenate([np.zeros(0, np.uint64), *(each.commit_lsn for each in parts)]),
            np.concatenate([np.zeros(0, np.uint64), *(each.end_lsn for each in parts)]),
            np.concatenate([np.zeros(0, np.int64), *(each.time for each in parts)]),
            np.concatenate([np.zeros(0, np.uint32), *(each.xid for each in parts)]),
            np.concatenate([np.zeros(0, np.int64), *(each.changes for each in parts)]),
        )

    def __len__(self) -> int:
        return len(self.commit_lsn)


@dataclass(frozen=True)
class Batch:
    """What some messages say. Its order over tables is that of (commit LSN, index)."""

    tables: tuple[TableChanges, ...]
    truncates: tuple[Truncate, ...]
    messages: tuple[LogicalMessage, ...]
    transactions: Transactions
