"""A topic folded: of each key the last row that a snapshot sees, as hashes. Memory is needed for live keys, not for records."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.capture.port import Flags, Places
from penstock.capture.reconcile.hashing import Canonical, Hashes, checksum_of
from penstock.capture.reconcile.records import Records, blocks_of, enveloped_records, flat_records
from penstock.log.port import Topic

LEAST = 1 << 20  # records that are gathered before they are folded

_NONE = np.zeros(0, np.uint64)
_NOT_ONE = np.zeros(0, np.bool_)

Sees = Callable[[Places, Places], Flags]  # which of these transactions, with their commits' positions, a snapshot sees


@dataclass(frozen=True)
class View:
    """Which records of a topic count: those before `ends` that the snapshot sees. Those before `settled` are older than any
    snapshot, whatever their transactions are called; `since`: of a topic that tells no transactions, all records from there on may
    be newer than the snapshot."""

    name: str
    topic: Topic | None  # None: it was not made yet
    ends: Sequence[int]
    sees: Sees
    settled: Sequence[int] = ()
    since: Sequence[int] = ()
    flat: bool = False

    @property
    def inexact(self) -> bool:
        """Whether nobody can say what the snapshot sees of a key that has newer records: its row may be gone, or not be told from
        those."""
        return self.flat or (self.topic is not None and self.topic.spec.compact)

    @property
    def records(self) -> int:
        """About how many there are."""
        firsts = {partition: end.first for partition, end in self.topic.ends().items()} if self.topic else {}
        return sum(end - firsts[partition] for partition, end in enumerate(self.ends) if partition in firsts)

    def read(self) -> Iterator[tuple[Records, Flags]]:
        """All records, and which of them count."""
        for block in blocks_of(self.topic, self.ends) if self.topic else ():
            records = flat_records(block) if self.flat else enveloped_records(block)
            yield records, self._seen(block.partition, records)

    def _seen(self, partition: int, records: Records) -> Flags:
        old = records.offsets < (self.settled[partition] if partition < len(self.settled) else 0)
        if self.flat:
            return old | (records.offsets < (self.since[partition] if partition < len(self.since) else 0))
        return old | self.sees(records.xid, records.lsn)


@dataclass(frozen=True)
class Folded:
    """The live keys of a topic with their rows, by hash and in the order of the keys' hashes; and the keys of which there are
    records that the snapshot does not see."""

    keys: Hashes
    rows: Hashes
    newer: Hashes

    def places(self, keys: Hashes) -> tuple[Places, Flags]:
        """Where these keys are, and whether they are there."""
        return _places(self.keys, keys)

    def has_newer(self, keys: Hashes) -> Flags:
        return _places(self.newer, keys)[1]

    @property
    def checksum(self) -> int:
        return checksum_of(self.keys, self.rows)


class Folding:
    """Folds records in the order in which they are added."""

    def __init__(self) -> None:
        self._keys, self._rows, self._alive = [_NONE], [_NONE], [_NOT_ONE]
        self._folded = self._waiting = 0

    def add(self, keys: Hashes, rows: Hashes, alive: Flags) -> None:
        self._keys.append(keys)
        self._rows.append(rows)
        self._alive.append(alive)
        self._waiting += len(keys)
        if self._waiting >= max(LEAST, self._folded):  # so that each fold has as much new as old
            self._fold()

    def result(self) -> tuple[Hashes, Hashes]:
        self._fold()
        return self._keys[0], self._rows[0]

    def _fold(self) -> None:
        keys, rows, alive = (np.concatenate(each) for each in (self._keys, self._rows, self._alive))
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        last = order[np.r_[keys[1:] != keys[:-1], True][: len(keys)]]
        last = last[alive[last]]
        keys = np.concatenate(self._keys)[last]
        self._keys, self._rows, self._alive = [keys], [rows[last]], [np.ones(len(last), np.bool_)]
        self._folded, self._waiting = len(last), 0


@dataclass
class Newer:
    """Keys of records that a snapshot does not see."""

    parts: list[Hashes] = field(default_factory=lambda: [_NONE])

    def add(self, keys: Hashes) -> None:
        if len(keys):
            self.parts.append(np.unique(keys))
        if len(self.parts) > 64:
            self.parts = [self.all()]

    def all(self) -> Hashes:
        return np.unique(np.concatenate(self.parts))


def folded(view: View, canonical: Canonical | None, told: Callable[[int], None]) -> Folded:
    """told: is called with the number of records so far."""
    folding, newer, count = Folding(), Newer(), 0
    for records, seen in view.read():
        keys, rows, alive = records.key_hashes(), records.row_hashes(canonical), records.alive
        if seen.all():
            folding.add(keys, rows, alive)
        else:
            folding.add(keys[seen], rows[seen], alive[seen])
            newer.add(keys[~seen])
        count += len(keys)
        told(count)
    return Folded(*folding.result(), newer.all())


def _places(sorted_keys: Hashes, keys: Hashes) -> tuple[Places, Flags]:
    if not len(sorted_keys):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
    at = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    return at, sorted_keys[at] == keys
