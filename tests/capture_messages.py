"""Messages of pgoutput written as a server writes them, and random streams of them."""

import struct
from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from capture_reference import UNCHANGED
from penstock.capture.postgres.decode.messages import Relation, RelationColumn

TIME = 800_000_000_000_000  # in 2025, since 2000


def begin(lsn: int, xid: int, time: int = TIME) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, time, xid)


def commit(lsn: int, time: int = TIME) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, lsn + 48, time)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def described(relation: Relation) -> bytes:
    head = struct.pack(">I", relation.oid) + text(relation.schema) + text(relation.table) + relation.identity.encode()
    columns = [bytes([c.key]) + text(c.name) + struct.pack(">Ii", c.type, c.modifier) for c in relation.columns]
    return b"R" + head + struct.pack(">H", len(columns)) + b"".join(columns)


def row(values: Sequence[Any]) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(map(_value, values))


def _value(value: Any) -> bytes:
    if value is None or value is UNCHANGED:
        return b"n" if value is None else b"u"
    data = str(value).encode()
    return b"t" + struct.pack(">I", len(data)) + data


def insert(oid: int, new: Sequence[Any]) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + row(new)


def update(oid: int, new: Sequence[Any], old: Sequence[Any] | None = None, kind: bytes = b"K") -> bytes:
    return b"U" + struct.pack(">I", oid) + (kind + row(old) if old is not None else b"") + b"N" + row(new)


def delete(oid: int, old: Sequence[Any], kind: bytes = b"K") -> bytes:
    return b"D" + struct.pack(">I", oid) + kind + row(old)


def truncate(oids: Sequence[int], flags: int = 0) -> bytes:
    return b"T" + struct.pack(f">IB{len(oids)}I", len(oids), flags, *oids)


def emitted(prefix: str, content: bytes, lsn: int, transactional: bool) -> bytes:
    return b"M" + struct.pack(">BQ", transactional, lsn) + text(prefix) + struct.pack(">I", len(content)) + content


def origin(lsn: int, name: str) -> bytes:
    return b"O" + struct.pack(">Q", lsn) + text(name)


def named_type(oid: int, schema: str, name: str) -> bytes:
    return b"Y" + struct.pack(">I", oid) + text(schema) + text(name)


NAMES = ("id", "name", "a b", "ä", "日本", '"', "\x01", "x" * 63)
TEXTS = ("", "a", "0", "null", "ä", "日本語", "🌊", "line\nbreak", '"quoted"', "\\", "x" * 200, "\x00")


def streams() -> st.SearchStrategy[list[bytes]]:
    """Transactions over up to three tables whose columns change in between, and what stands beside them."""
    return st.integers(0, 2**32).map(lambda seed: Stream(Random(seed)).messages())


class Stream:
    """A random stream of messages. A seed makes it: to draw each of its parts from hypothesis takes a tenth of a second."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._tables: dict[int, Relation] = {}
        self._lsn = random.randrange(2**40)

    def messages(self) -> list[bytes]:
        found: list[bytes] = []
        for xid in range(self._random.randrange(5)):
            if self._random.random() < 0.3:
                found.append(emitted("beat", b"", self._lsn, False))
            self._lsn += self._random.randrange(1, 1000)
            inner = [part for _ in range(self._random.randrange(7)) for part in self._step()]
            found += [begin(self._lsn, (2**32 - 2 + xid) % 2**32), *inner, commit(self._lsn)]
        return found

    def _step(self) -> list[bytes]:
        """Changes of a table, with its description where that is new or another; or something else that stands there."""
        if self._random.random() < 0.2:
            return [self._other()]
        oid, described_first = self._random.choice([1, 2, 2**32 - 1]), list[bytes]()
        if oid not in self._tables or self._random.random() < 0.3:
            if oid not in self._tables or self._random.random() < 0.7:
                self._tables[oid] = self._relation(oid)
            described_first = [described(self._tables[oid])]
        return described_first + [self._change(oid) for _ in range(self._random.randrange(1, 4))]

    def _change(self, oid: int) -> bytes:
        kind = self._random.choice([b"K", b"O"])
        match self._random.randrange(4):
            case 0:
                return insert(oid, self._row(oid))
            case 1:
                return update(oid, self._row(oid))
            case 2:
                return update(oid, self._row(oid), self._row(oid), kind)
        return delete(oid, self._row(oid), kind)

    def _other(self) -> bytes:
        name, random = self._random.choice(NAMES), self._random
        match random.randrange(4):
            case 0:
                return truncate(random.sample(sorted(self._tables), random.randint(0, len(self._tables))), random.randrange(4))
            case 1:
                return emitted(name, random.randbytes(random.randrange(9)), self._lsn, random.random() < 0.7)
            case 2:
                return origin(self._lsn, name)
        return named_type(16_400, name, name)

    def _relation(self, oid: int) -> Relation:
        return Relation(
            oid, self._name(), self._name(), self._random.choice("dnfi"), tuple(map(self._column, range(self._random.randrange(5))))
        )

    def _column(self, _: int) -> RelationColumn:
        return RelationColumn(
            self._name(), self._random.randrange(2**32), self._random.randint(-1, 2**31 - 1), self._random.random() < 0.5
        )

    def _name(self) -> str:
        return self._random.choice(NAMES)

    def _row(self, oid: int) -> list[Any]:
        return [self._value() for _ in self._tables[oid].columns]

    def _value(self) -> Any:
        return self._random.choice([None, UNCHANGED, *TEXTS])
