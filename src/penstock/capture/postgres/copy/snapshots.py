"""Chunks of a table merged with the stream of its changes by visibility, so that both together are the table exactly.

A chunk is read under a snapshot of its own. Its rows are given out once the stream has passed a position taken after that: every
transaction that the snapshot sees has been streamed by then. Rows whose key was changed by a transaction that the snapshot does not
see are left out: the stream has something newer to say of them. Nothing is written to the database, and nothing compared by LSN: a
change may be streamed before it is visible, while a synchronous standby is waited for."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.postgres.decode.changes import OLD_KEY, OLD_ROW, Flags, TableChanges, Xids
from penstock.core.arrow import coalesced, joined, lengths_of
from penstock.errors import BadInput

REMEMBERED = 1 << 17  # changes
_ROUND = 1 << 32  # transaction ids in the stream have 32 bits, those of snapshots 64
_HALF = 1 << 31
_TEXT = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):((?:[0-9]{1,20}(?:,[0-9]{1,20})*)?)", re.ASCII)


@dataclass(frozen=True)
class Snapshot:
    """What pg_current_snapshot() says: transactions before xmin have ended, those from xmax on and those running are not seen."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @staticmethod
    def parse(text: str) -> "Snapshot":
        """The snapshot of `xmin:xmax:running,…`; BadInput if the text is none."""
        found = _TEXT.fullmatch(text)
        if found:
            xmin, xmax = int(found[1]), int(found[2])
            running = frozenset(map(int, filter(None, found[3].split(","))))
            if xmin <= xmax < 1 << 64 and all(xmin <= xid < xmax for xid in running):
                return Snapshot(xmin, xmax, running)
        raise BadInput(f"{text[:60]!a} is no snapshot of transactions", hint="one looks like 10:20:10,14,15")

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"

    def sees(self, xids: Xids) -> Flags:
        """Which of these transactions, by the 32 bits of the stream, are visible. They have committed, or will."""
        found = np.unique(xids)
        seen = np.array([visible(xid, self) for xid in found.tolist()], np.bool_)
        return seen[np.searchsorted(found, xids)]


def visible(xid: int, snapshot: Snapshot) -> bool:
    """Whether a snapshot sees a committed transaction. Of all ids with these 32 bits the one nearest to the snapshot is meant: ids
    that are half a round apart cannot both be in use."""
    full = snapshot.xmax - snapshot.xmax % _ROUND + xid
    if full > snapshot.xmax + _HALF and full >= _ROUND:
        full -= _ROUND
    elif full <= snapshot.xmax - _HALF:
        full += _ROUND
    return full < snapshot.xmax and full not in snapshot.running


@dataclass(frozen=True)
class Chunk:
    """Rows of a table, read under one snapshot. `high` is a position of the log taken after they were read."""

    rows: pa.Table
    keys: pa.Array  # of each row, as key_text makes it
    snapshot: Snapshot
    high: int


@dataclass(frozen=True)
class Settled:
    """What became of a chunk. Rows that were left out may still tell values that a change did not send."""

    rows: pa.Table
    left_out: pa.Table


class ChunkMerge:
    """Merges the chunks of one table, one at a time, with its changes. The stream is told first (`changed`, `truncated`), then how
    far it has come (`settled`). before: transactions that were streamed before this began and may not be visible yet, whose keys
    nobody knows any more: no chunk may be read until a snapshot sees them. most: changes that are remembered for later chunks;
    where there are more, their transactions become such ones: memory is bounded, however many rows a transaction changes."""

    def __init__(self, before: Collection[int] = (), most: int = REMEMBERED) -> None:
        self._before, self._most = frozenset(before), most
        self._chunk: Chunk | None = None
        self._newer = np.zeros(0, np.bool_)  # which rows of the chunk the stream has something newer to say of
        self._xids: list[Xids] = []  # of changes that some later snapshot may not see
        self._keys: list[pa.Array] = []
        self._truncates: list[int] = []

    @property
    def remembered(self) -> int:
        """How many changes it keeps."""
        return sum(map(len, self._xids)) + len(self._truncates)

    def may_open(self, snapshot: Snapshot) -> bool:
        """Whether a chunk read under this snapshot can be merged."""
        return self._chunk is None and all(visible(xid, snapshot) for xid in self._before)

    def open(self, chunk: Chunk) -> None:
        """A chunk was read; `may_open` holds for its snapshot."""
        assert self.may_open(chunk.snapshot), "the snapshot does not see what was streamed before"
        self._before = frozenset()
        self.forget(chunk.snapshot)
        self._chunk, self._newer = chunk, _among(chunk.keys, self._changes()[1])

    def forget(self, snapshot: Snapshot) -> None:
        """Changes that a snapshot sees are seen by all that are taken after it."""
        xids, keys = self._hidden_from(snapshot, *self._changes())
        self._xids, self._keys = [xids], [keys]
        self._truncates = [xid for xid in self._truncates if not visible(xid, snapshot)]

    def changed(self, xids: Xids, keys: pa.Array) -> None:
        """The stream has changes of these keys, by these transactions; a change of the key has both."""
        if self._chunk:
            xids, keys = self._hidden_from(self._chunk.snapshot, xids, keys)
            self._newer |= _among(self._chunk.keys, keys)
        self._xids.append(xids)
        self._keys.append(keys)
        if self.remembered > self._most:
            self._before |= {xid for each in self._xids for xid in np.unique(each).tolist()}
            self._xids, self._keys = [], []

    def truncated(self, xid: int) -> None:
        """The stream has a truncate of the table."""
        self._truncates.append(xid)

    def settled(self, passed: int) -> Settled | None:
        """The rows of the chunk that count, once the stream was told up to `passed` and that is far enough; None before."""
        chunk, newer = self._chunk, self._newer
        if chunk is None or passed < chunk.high:
            return None
        self._chunk = None
        if not all(visible(xid, chunk.snapshot) for xid in self._truncates):
            return Settled(chunk.rows.slice(0, 0), chunk.rows.slice(0, 0))  # what was truncated tells nothing any more
        return Settled(chunk.rows.filter(pa.array(~newer)), chunk.rows.filter(pa.array(newer)))

    def _changes(self) -> tuple[Xids, pa.Array]:
        return np.concatenate([np.zeros(0, np.uint32), *self._xids]), pa.concat_arrays([pa.array([], pa.utf8()), *self._keys])

    @staticmethod
    def _hidden_from(snapshot: Snapshot, xids: Xids, keys: pa.Array) -> tuple[Xids, pa.Array]:
        hidden = ~snapshot.sees(xids)
        return xids[hidden], keys.filter(pa.array(hidden))


def _among(keys: pa.Array, others: pa.Array) -> Flags:
    """Which of these keys are among others."""
    found: Flags = pc.is_in(keys, value_set=others).to_numpy(zero_copy_only=False)
    return found


def key_text(columns: Sequence[pa.Array]) -> pa.Array:
    """The key of each row as one text; different keys never have the same."""
    if len(columns) == 1:
        return columns[0]
    return joined(*(joined(lengths_of(column).cast(pa.utf8()), column, ":") for column in columns), "")


def touched(changes: TableChanges, key: Sequence[int]) -> tuple[Xids, pa.Array]:
    """The transactions and keys of changes, old keys and new ones. key: which columns are the key."""
    old = np.flatnonzero((changes.old == OLD_KEY) | (changes.old == OLD_ROW))
    new = np.flatnonzero(changes.op != ord("d"))
    before = [changes.before[i].values for i in key]
    after = [coalesced(changes.after[i].values, changes.before[i].values) for i in key]  # a large key that stayed is not sent twice
    keys = pa.concat_arrays([key_text(before).take(old), key_text(after).take(new)])
    return np.concatenate([changes.xid[old], changes.xid[new]]), keys
