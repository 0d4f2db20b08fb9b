"""The messages of pgoutput, protocol 1, that are rare, read one by one; BadMessage where one is not whole."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.errors import BadMessage

POSTGRES_EPOCH = 946_684_800_000_000  # 2000-01-01, in microseconds since 1970
BEGIN, COMMIT, ORIGIN, RELATION, TYPE = b"BCORY"
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = b"IUDTM"
IDENTITIES = "dnfi"  # default, nothing, full, index

_BYTE, _SHORT, _WORD, _LONG = (struct.Struct(f">{kind}") for kind in "BHIQ")
_SIGNED = struct.Struct(">i")
_T = TypeVar("_T")


@dataclass(frozen=True)
class RelationColumn:
    """A column of a table: its type by object id, and whether it is part of what identifies a row in the log."""

    name: str
    type: int
    modifier: int
    key: bool


@dataclass(frozen=True)
class Relation:
    """A table as it is from some point of the log on."""

    oid: int
    schema: str  # empty: pg_catalog
    table: str
    identity: str  # one of IDENTITIES
    columns: tuple[RelationColumn, ...]

    @property
    def name(self) -> str:
        return f"{self.schema or 'pg_catalog'}.{self.table}"


@dataclass(frozen=True)
class Truncate:
    """All rows of one table go. A statement that names several tables is several of these, in its order."""

    relation: Relation
    commit_lsn: int
    index: int
    time: int
    xid: int
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True)
class LogicalMessage:
    """What `pg_logical_emit_message` wrote. In a transaction it stands before the change of the same index; outside of one its own
    LSN is its position, and it has neither time nor xid."""

    prefix: str
    content: bytes
    commit_lsn: int
    index: int
    time: int | None
    xid: int | None


class Reader:
    """One message, read from left to right."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._at = 1

    def byte(self) -> int:
        return int(self._number(_BYTE))

    def count(self) -> int:
        return int(self._number(_SHORT))

    def word(self) -> int:
        return int(self._number(_WORD))

    def signed(self) -> int:
        return int(self._number(_SIGNED))

    def long(self) -> int:
        return int(self._number(_LONG))

    def text(self) -> str:
        end = self._message.find(0, self._at)
        if end < 0:
            raise bad(f"a text from byte {self._at} on has no end")
        found, self._at = self._message[self._at : end], end + 1
        try:
            return found.decode()
        except UnicodeDecodeError as error:
            raise bad(f"a text at byte {self._at - len(found) - 1} is not UTF-8") from error

    def bytes(self, length: int) -> bytes:
        if self._at + length > len(self._message):
            raise bad(f"{length} bytes from byte {self._at} on, and the message ends at {len(self._message)}")
        self._at += length
        return self._message[self._at - length : self._at]

    def end(self) -> None:
        if self._at != len(self._message):
            raise bad(f"it goes on behind byte {self._at}, where it should end")

    def _number(self, form: struct.Struct) -> int:
        (number,) = form.unpack(self.bytes(form.size))
        return int(number)


def bad(what: str, *detail: str) -> BadMessage:
    return BadMessage(f"a message of pgoutput cannot be read: {what}", *detail)


def whole(message: bytes, read: Callable[[Reader], _T]) -> _T:
    """What `read` finds in a message, which must end there."""
    reader = Reader(message)
    found = read(reader)
    reader.end()
    return found


def relation(reader: Reader) -> Relation:
    oid, schema, table, identity = reader.word(), reader.text(), reader.text(), chr(reader.byte())
    if identity not in IDENTITIES:
        raise bad(f"{identity!a} is no replica identity")
    return Relation(oid, schema, table, identity, tuple(_column(reader) for _ in range(reader.count())))


def _column(reader: Reader) -> RelationColumn:
    flags, name, of_type, modifier = reader.byte(), reader.text(), reader.word(), reader.signed()
    return RelationColumn(name, of_type, modifier, bool(flags & 1))


def truncated(reader: Reader) -> tuple[list[int], int]:
    """The object ids of the tables, and the flags (1: cascade, 2: restart identity)."""
    count, flags = reader.word(), reader.byte()
    oids = reader.bytes(4 * count)
    return list(struct.unpack(f">{count}I", oids)), flags


def said(reader: Reader) -> tuple[bool, int, str, bytes]:
    """Whether it belongs to a transaction, its LSN, prefix and content."""
    flags, lsn, prefix = reader.byte(), reader.long(), reader.text()
    return bool(flags & 1), lsn, prefix, reader.bytes(reader.word())


def origin(reader: Reader) -> tuple[int, str]:
    return reader.long(), reader.text()


def named_type(reader: Reader) -> tuple[int, str, str]:
    return reader.word(), reader.text(), reader.text()
