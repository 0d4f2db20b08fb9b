"""pgoutput, protocol 1, decoded by columns: many messages at once become one value for each table, with a position for each change.

    decoder = Decoder()
    batch = decoder.decode(messages)

The messages of a connection go in as they came, in any cut. Where a table gets other columns it begins another value. What cannot
be read, or cannot stand where it stands, raises BadMessage, and the decoder is as it was before."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.capture.postgres.decode import messages as one_by_one
from penstock.capture.postgres.decode.changes import (
    NO_OLD,
    OLD_KEY,
    OLD_ROW,
    Batch,
    Bytes,
    Column,
    Flags,
    Places,
    TableChanges,
    Transactions,
)
from penstock.capture.postgres.decode.messages import (
    BEGIN,
    COMMIT,
    DELETE,
    INSERT,
    MESSAGE,
    ORIGIN,
    RELATION,
    TRUNCATE,
    TYPE,
    UPDATE,
    LogicalMessage,
    Relation,
    Truncate,
    whole,
)
from penstock.capture.postgres.decode.transactions import Open, Positions
from penstock.capture.postgres.decode.tuples import Messages, Rows, taken
from penstock.errors import BadMessage

AT_ONCE = 1 << 28  # bytes that are laid one behind the other; offsets of 32 bits are enough for these and one message more
_NEW = ord("N")
_OPS = np.zeros(256, np.uint8)
_OPS[[INSERT, UPDATE, DELETE]] = list(b"cud")
_OTHERS = np.zeros(256, np.bool_)
_OTHERS[[ORIGIN, RELATION, TYPE, TRUNCATE, MESSAGE]] = True
_KNOWN = (_OPS > 0) | _OTHERS
_KNOWN[[BEGIN, COMMIT]] = True


@dataclass(frozen=True)
class State:
    """What the messages so far leave behind."""

    relations: Mapping[int, Relation] = field(default_factory=dict)
    open: Open | None = None


class Decoder:
    """Decodes the messages of one connection."""

    def __init__(self, state: State | None = None) -> None:
        self._state = state or State()

    @property
    def state(self) -> State:
        """What the messages so far leave behind: another decoder may go on from it."""
        return self._state

    @property
    def within_transaction(self) -> bool:
        """Whether the last message left a transaction open."""
        return self._state.open is not None

    @property
    def open(self) -> Open | None:
        """The transaction that the last message left open."""
        return self._state.open

    def decode(self, messages: Sequence[bytes]) -> Batch:
        """What these messages say. BadMessage if they cannot be read."""
        state, found = self._state, list[Batch]()
        for piece in _pieces(messages):
            reading = _Piece(piece, state)
            found.append(reading.batch())
            state = reading.after()
        self._state = state
        return found[0] if len(found) == 1 else _together(found)


class _Piece:
    """Some messages, of at most AT_ONCE bytes."""

    def __init__(self, messages: Messages, state: State) -> None:
        self._messages, self._state = messages, state
        everything = np.arange(len(messages.parts))
        messages.check(messages.lengths > 0, everything, "it is empty")
        self._kinds: Bytes = messages.byte(messages.starts)
        messages.check(_KNOWN[self._kinds], everything, "its kind is unknown")
        self._versions: dict[int, list[tuple[int, Relation]]] = {}
        self._truncated: dict[int, tuple[list[int], int]] = {}
        self._heard: dict[int, tuple[bool, int, str, bytes]] = {}
        self._read_others(np.flatnonzero(_OTHERS[self._kinds]))
        self._positions = Positions(messages, self._kinds, state.open)
        inside = [i for i, (transactional, *_) in self._heard.items() if transactional]
        inside += np.flatnonzero(self._kinds == ORIGIN).tolist()
        several = {i: len(oids) for i, (oids, _) in self._truncated.items()}
        self._positions.count(_OPS[self._kinds] > 0, several, inside)

    def batch(self) -> Batch:
        return Batch(tuple(self._tables()), tuple(self._truncates()), tuple(self._said()), self._positions.ended())

    def after(self) -> State:
        now = {oid: versions[-1][1] for oid, versions in self._versions.items()}
        return State({**self._state.relations, **now} if now else self._state.relations, self._positions.open_after())

    def _read_others(self, which: Places) -> None:
        """The messages that are rare, one by one."""
        for i in which.tolist():
            try:
                self._read(i, self._messages.parts[i])
            except BadMessage as error:
                raise BadMessage(error.what, self._messages.where(i)) from error

    def _read(self, i: int, message: bytes) -> None:
        match self._kinds[i]:
            case one_by_one.RELATION:
                found = whole(message, one_by_one.relation)
                if found != self._relation(found.oid, i):
                    self._versions.setdefault(found.oid, []).append((i, found))
            case one_by_one.TRUNCATE:
                self._truncated[i] = whole(message, one_by_one.truncated)
            case one_by_one.MESSAGE:
                self._heard[i] = whole(message, one_by_one.said)
            case one_by_one.ORIGIN:
                whole(message, one_by_one.origin)
            case _:
                whole(message, one_by_one.named_type)

    def _relation(self, oid: int, i: int) -> Relation | None:
        """The table as it is for message i."""
        found = self._state.relations.get(oid)
        for since, version in self._versions.get(oid, ()):
            found = version if since < i else found
        return found

    def _described(self, oid: int, i: int) -> Relation:
        found = self._relation(oid, i)
        if found is None:
            raise self._messages.bad(i, f"it names table {oid}, which was not described")
        return found

    def _truncates(self) -> Iterator[Truncate]:
        for i, (oids, flags) in self._truncated.items():
            lsn, first, time, xid = self._positions.one(i)
            for index, oid in enumerate(oids, first):
                yield Truncate(self._described(oid, i), lsn, index, time, xid, bool(flags & 1), bool(flags & 2))

    def _said(self) -> Iterator[LogicalMessage]:
        for i, (transactional, lsn, prefix, content) in self._heard.items():
            place = self._positions.one(i) if transactional else (lsn, 0, None, None)
            yield LogicalMessage(prefix, content, *place)

    def _tables(self) -> Iterator[TableChanges]:
        rows = np.flatnonzero(_OPS[self._kinds] > 0)
        self._messages.check(self._messages.lengths[rows] >= 6, rows, "it is cut off")
        oids = self._messages.word(self._messages.starts[rows] + 1)
        found, firsts = np.unique(oids, return_index=True)
        for oid in found[np.argsort(firsts)].tolist():
            which = rows[oids == oid] if len(found) > 1 else rows
            cuts = [since for since, _ in self._versions.get(oid, ())]
            for part in np.split(which, np.searchsorted(which, cuts)) if cuts else [which]:
                if len(part):
                    yield self._changes(self._described(oid, int(part[0])), part)

    def _changes(self, relation: Relation, which: Places) -> TableChanges:
        messages, kinds = self._messages, self._kinds[which]
        at, ends = messages.starts[which] + 5, messages.ends[which]
        marker = messages.byte(at)
        has_old, has_new = (marker == OLD_KEY) | (marker == OLD_ROW), kinds != DELETE
        fits = np.where(kinds == INSERT, marker == _NEW, has_old | ((kinds == UPDATE) & (marker == _NEW)))
        messages.check(fits, which, f"no row where one should begin ({relation.name})")
        before = self._side(relation, which, at, has_old)
        again = has_new & has_old
        messages.check(at[again] < ends[again], which[again], f"the new row is missing ({relation.name})")
        messages.check(messages.byte(at[again]) == _NEW, which[again], f"no new row where it should begin ({relation.name})")
        after = self._side(relation, which, at, has_new)
        messages.check(at == ends, which, f"it goes on behind its last row ({relation.name})")
        old = np.where(has_old, marker, np.uint8(NO_OLD))
        return TableChanges(relation, _OPS[kinds], old, before, after, *self._positions.at(which))

    def _side(self, relation: Relation, which: Places, at: Places, has: Flags) -> tuple[Column, ...]:
        """The rows before or after the changes; `at` moves to where those that are there end."""
        if has.any():
            columns, at[has] = taken(Rows(self._messages, relation, at[has] + 1, which[has]), has)
            return columns
        nothing = Column(pa.nulls(len(which), pa.utf8()), np.zeros(len(which), np.bool_))
        return (nothing,) * len(relation.columns)


def _pieces(messages: Sequence[bytes]) -> Iterator[Messages]:
    """The messages in pieces whose bytes can be laid one behind the other."""
    if messages and sum(map(len, messages)) <= AT_ONCE:
        yield Messages(messages, 0)
        return
    first, size = 0, 0
    for i, message in enumerate(messages):
        size += len(message)
        if size > AT_ONCE and i > first:
            yield Messages(messages[first:i], first)
            first, size = i, len(message)
    if first < len(messages):
        yield Messages(messages[first:] if first else messages, first)


def _together(batches: Sequence[Batch]) -> Batch:
    """Batches one behind the other."""
    tables = tuple(changes for each in batches for changes in each.tables)
    truncates = tuple(truncate for each in batches for truncate in each.truncates)
    messages = tuple(message for each in batches for message in each.messages)
    return Batch(tables, truncates, messages, Transactions.together([each.transactions for each in batches]))
