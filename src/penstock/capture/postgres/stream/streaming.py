"""The stream of a slot as batches of the port: whole transactions, or parts of one that is larger than memory should hold."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.capture import port
from penstock.capture.port import Changes, Flags, Places, Table, TableFacts
from penstock.capture.postgres.decode.batches import Batcher
from penstock.capture.postgres.decode.changes import OLD_ROW, Batch, TableChanges
from penstock.capture.postgres.decode.messages import BEGIN, COMMIT, DELETE, INSERT, TRUNCATE, UPDATE, Relation, Truncate
from penstock.capture.postgres.decode.pgoutput import Decoder
from penstock.capture.postgres.position import WalPosition
from penstock.capture.postgres.stream.converting import KeyOf, Shape, converted, shape_of
from penstock.capture.postgres.values.types import Types
from penstock.core.arrow import array_of, joined

# Columns that were not sent: of the table with this object id, as it was, by the keys of all changes, the rows that are wanted.
LookUp = Callable[[int, Shape, Sequence[pa.Array], Sequence[str], Places], Mapping[int, Mapping[str, str]]]
BOUND = 8 << 20  # bytes of a transaction that are decoded at once, or twice as many; as records they are several times as many
UNSENT = 500  # values of a batch that were not sent: as they are large, a batch of all that fit otherwise could be huge
_LSN, _COUNT = struct.Struct(">Q"), struct.Struct(">I")


@dataclass(frozen=True)
class Upto:
    """Where a batch ends: behind the commit of a transaction, or behind some changes of one that goes on."""

    lsn: int
    open_lsn: int = 0
    open_changes: int = 0

    @staticmethod
    def of(position: WalPosition) -> "Upto":
        return Upto(position.lsn, position.open_lsn, position.open_changes)


class Streaming:
    """Makes batches of messages. `position`: what was written before."""

    def __init__(self, position: WalPosition, types: Types, key_of: KeyOf, look_up: LookUp, bound: int = BOUND) -> None:
        self.position = position
        self._types, self._key_of, self._look_up = types, key_of, look_up
        self._batcher, self._decoder = Batcher(bound), Decoder()
        self._shapes: dict[Relation, Shape] = {}
        self._told: dict[Table, TableFacts] = {}

    @property
    def held(self) -> bool:
        """Whether a part of a transaction waits for the rest."""
        return self._batcher.held > 0

    @property
    def ready(self) -> bool:
        """Whether `decoded` has something to give, before more has come."""
        return self._batcher.has_whole or self._batcher.full

    @property
    def open_xid(self) -> int | None:
        """The transaction of which a part was decoded."""
        return self._decoder.open.xid if self._decoder.open else None

    def add(self, messages: Sequence[bytes]) -> None:
        self._batcher.add_all(messages)

    def skip(self, messages: Sequence[bytes]) -> None:
        """What these messages say is written; only what they leave behind counts."""
        self._decoder.decode(messages)

    def decoded(self) -> Batch | None:
        """What has come, if it can be given out: whole transactions, else a part of one that is too large to wait for its end.
        Without what was written before this start."""
        if self._batcher.has_whole:
            messages = self._batcher.take()
        elif self._batcher.full:
            messages = self._batcher.take_part()
        else:
            return None
        return self._without_written(self._some_of(messages))

    def cut_off(self) -> Batch:
        """All that has come, whether or not a transaction goes on behind it."""
        return self._without_written(self._decoder.decode(self._batcher.take_part()))

    def batch(self, decoded: Batch, recent: tuple[int, ...] | None = None) -> port.Batch | None:
        """The batch of the port, whose position is the one to go on from; None if there is nothing in it."""
        position = replace(self._behind(decoded), recent=recent)
        transactions = self._transactions(decoded)
        lsns = transactions.lsn
        changes = [self._converted(each, np.searchsorted(lsns, each.commit_lsn.astype(np.int64))) for each in decoded.tables]
        truncates = [
            port.Truncate(_table(each.relation), int(np.searchsorted(lsns, each.commit_lsn)), each.index)
            for each in decoded.truncates
        ]
        self.position = position
        if not len(transactions):
            return None
        intent = {"kind": "stream", "lsn": position.lsn, "open_lsn": position.open_lsn, "open_changes": position.open_changes}
        return port.Batch(intent, position.json(), transactions, changes, truncates, self._new_facts(decoded))

    def shape(self, relation: Relation) -> Shape:
        """The table as it is for changes of this relation. One with a type that is not to be seen yet is looked up again."""
        found = self._shapes.get(relation) or shape_of(relation, self._types, self._key_of)
        if all(each.kind != "gone" for each in found.types):
            self._shapes[relation] = found
        return found

    def _converted(self, changes: TableChanges, transaction: Places) -> Changes:
        shape = self.shape(changes.relation)
        return converted(changes.with_old_values(), shape, transaction, partial(self._look_up, changes.relation.oid, shape))

    def _new_facts(self, decoded: Batch) -> Mapping[Table, TableFacts]:
        """The tables that are other than they were told last."""
        now = {_table(each.relation): self.shape(each.relation).facts for each in decoded.tables}
        new = {table: facts for table, facts in now.items() if self._told.get(table) != facts}
        self._told |= new
        return new

    def _some_of(self, messages: Sequence[bytes]) -> Batch:
        """What these messages say; where many values were not sent, which may be large, what the first of them say. The others are
        there the next time."""
        start, some = self._decoder.state, messages
        decoded = self._decoder.decode(messages)
        while (unsent := _unsent(decoded)) > UNSENT and len(some) > 1:
            some = some[: max(1, min(len(some) * UNSENT // unsent, len(some) - 1))]
            self._decoder = Decoder(start)
            decoded = self._decoder.decode(some)
        if len(some) < len(messages):
            self._batcher.give_back(messages[len(some) :], self._decoder.within_transaction)
        return decoded

    def _transactions(self, decoded: Batch) -> port.Transactions:
        """Those that have changes, in their order."""
        ended, position, still_open = decoded.transactions, self.position, self._decoder.open
        used = np.unique(np.concatenate([np.zeros(0, np.int64), *_lsns(decoded)]))
        kept = np.isin(ended.commit_lsn.astype(np.int64), used) | (ended.commit_lsn.astype(np.int64) == position.open_lsn)
        lsn, xid, time = (each[kept].astype(np.int64) for each in (ended.commit_lsn, ended.xid, ended.time))
        ends = np.ones(len(lsn), np.bool_)
        if still_open and still_open.commit_lsn in used:
            lsn, xid, time = np.r_[lsn, still_open.commit_lsn], np.r_[xid, still_open.xid], np.r_[time, still_open.time]
            ends = np.r_[ends, False]
        ids = joined(array_of(xid).cast(pa.utf8()), array_of(lsn).cast(pa.utf8()), ":")
        times = np.maximum.accumulate(np.r_[position.time, time])[1:]  # clocks go back, the order of commits does not
        return port.Transactions(ids, xid, lsn, times, lsn != position.open_lsn, ends)

    def _behind(self, decoded: Batch) -> WalPosition:
        """The position behind these changes. It never goes back, although a server may send again what was written."""
        ended, still_open, position = decoded.transactions, self._decoder.open, self.position
        if len(ended) and int(ended.commit_lsn[-1]) > position.lsn:
            time, lsn = max(position.time, int(ended.time.max())), int(ended.commit_lsn[-1])
            position = replace(position, lsn=lsn, end=int(ended.end_lsn[-1]), time=time)
            if lsn >= position.open_lsn:
                position = replace(position, open_lsn=0, open_changes=0)
        if still_open and still_open.changes:
            known = position.open_changes if still_open.commit_lsn == position.open_lsn else 0
            changes, time = max(known, still_open.changes), max(position.time, still_open.time)
            position = replace(position, open_lsn=still_open.commit_lsn, open_changes=changes, time=time)
        return position

    def _without_written(self, decoded: Batch) -> Batch:
        """Without changes that are in the log already: a server may send again what was not confirmed."""
        position = self.position
        tables = [each if new.all() else each.taken(new) for each in decoded.tables if (new := _new(each, position)).any()]
        truncates = [each for each in decoded.truncates if _is_new(each, position)]
        return replace(decoded, tables=tuple(tables), truncates=tuple(truncates))


def _unsent(decoded: Batch) -> int:
    """How many values have to be filled in."""
    return sum(
        int(np.count_nonzero(column.unchanged & (changes.old != OLD_ROW))) for changes in decoded.tables for column in changes.after
    )


def _lsns(decoded: Batch) -> Iterator[Places]:
    for changes in decoded.tables:
        yield changes.commit_lsn.astype(np.int64)
    yield np.array([each.commit_lsn for each in decoded.truncates], np.int64)


def _new(changes: TableChanges, position: WalPosition) -> Flags:
    lsn = changes.commit_lsn.astype(np.int64)
    written: Flags = (lsn <= position.lsn) | ((lsn == position.open_lsn) & (changes.index < position.open_changes))
    return ~written


def _is_new(truncate: Truncate, position: WalPosition) -> bool:
    written = truncate.commit_lsn == position.open_lsn and truncate.index < position.open_changes
    return truncate.commit_lsn > position.lsn and not written


def _table(relation: Relation) -> Table:
    return relation.schema or "pg_catalog", relation.table


class Cut:
    """Cuts messages behind places, one behind the other, so that a batch can be made again as it was."""

    def __init__(self) -> None:
        self._lsn, self._changes = 0, 0

    def place(self, messages: Sequence[bytes], upto: Upto) -> int | None:
        """How many of these messages stand before the place; None: all, and it is not reached."""
        for number, message in enumerate(messages, 1):
            if self._reached(message, upto):
                return number
        return None

    def _reached(self, message: bytes, upto: Upto) -> bool:
        kind = message[0] if message else 0
        if kind == BEGIN:
            self._lsn, self._changes = _LSN.unpack_from(message, 1)[0], 0
        elif kind in (INSERT, UPDATE, DELETE):
            self._changes += 1
        elif kind == TRUNCATE:
            self._changes += _COUNT.unpack_from(message, 1)[0]
        if upto.open_lsn:
            return self._lsn == upto.open_lsn and self._changes >= upto.open_changes
        return kind == COMMIT and self._lsn >= upto.lsn
