"""Where transactions begin and end among messages, and the position of each message in its own."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.capture.postgres.decode.changes import Bytes, Flags, Lsns, Places, Transactions, Xids
from penstock.capture.postgres.decode.messages import BEGIN, COMMIT, POSTGRES_EPOCH
from penstock.capture.postgres.decode.tuples import Messages
from penstock.core.time import FIRST, LAST

_LENGTHS = {BEGIN: 21, COMMIT: 26}


@dataclass(frozen=True)
class Open:
    """A transaction whose commit was not yet read."""

    commit_lsn: int
    time: int
    xid: int
    changes: int


class Positions:
    """The positions of messages. BadMessage where one cannot stand where it stands."""

    def __init__(self, messages: Messages, kinds: Bytes, open_before: Open | None) -> None:
        self._messages, self._kinds = messages, kinds
        for kind, length in _LENGTHS.items():
            which = np.flatnonzero(kinds == kind)
            messages.check(messages.lengths[which] == length, which, f"it should have {length} bytes")
        self._transaction = np.cumsum(kinds == BEGIN)  # by number; 0 is the one that was open before
        self._depth = (open_before is not None) + self._transaction - np.cumsum(kinds == COMMIT)
        holds = (self._depth == 0) | (self._depth == 1)
        messages.check(holds, np.arange(len(kinds)), "a transaction begins or ends where it cannot")
        self._read_begins(np.flatnonzero(kinds == BEGIN), open_before or Open(0, 0, 0, 0))

    def _read_begins(self, begins: Places, before: Open) -> None:
        at = self._messages.starts[begins]
        times = self._messages.signed(at + 9)
        in_time = (times >= FIRST - POSTGRES_EPOCH) & (times <= LAST - POSTGRES_EPOCH)
        self._messages.check(in_time, begins, "its time lies outside the years 1 to 9999")
        self._begins, self._changes_before = begins, before.changes
        self._lsn = np.append(np.uint64(before.commit_lsn), self._messages.long(at + 1))
        self._time = np.append(np.int64(before.time), times + POSTGRES_EPOCH)
        self._xid = np.append(np.uint32(before.xid), self._messages.word(at + 17).astype(np.uint32))

    def count(self, changes: Flags, several: Mapping[int, int], inside: Collection[int]) -> None:
        """Which messages are one change, which are several, and which others stand only inside of transactions."""
        within = changes.copy()
        within[[*several, *inside]] = True
        self._messages.check(~within | (self._depth == 1), np.arange(len(within)), "it stands outside of a transaction")
        weights = changes.astype(np.int64)
        for which, number in several.items():
            weights[which] = number
        self._total = int(weights.sum())
        self._before = np.cumsum(weights) - weights
        self._bases = np.append(np.int64(-self._changes_before), self._before[self._begins])

    def index(self, which: Places) -> Places:
        """How many changes, of any table, stand before it in its transaction."""
        found: Places = self._before[which] - self._bases[self._transaction[which]]
        return found

    def at(self, which: Places) -> tuple[Lsns, Places, Places, Xids]:
        """Commit LSN, index, time of the commit and xid."""
        of = self._transaction[which]
        return self._lsn[of], self.index(which), self._time[of], self._xid[of]

    def one(self, which: int) -> tuple[int, int, int, int]:
        """The same of one message."""
        lsn, index, time, xid = self.at(np.array([which]))
        return int(lsn[0]), int(index[0]), int(time[0]), int(xid[0])

    def ended(self) -> Transactions:
        commits = np.flatnonzero(self._kinds == COMMIT)
        at, (begun, changes, time, xid) = self._messages.starts[commits], self.at(commits)
        lsn = self._messages.long(at + 2)
        self._messages.check(lsn == begun, commits, "it ends another transaction than the one that began")
        return Transactions(lsn, self._messages.long(at + 10), time, xid, changes)

    def open_after(self) -> Open | None:
        if not self._depth[-1]:
            return None
        return Open(int(self._lsn[-1]), int(self._time[-1]), int(self._xid[-1]), self._total - int(self._bases[-1]))
