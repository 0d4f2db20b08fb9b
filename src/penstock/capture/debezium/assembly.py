"""Puts Debezium's records together: the rows of a snapshot, and transactions, which are given out as a whole."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from penstock.capture.debezium.position import DebeziumPosition, outside
from penstock.capture.debezium.spool import unchanged
from penstock.capture.debezium.values import Shape, shape_of
from penstock.capture.port import UNKNOWN, Batch, Changes, Json, Table, TableFacts, Transactions, Truncate
from penstock.errors import BadMessage, NotFollowable

BOUND = 48 << 20  # bytes of records; a transaction that is larger is given out in parts
PLACEHOLDER = "__penstock_value_not_sent"
_PLACEHOLDER_BYTES = base64.b64encode(PLACEHOLDER.encode()).rstrip(b"=")[:-1]  # as a value of bytes has it


@dataclass
class Gathered:
    """The rows of one table."""

    op: list[int] = field(default_factory=list)
    key: list[bytes] = field(default_factory=list)
    before: list[bytes | None] = field(default_factory=list)
    after: list[bytes | None] = field(default_factory=list)
    source: list[bytes] = field(default_factory=list)
    transaction: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    unsent: dict[str, list[int]] = field(default_factory=dict)  # by column: rows in which the database did not send it

    def changes(self, table: Table) -> Changes:
        unsent = {name: self.unsent[name] for name in self.columns if name in self.unsent}
        key, before, after, source = (pa.array(of, pa.utf8()) for of in (self.key, self.before, self.after, self.source))
        transaction, index = (np.array(of, np.int64) for of in (self.transaction, self.index))
        return Changes(
            table, np.array(self.op, np.uint8), key, before, after, transaction, index, source, unchanged(unsent, len(key))
        )


@dataclass
class Transaction:
    """One transaction, as far as it has come. skip: how many of its changes are written already; None: all."""

    id: str
    skip: int | None
    begins: bool = True
    ends: bool = False
    time: int = 0
    xid: int = -1
    seen: int = 0  # changes, with those that are skipped
    rows: list["Row"] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One record of a table."""

    table: Table
    op: str
    key: Any
    value: Mapping[str, Any]
    shape: Shape
    index: int


class Assembly:
    """Takes what the process of Debezium says, and gives out batches. prefix: what the names of its topics begin with."""

    def __init__(self, position: DebeziumPosition, prefix: str, binlog: bool, bound: int = BOUND) -> None:
        self.position = position
        self.snapshot: list[Row] = []  # rows of a snapshot that were not taken yet
        self.number = 0  # up to which batch of the process everything was given out, or is nothing
        self._journal, self._beside = f"{prefix}.transaction", {f"__debezium-heartbeat.{prefix}", f"{prefix}.message"}
        self._binlog, self._bound = binlog, bound
        self._shapes: dict[int, Shape] = {}
        self._told: dict[Table, TableFacts] = {}
        self._whole: list[Transaction] = []
        self._open: Transaction | None = None
        self._held = 0  # bytes
        self._copied = 0  # rows of a snapshot
        self._offset: Json | None = None
        self._latest = 0  # the batch of the process that the offset is of

    def add(self, said: Mapping[str, Any]) -> None:
        """A batch of the process."""
        self._shapes |= {int(known): shape_of(told) for known, told in said["schemas"].items() if told}
        for topic, schema, key, value in said["rows"]:
            if topic == self._journal:
                self._boundary(value)
            elif topic not in self._beside and value is not None:
                self._change(schema, key, value)
        if said["quiet"]:
            self._close()
        self._held += said["bytes"]
        if said["offset"] is not None:
            self._offset, self._latest = outside(said["offset"]), said["number"]

    @property
    def offset(self) -> Json | None:
        """Where Debezium would go on behind all that is whole."""
        return self._offset

    def take(self) -> Batch | None:
        """Whole transactions, or a part of one that is too large to wait for its end; None if there is nothing to give out. The
        position is the one behind it."""
        whole, self._whole = [each for each in self._whole if each.rows or not each.begins], []
        if whole or (self._open is None and self._offset):
            self._held = 0
        if whole:
            last = whole[-1].id
            self.position = replace(self.position, offset=self._offset, last=last, open="", open_changes=0)
        elif self._open and self._open.rows and self._held >= self._bound:
            self._held = 0
            whole = [replace(self._open, ends=False)]
            self.position = replace(self.position, open=self._open.id, open_changes=self._open.seen)
            self._open.rows, self._open.begins = [], False
        if not whole:
            return None
        self.number = self._latest if whole[-1].ends else self.number
        return self._batch(whole)

    def part(self, rows: int, complete: bool) -> int:
        """How many rows of a snapshot can be put away together: at most so many, of one table, and not fewer than there are to come
        of it. complete: no more will come."""
        if not self.snapshot:
            return 0
        table = self.snapshot[0].table
        found = next((i for i, row in enumerate(self.snapshot[:rows]) if row.table != table), min(rows, len(self.snapshot)))
        return found if complete or found < len(self.snapshot) or found == rows else 0

    def take_snapshot(self, name: str, count: int) -> Batch:
        """So many rows of a snapshot that have come, as a transaction of their own."""
        rows, self.snapshot = self.snapshot[:count], self.snapshot[count:]
        made = Transaction(name, 0, ends=True, rows=rows)
        made.time = max((_time(row.value["source"]) for row in rows), default=0)
        return self._batch([made])

    def idle(self) -> Json | None:
        """The offset, if everything before it is given out and it is a new one."""
        if self._whole or self._open or self._offset is None or self._latest == self.number:
            return None
        self.number = self._latest
        self.position = replace(self.position, offset=self._offset) if self.position.offset is not None else self.position
        return self._offset

    def _boundary(self, value: Mapping[str, Any]) -> None:
        """Where a transaction begins or ends. In a binlog those of DDL do not end before the next one begins."""
        self._close()
        if value["status"] == "BEGIN":
            id, position = str(value["id"]), self.position
            again = None if id == position.last else position.open_changes if id == position.open else 0
            self._open = Transaction(id, again, begins=again == 0)

    def _close(self) -> None:
        if self._open:
            if self._open.skip is not None:
                self._whole.append(replace(self._open, ends=True))
            self._open = None

    def _change(self, schema: int, key: Any, value: Mapping[str, Any]) -> None:
        source, op = value["source"], value["op"]
        table: Table = (source.get("schema") or source.get("db") or "", source.get("table") or source.get("collection") or "")
        source.setdefault("schema", table[0])
        source["snapshot"] = "true" if op == "r" else "false"  # whether it is the first or the last one says nothing here
        shape = self._shapes.get(schema)
        if shape is None or op not in "rcudt":
            raise BadMessage(f"Debezium has sent a record of {'.'.join(table)} that is none of a row: op {op!r}")
        if op != "t" and not isinstance(key, dict):
            raise no_key(table)
        if op == "r" and not value.get("transaction"):
            self._copied += 1
            self.snapshot.append(Row(table, op, key, value, shape, self._copied))
            return
        if self._open is None:
            raise BadMessage(f"Debezium has sent a change of {'.'.join(table)} outside of a transaction")
        self._add(self._open, Row(table, op, key, value, shape, self._open.seen))
        if op == "t" and self._binlog:
            self._close()  # a statement of DDL commits by itself

    def _add(self, transaction: Transaction, row: Row) -> None:
        transaction.seen += 1
        if transaction.skip is None or row.index < transaction.skip:
            return
        transaction.time = max(transaction.time, _time(row.value["source"]))
        xid = row.value["source"].get("txId")
        transaction.xid = xid if type(xid) is int else -1
        transaction.rows.append(row)

    def _batch(self, transactions: list[Transaction]) -> Batch:
        gathered: dict[tuple[Table, TableFacts], Gathered] = {}  # columns of a table that has changed stay apart
        truncates, facts = [], dict[Table, TableFacts]()
        for number, transaction in enumerate(transactions):
            for row in transaction.rows:
                if row.op == "t":
                    truncates.append(Truncate(row.table, number, row.index, orjson.dumps(row.value["source"]).decode()))
                else:
                    _gather(gathered.setdefault((row.table, row.shape.facts), Gathered()), row, number)
                    if self._told.get(row.table) != row.shape.facts:
                        self._told[row.table] = facts[row.table] = row.shape.facts
        made = self._transactions(transactions)
        self.position = replace(self.position, time=int(made.time[-1]))
        changes = [each.changes(table) for (table, _), each in gathered.items()]
        return Batch({}, self.position.json(), made, changes, truncates, facts)

    def _transactions(self, transactions: list[Transaction]) -> Transactions:
        times = np.array([self.position.time, *(each.time for each in transactions)], np.int64)
        return Transactions(
            pa.array([each.id for each in transactions], pa.utf8()),
            np.array([each.xid for each in transactions], np.int64),
            np.full(len(transactions), -1, np.int64),
            np.maximum.accumulate(times)[1:],  # clocks go back, the order of commits does not
            np.array([each.begins for each in transactions], np.bool_),
            np.array([each.ends for each in transactions], np.bool_),
        )


def _gather(into: Gathered, row: Row, transaction: int) -> None:
    value, shape = row.value, row.shape
    before, after = value.get("before"), value.get("after")
    key = orjson.dumps(shape.row(row.key))
    into.op.append(ord(row.op))
    into.key.append(key)
    into.before.append(None if before is None else _before(shape.row(before), row, key))
    into.after.append(None if after is None else _after(into, shape.row(after)))
    into.source.append(orjson.dumps(value["source"]))
    into.transaction.append(transaction)
    into.index.append(row.index)


def _before(before: dict[str, Any], row: Row, key: bytes) -> bytes:
    """The row as it was. PostgreSQL sends the key alone unless it is told to send all, and Debezium puts nulls beside it."""
    known = sum(value is not None for value in before.values())
    return key if row.value["source"]["connector"] == "postgresql" and known <= len(row.key) else orjson.dumps(before)


def _after(into: Gathered, after: dict[str, Any]) -> bytes:
    """The row as it is; of values that stayed the same and were not sent it is noted down where they are missing."""
    text = orjson.dumps(after)
    if not _unsent(text):
        return text
    into.columns = list(after)
    for name in [name for name, value in after.items() if _unsent(orjson.dumps(value))]:
        after[name] = orjson.Fragment(UNKNOWN.encode())
        into.unsent.setdefault(name, []).append(len(into.after))
    return orjson.dumps(after)


def _unsent(text: bytes) -> bool:
    return PLACEHOLDER.encode() in text or _PLACEHOLDER_BYTES in text


def _time(source: Mapping[str, Any]) -> int:
    """When the change was made, microseconds."""
    found = source.get("ts_us") or 1000 * (source.get("ts_ms") or 0)
    return int(found)


def no_key(table: Table) -> NotFollowable:
    name = ".".join(part for part in table if part)
    return NotFollowable(
        f"table {name} has no primary key: nothing tells which row a change is about",
        hint=f"alter table {name} add primary key (…)",
    )
