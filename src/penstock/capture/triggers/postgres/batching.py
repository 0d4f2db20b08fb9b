"""Rows of an outbox as batches of the port, with the position behind each."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.capture import port
from penstock.capture.port import Table, TableFacts, Transactions
from penstock.capture.triggers.ordering import in_order
from penstock.capture.triggers.postgres.position import OutboxPosition
from penstock.capture.triggers.postgres.records import TRUNCATE, Converter, OutboxRows, RecordShape, by_shape


@dataclass(frozen=True)
class Between:
    """Between which snapshots some rows lie."""

    earlier: str
    later: str
    last: bool  # there are no more between them
    removed: int  # up to which window the outbox had been emptied


class Batches:
    """Makes them one behind the other: `position` is where the last one ends. What `source.lsn` says is the number of the
    transaction in this capture, what `source.txId` says the server's id of it in 64 bits."""

    def __init__(self, position: OutboxPosition, converter: Converter) -> None:
        self.position = position
        self._converter = converter
        self._told: dict[Table, TableFacts] = {}

    def batch(self, rows: OutboxRows, shapes: Mapping[int, RecordShape], of: Between) -> port.Batch:
        """Rows between two snapshots that follow upon the position."""
        before, last = self.position, of.last
        intent = {"kind": "window", **asdict(of), "after": [before.last, before.seq]}
        transactions, of_row = self._transactions(rows)
        upto = int(rows.last[-1]), int(rows.seq[-1])
        if last:
            behind = replace(before, windows=before.windows + 1, snapshot=of.later, later=None, last=0, seq=0)
        else:
            behind = replace(before, snapshot=of.earlier, later=of.later, last=upto[0], seq=upto[1])
        self.position = replace(behind, removed=of.removed, transactions=int(transactions.lsn[-1]), time=int(transactions.time[-1]))
        changes, truncates = list[port.Changes](), list[port.Truncate]()
        kinds = rows.ops
        facts: dict[Table, TableFacts] = {}
        for shape, places in by_shape(rows, shapes):
            truncated = places[kinds[places] == TRUNCATE]
            truncates += [port.Truncate(shape.table, int(of_row[place]), int(rows.seq[place])) for place in truncated.tolist()]
            changed = places[kinds[places] != TRUNCATE]
            if len(changed):
                made = self._converter.changes(rows.taken(changed), shape, of_row[changed])
                changes.append(in_order(made))
            facts[shape.table] = self._converter.shape(shape).facts
        return port.Batch({**intent, "upto": list(upto)}, self.position.json(), transactions, changes, truncates, self._new(facts))

    def _transactions(self, rows: OutboxRows) -> tuple[Transactions, port.Places]:
        """Those of the rows, and which one each row belongs to."""
        last, first, of_row = np.unique(rows.last, return_index=True, return_inverse=True)
        goes_on = self.position.goes_on
        assert not goes_on or int(last[0]) == self.position.last, "the rest of a transaction comes first"
        numbers = np.arange(len(last)) + self.position.transactions + (not goes_on)
        txid = rows.txid[first]
        ids = [f"{xid}:{number}" for xid, number in zip(txid.tolist(), numbers.tolist(), strict=True)]
        ends_at = np.r_[first[1:], len(rows)] - 1
        times = np.maximum.accumulate(np.r_[self.position.time, np.maximum.reduceat(rows.at, first)])[1:]
        begins, ends = np.ones(len(last), np.bool_), rows.seq[ends_at] == last
        begins[0] = not goes_on
        return Transactions(pa.array(ids, pa.utf8()), txid, numbers, times, begins, ends), of_row.astype(np.int64)

    def _new(self, facts: dict[Table, TableFacts]) -> dict[Table, TableFacts]:
        new = {table: of for table, of in facts.items() if self._told.get(table) != of}
        self._told |= new
        return new
