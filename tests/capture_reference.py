"""pgoutput as its documentation has it: a decoder that reads one message after the other, and is obviously right. Product code is
measured against it."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.capture.postgres.decode.changes import Batch, Column, TableChanges
from penstock.capture.postgres.decode.messages import LogicalMessage, Relation, RelationColumn, Truncate
from penstock.errors import BadMessage

UNCHANGED = "<unchanged>", "not sent"  # no text
EPOCH = 946_684_800_000_000
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    relation: Relation
    op: str
    old: str  # "", "K" or "O"
    before: Values | None
    after: Values | None
    commit_lsn: int
    index: int
    time: int
    xid: int


@dataclass(frozen=True)
class Ended:
    commit_lsn: int
    end_lsn: int
    time: int
    xid: int
    changes: int


Said = Change | Truncate | LogicalMessage | Ended


class Plain:
    """One value a change, in the order of the messages."""

    def __init__(self) -> None:
        self.relations: dict[int, Relation] = {}
        self.open: tuple[int, int, int] | None = None
        self.index = 0

    def decode(self, messages: Iterable[bytes]) -> list[Said]:
        return [said for message in messages for said in self.feed(message)]

    def feed(self, message: bytes) -> list[Said]:
        try:
            self.message, self.at = message, 1
            found = list(getattr(self, f"on_{chr(message[0])}")())
            if self.at != len(message):
                raise BadMessage("too long")
            return found
        except (struct.error, IndexError, ValueError, KeyError, AttributeError) as error:
            raise BadMessage(repr(error)) from error

    def number(self, form: str) -> int:
        (found,) = struct.unpack_from(f">{form}", self.message, self.at)
        self.at += struct.calcsize(f">{form}")
        return int(found)

    def bytes(self, length: int) -> bytes:
        if length < 0 or self.at + length > len(self.message):
            raise BadMessage("cut off")
        self.at += length
        return self.message[self.at - length : self.at]

    def text(self) -> str:
        found = self.bytes(self.message.index(0, self.at) - self.at)
        self.at += 1
        return found.decode()

    def inside(self) -> tuple[int, int, int]:
        if self.open is None:
            raise BadMessage("outside of a transaction")
        return self.open

    def position(self) -> dict[str, int]:
        lsn, time, xid = self.inside()
        return {"commit_lsn": lsn, "index": self.index, "time": time, "xid": xid}

    def on_B(self) -> Iterator[Said]:
        if self.open:
            raise BadMessage("in a transaction")
        lsn, time, xid = self.number("Q"), self.number("q") + EPOCH, self.number("I")
        if not FIRST <= time <= LAST:
            raise BadMessage("no time")
        self.open, self.index = (lsn, time, xid), 0
        return iter(())

    def on_C(self) -> Iterator[Said]:
        begun, time, xid = self.inside()
        _, lsn, end, _ = self.number("B"), self.number("Q"), self.number("Q"), self.number("q")
        if lsn != begun:
            raise BadMessage("another transaction")
        self.open = None
        yield Ended(lsn, end, time, xid, self.index)

    def on_O(self) -> Iterator[Said]:
        self.inside(), self.number("Q"), self.text()
        return iter(())

    def on_Y(self) -> Iterator[Said]:
        self.number("I"), self.text(), self.text()
        return iter(())

    def on_R(self) -> Iterator[Said]:
        oid, schema, table, identity = self.number("I"), self.text(), self.text(), chr(self.number("B"))
        if identity not in ("d", "n", "f", "i"):
            raise BadMessage("no identity")
        columns = []
        for _ in range(self.number("H")):
            key, name, kind, modifier = self.number("B"), self.text(), self.number("I"), self.number("i")
            columns.append(RelationColumn(name, kind, modifier, bool(key & 1)))
        self.relations[oid] = Relation(oid, schema, table, identity, tuple(columns))
        return iter(())

    def on_I(self) -> Iterator[Said]:
        relation = self.relations[self.number("I")]
        if self.bytes(1) != b"N":
            raise BadMessage("no row")
        yield self.change(relation, "c", "", None, self.row(relation))

    def on_U(self) -> Iterator[Said]:
        relation, kind, before = self.relations[self.number("I")], self.bytes(1).decode(), None
        old = kind if kind in ("K", "O") else ""
        if old:
            before, kind = self.row(relation), self.bytes(1).decode()
        if kind != "N":
            raise BadMessage("no row")
        yield self.change(relation, "u", old, before, self.row(relation))

    def on_D(self) -> Iterator[Said]:
        relation, kind = self.relations[self.number("I")], self.bytes(1).decode()
        if kind not in ("K", "O"):
            raise BadMessage("no row")
        yield self.change(relation, "d", kind, self.row(relation), None)

    def on_T(self) -> Iterator[Said]:
        count, flags = self.number("I"), self.number("B")
        if count > len(self.message):
            raise BadMessage("cut off")
        for relation in [self.relations[self.number("I")] for _ in range(count)]:
            yield Truncate(relation, **self.position(), cascade=bool(flags & 1), restart_identity=bool(flags & 2))
            self.index += 1
        self.inside()

    def on_M(self) -> Iterator[Said]:
        flags, lsn, prefix = self.number("B"), self.number("Q"), self.text()
        content = self.bytes(self.number("I"))
        place = self.position() if flags & 1 else {"commit_lsn": lsn, "index": 0, "time": None, "xid": None}
        yield LogicalMessage(prefix, content, **place)  # type: ignore[arg-type]

    def change(self, relation: Relation, op: str, old: str, before: Values | None, after: Values | None) -> Change:
        made = Change(relation, op, old, before, after, **self.position())
        self.index += 1
        return made

    def row(self, relation: Relation) -> Values:
        if self.number("H") != len(relation.columns):
            raise BadMessage("another number of columns")
        return tuple(self.value() for _ in relation.columns)

    def value(self) -> Any:
        match self.bytes(1):
            case b"t":
                return self.bytes(self.number("i")).decode()
            case b"n":
                return None
            case b"u":
                return UNCHANGED
        raise BadMessage("no value")


def in_order(said: Iterable[Said]) -> dict[str, list[Said]]:
    """What was said, by kind, so that it can be compared however it was gathered."""
    found = list(said)
    order = {
        kind.__name__: [each for each in found if isinstance(each, kind)] for kind in (Change, Truncate, LogicalMessage, Ended)
    }
    tables: dict[int, list[Said]] = {}
    for each in order.pop("Change"):
        tables.setdefault(each.relation.oid, []).append(each)  # type: ignore[union-attr]
    return {**order, **{f"table {oid}": changes for oid, changes in tables.items()}}


def said_by(batch: Batch) -> list[Said]:
    """What a batch by columns says, as the plain decoder says it; order holds within a kind and a table."""
    ended = batch.transactions
    columns = ended.commit_lsn, ended.end_lsn, ended.time, ended.xid, ended.changes
    ends = [Ended(*each) for each in zip(*(column.tolist() for column in columns), strict=True)]
    return [*(change for table in batch.tables for change in changes_in(table)), *batch.truncates, *batch.messages, *ends]


def changes_in(table: TableChanges) -> Iterator[Change]:
    places = zip(*(each.tolist() for each in (table.commit_lsn, table.index, table.time, table.xid)), strict=True)
    for i, place in enumerate(places):
        op, old = chr(table.op[i]), chr(table.old[i]) if table.old[i] else ""
        before = _row(table.before, i) if old else None
        after = _row(table.after, i) if op != "d" else None
        assert old or all(value is None for value in _row(table.before, i))
        assert op != "d" or all(value is None for value in _row(table.after, i))
        yield Change(table.relation, op, old, before, after, *place)


def _row(columns: tuple[Column, ...], i: int) -> Values:
    def value(column: Column) -> Any:
        text = column.values[i].as_py()
        assert text is None or not column.unchanged[i]
        return UNCHANGED if column.unchanged[i] else text

    assert all(isinstance(column.unchanged, np.ndarray) for column in columns)
    return tuple(map(value, columns))
