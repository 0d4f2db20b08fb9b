"""One poll: tables read whole and compared with their last copies; what differs is put on disk in parts."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.capture.polling.copy import CopyWriter
from penstock.capture.polling.digests import BUCKETS, Digests
from penstock.capture.polling.polls import Part, Poll, Polls
from penstock.capture.polling.source import Piece, PollSource
from penstock.capture.port import CREATE, DELETE, READ, UPDATE, Bytes, Flags, Table, TableFacts

BYTES = 8 << 20  # of changes that are held until they are put on disk


class Comparison:
    """Makes the poll behind `last`. Memory holds some pieces of a table, and one bucket of its copy."""

    def __init__(self, source: PollSource, tables: Sequence[Table], polls: Polls, last: Poll | None, begun: int) -> None:
        self._source, self._tables, self._polls, self._last = source, tables, polls, last
        self.number, self._begun = last.number + 1 if last else 1, begun
        self._parts = _Parts(polls, self.number)
        self._facts: dict[Table, TableFacts] = {}
        self.rows: dict[Table, int] = dict.fromkeys(tables, 0)

    def steps(self) -> Iterator[None]:
        """Does it, a little with each step."""
        writer, table = None, None
        for piece in self._source.pieces(self._tables):
            if piece.table != table:
                if writer and table:
                    yield from self._end(table, writer)
                table = piece.table
                writer = CopyWriter(self._polls.storage, self._polls.spill_path(table))
                old = self._polls.copy_of(self._last, table)
            assert writer
            self._facts[piece.table] = piece.facts
            rows = Digests.of(piece.keys, piece.rows)
            writer.add(rows)
            self.rows[piece.table] = writer.rows
            self._found(piece, *old.compared(rows))
            yield
        if writer and table:
            yield from self._end(table, writer)
        self._parts.put_away()
        self._tell_tables()

    @property
    def poll(self) -> Poll:
        """What it has come to."""
        return Poll(self.number, self._begun, tuple(self._parts.parts), self._facts)

    def _found(self, piece: Piece, new: Flags, changed: Flags) -> None:
        first = self._last is None or piece.table not in self._last.facts
        ops = np.where(new, np.uint8(READ if first else CREATE), np.uint8(UPDATE))
        places = np.flatnonzero(new | changed)
        if len(places):
            self._parts.add(piece.table, ops[places], piece.keys.take(places), piece.rows.take(places))

    def _tell_tables(self) -> None:
        """A table that is new, or has other columns, is told also where no row of it is."""
        told, known = {part.table for part in self._parts.parts}, self._last.facts if self._last else {}
        for table, facts in self._facts.items():
            if table not in told and known.get(table) != facts:
                self._parts.add(table, np.zeros(0, np.uint8), pa.array([], pa.utf8()), pa.array([], pa.utf8()))
        self._parts.put_away()

    def _end(self, table: Table, writer: CopyWriter) -> Iterator[None]:
        """Writes the copy; the rows of the last one that it does not have were deleted."""
        old = self._polls.copy_of(self._last, table)
        buckets = writer.write(self._polls.copy_path(self.number, table))
        for number, now in zip(range(BUCKETS), buckets, strict=True):
            before = old.bucket(number)
            gone = before.keys.take(np.flatnonzero(now.places_of(before) < 0))
            if len(gone):
                self._parts.add(table, np.full(len(gone), DELETE, np.uint8), gone, pa.nulls(len(gone), pa.utf8()))
            yield


class _Parts:
    """Changes on their way to disk."""

    def __init__(self, polls: Polls, poll: int) -> None:
        self._polls, self._poll = polls, poll
        self.parts: list[Part] = []
        self._held: list[tuple[Bytes, pa.Array, pa.Array]] = []
        self._table: Table | None = None
        self._bytes = self._before = 0

    def add(self, table: Table, ops: Bytes, keys: pa.Array, after: pa.Array) -> None:
        if table != self._table or self._bytes > BYTES:
            self.put_away()
        self._table = table
        self._held.append((ops, keys, after))
        self._bytes += int(keys.nbytes + after.nbytes)

    def put_away(self) -> None:
        if not self._held or self._table is None:
            return
        ops = np.concatenate([ops for ops, _, _ in self._held])
        keys, after = pa.concat_arrays([keys for _, keys, _ in self._held]), pa.concat_arrays([rows for _, _, rows in self._held])
        self._polls.put(self._poll, len(self.parts), ops, keys, after)
        self.parts.append(Part(self._table, len(ops), self._before))
        self._before += len(ops)
        self._held, self._bytes = [], 0
