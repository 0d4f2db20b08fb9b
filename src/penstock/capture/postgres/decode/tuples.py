"""Rows in pgoutput's messages, read by columns: one step for each column, over all rows at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.capture.postgres.decode.changes import Column, Flags, Places
from penstock.capture.postgres.decode.messages import Relation, bad
from penstock.core.arrow import buffer_of, values_in
from penstock.errors import BadMessage

_TEXT, _NULL, _UNCHANGED = b"tnu"
_MARGIN = bytes(8)  # a number may be looked for behind the last message, where it is not used


class Messages:
    """Messages one behind the other in memory, and numbers read at many places of it at once."""

    def __init__(self, messages: Sequence[bytes], first: int) -> None:
        self.parts = messages
        self.first = first  # how many messages of the batch stand before these
        self.memory = np.frombuffer(b"".join([*messages, _MARGIN]), np.uint8)
        self.lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        self.ends = np.cumsum(self.lengths)
        self.starts = self.ends - self.lengths

    def byte(self, at: Places) -> npt.NDArray[np.uint8]:
        return self.memory[at]

    def count(self, at: Places) -> Places:
        return self._view(">u2")[at].astype(np.int64)

    def word(self, at: Places) -> Places:
        return self._words[at].astype(np.int64)

    def long(self, at: Places) -> npt.NDArray[np.uint64]:
        return self._view(">u8")[at].astype(np.uint64)

    def signed(self, at: Places) -> Places:
        return self._view(">i8")[at].astype(np.int64)

    def where(self, which: int) -> str:
        part = self.parts[which]
        kind = ascii(chr(part[0])) if part else "of no kind"
        return f"message {self.first + which} of the batch, {kind}, {len(part)} bytes: {part[:32].hex(' ')}"

    def bad(self, which: int, what: str) -> BadMessage:
        return bad(what, self.where(which))

    def check(self, holds: Flags, which: Places, what: str) -> None:
        if not holds.all():
            raise self.bad(int(which[np.flatnonzero(~holds)[0]]), what)

    @cached_property
    def _words(self) -> npt.NDArray[Any]:
        return self._view(">u4")

    def _view(self, form: str) -> npt.NDArray[Any]:
        """The memory as numbers of this form that begin at every byte."""
        kind = np.dtype(form)
        return np.ndarray((len(self.memory) - kind.itemsize + 1,), kind, self.memory.data, strides=(1,))


@dataclass(frozen=True)
class Rows:
    """Rows of one table: where each begins, and in which message."""

    messages: Messages
    relation: Relation
    at: Places
    which: Places

    def columns(self) -> tuple[list["_Found"], Places]:
        """Each column of these rows, and where each row ends."""
        ends, at = self.messages.ends[self.which], self.at
        self._check(at + 2 <= ends, "the row is cut off")
        self._check(self.messages.count(at) == len(self.relation.columns), "the row has not as many columns as the table")
        at, found = at + 2, []
        for number in range(len(self.relation.columns)):
            column = self._column(number, at, ends)
            found.append(column)
            at = column.end
        return found, at

    def _column(self, number: int, at: Places, ends: Places) -> "_Found":
        self._check(at < ends, "the row is cut off", number)
        kind = self.messages.byte(at)
        text = kind == _TEXT
        length = self.messages.word(at + 1)
        if text.all():
            start, end, unchanged = at + 5, at + 5 + length, np.zeros(len(at), np.bool_)
        else:
            length, unchanged = np.where(text, length, 0), kind == _UNCHANGED
            start, end = np.where(text, at + 5, at + 1), at + np.where(text, 5 + length, 1)
            self._check(text | unchanged | (kind == _NULL), "a value is neither text nor null nor unchanged", number)
        self._check(end <= ends, "a value goes on behind the end", number)
        return _Found(start, end, text, unchanged)

    def _check(self, holds: Flags, what: str, number: int | None = None) -> None:
        if not holds.all():
            where = (
                f"column {self.relation.columns[number].name!a} of {self.relation.name}"
                if number is not None
                else self.relation.name
            )
            self.messages.check(holds, self.which, f"{what} ({where})")


@dataclass(frozen=True)
class _Found:
    """Where the values of a column lie."""

    start: Places
    end: Places
    valid: Flags
    unchanged: Flags


def taken(rows: Rows, among: Flags) -> tuple[tuple[Column, ...], Places]:
    """The columns of rows, with nulls for those changes, of all these, that have no such row; and where each row ends."""
    found, ends = rows.columns()
    if among.all():
        return tuple(_values(rows, number, each) for number, each in enumerate(found)), ends
    # Those without a row are given an empty value where the row before them ends, as offsets must not go back.
    order = np.cumsum(among) - 1
    return tuple(_values(rows, number, _spread(each, among, order)) for number, each in enumerate(found)), ends


def _spread(found: _Found, among: Flags, order: Places) -> _Found:
    before, last = order < 0, np.maximum(order, 0)
    end = np.where(before, found.start[0], found.end[last])
    return _Found(np.where(among, found.start[last], end), end, among & found.valid[last], among & found.unchanged[last])


def _values(rows: Rows, number: int, found: _Found) -> Column:
    count, memory = len(found.start), rows.messages.memory
    edges = np.empty(2 * count + 1, np.int32)  # values, and what lies between them
    edges[:-1:2], edges[1::2], edges[-1] = found.start, found.end, found.end[-1]
    data = pa.Array.from_buffers(pa.binary(), 2 * count, [None, buffer_of(edges), buffer_of(memory)])
    _, offsets, values = data.take(np.arange(0, 2 * count, 2)).buffers()
    bits = None if found.valid.all() else buffer_of(np.packbits(found.valid, bitorder="little"))
    text = pa.Array.from_buffers(pa.utf8(), count, [bits, offsets, values])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _not_text(rows, number, text) from error
    return Column(text, found.unchanged)


def _not_text(rows: Rows, number: int, text: pa.Array) -> BadMessage:
    column = rows.relation.columns[number]
    for value in values_in(text.cast(pa.binary()).drop_null(), bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return bad(f"a value is not UTF-8 (column {column.name!a} of {rows.relation.name}): {value[:32]!r}")
    return bad(f"values of column {column.name!a} of {rows.relation.name} are not text")
