"""A capture without a database: transactions that a test writes down, as any engine gives them to the log."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from penstock.capture.naming import TopicNames
from penstock.capture.port import CREATE, DELETE, READ, UPDATE, Batch, Changes, TableFacts, Transactions
from penstock.capture.writing.envelopes import Envelope
from penstock.capture.writing.writer import Writer, nothing
from penstock.log.port import Log

OPS = {"c": CREATE, "u": UPDATE, "d": DELETE, "r": READ}
START = 1_705_312_800_000_000  # 2024-01-15T10:00:00Z, in microseconds


class Write(NamedTuple):
    """One change of one row."""

    table: str
    op: str  # c, u, d, r
    row: Mapping[str, Any]  # of a delete: as it was


class Captured:
    """What capture `shop` writes of tables in schema public. tables: columns of each, the first of which are its key."""

    def __init__(
        self,
        log: Log,
        tables: Mapping[str, str],
        keys: int = 1,
        flat: bool = False,
        partitions: int = 1,
        fail: Callable[[str], None] = nothing,
    ) -> None:
        self.log, self.flat, self.partitions, self.fail, self.keys = log, flat, partitions, fail, keys
        self.tables = dict(tables)
        self.number = 0  # of transactions that were written
        self.begun = True
        self._told: dict[str, str] = {}
        self.start()

    def start(self) -> None:
        """As after a kill."""
        envelope = Envelope("shop", "postgresql", "shop", self.flat)
        self.writer = Writer(self.log, TopicNames("shop"), envelope, self.partitions, self.fail)
        self.writer.open()

    def facts(self, table: str) -> TableFacts:
        ddl = self.tables[table]
        return TableFacts(ddl, tuple(column.split()[0] for column in ddl.split(",")[: self.keys]))

    def write(self, *transactions: Sequence[Write], ends: bool = True) -> None:
        """One batch of these transactions. ends: whether the last one ends with it; else it goes on in the next batch."""
        self.writer.write(self.batch(transactions, ends))
        self.number += len(transactions) if ends else len(transactions) - 1
        self.begun = ends

    def batch(self, transactions: Sequence[Sequence[Write]], ends: bool = True) -> Batch:
        numbers = np.arange(self.number, self.number + len(transactions))
        begins, ended = np.ones(len(numbers), np.bool_), np.ones(len(numbers), np.bool_)
        if len(numbers):
            begins[0], ended[-1] = self.begun, ends
        ids = pa.array([f"{700 + n}:{1000 + n}" for n in numbers.tolist()], pa.utf8())
        made = Transactions(ids, 700 + numbers, 1000 + numbers, START + 1_000_000 * numbers, begins, ended)
        writes = [(n, i, write) for n, of in enumerate(transactions) for i, write in enumerate(of)]
        new = {name: self.facts(name) for name, ddl in self.tables.items() if self._told.get(name) != ddl}
        self._told |= self.tables
        changes = [self._changes(name, [each for each in writes if each[2].table == name]) for name in self.tables]
        tables = {("public", name): facts for name, facts in new.items()}
        return Batch({"upto": self.number}, {"at": self.number}, made, [each for each in changes if len(each)], (), tables)

    def _changes(self, table: str, writes: Sequence[tuple[int, int, Write]]) -> Changes:
        key = self.facts(table).key
        gone = [write.op == "d" for _, _, write in writes]
        rows = [orjson.dumps(write.row).decode() for _, _, write in writes]
        return Changes(
            ("public", table),
            np.array([OPS[write.op] for _, _, write in writes], np.uint8),
            pa.array([orjson.dumps({name: write.row[name] for name in key}).decode() for _, _, write in writes], pa.utf8()),
            pa.array([row if dead else None for row, dead in zip(rows, gone, strict=True)], pa.utf8()),
            pa.array([None if dead else row for row, dead in zip(rows, gone, strict=True)], pa.utf8()),
            np.array([number for number, _, _ in writes], np.int64),
            np.array([index for _, index, _ in writes], np.int64),
        )
