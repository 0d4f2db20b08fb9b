"""Checksums of a view's rows: what was written is what is read, or it is an error (G27).

Every version carries the CRC-32C of its values and of the epoch it came with. A version in history also carries when it ended, once
more. Each line of `marker` carries its own, and for both tables how many versions there are and the sum of their checksums, so that
one that is missing is noticed, too.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from crc32c import crc32c

from penstock.sinks.sqlite_values import Value
from penstock.sinks.view_tables import ENDS, Layout

_INFINITE = (math.inf, -math.inf)


class Sum(NamedTuple):
    """What a table holds, in four numbers."""

    rows: int = 0
    total: int = 0  # of the checksums
    bare: int = 0  # rows without one: an older Penstock wrote them
    numbers: int = 0  # of the rows in history, added up

    def plus(self, other: "Sum") -> "Sum":
        return Sum(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: "Sum") -> "Sum":
        return Sum(*(a - b for a, b in zip(self, other, strict=True)))


class Sums(NamedTuple):
    """What a view holds."""

    current: Sum = Sum()
    history: Sum = Sum()

    @classmethod
    def parsed(cls, text: str) -> "Sums":
        return cls(*(Sum(*part) for part in json.loads(text)))

    def text(self) -> str:
        return json.dumps(self)


def row_checks(layout: Layout, columns: Mapping[str, Sequence[Value]], since: Sequence[Value]) -> list[int]:
    """The checksum of each row; columns as SQLite has them, since: the epoch of each row."""
    parts = [since, *(_told(columns[name]) if name in layout.doubles else columns[name] for name in layout.checked)]
    # A row keeps its checksum when the view gains a column: what is null at its end does not count.
    shorten = None in parts[-1]
    try:
        return list(map(crc32c, map(orjson.dumps, _rows(parts, shorten))))
    except TypeError:  # there are bytes
        return [crc32c(orjson.dumps(row, _hex)) for row in _rows(parts, shorten)]


def _rows(parts: Sequence[Sequence[Value]], shorten: bool) -> Iterable[tuple[Value, ...]]:
    rows = zip(*parts, strict=True)
    return map(_without_end, rows) if shorten else rows


def _told(column: Sequence[Value]) -> Sequence[Value]:
    """JSON has no word for an infinite number."""
    if any(number in column for number in _INFINITE):
        return [str(v) if v in _INFINITE else v for v in column]
    return column


def _without_end(row: tuple[Value, ...]) -> tuple[Value, ...]:
    last = len(row)
    while last and row[last - 1] is None:
        last -= 1
    return row[:last]


def _hex(value: bytes | bytearray) -> str:
    return "\0" + value.hex()


def ends(until: Iterable[Value], deleted: Iterable[Value]) -> list[int]:
    """What stands above the row's own checksum in history; view_tables has the same in SQL."""
    return [0 if u is None else (u * 2 + d) % ENDS for u, d in zip(until, deleted, strict=True)]


def line_check(values: Sequence[Any]) -> int:
    """The checksum of a line of `marker`, of all lines of `meta`, or of the database's own tables."""
    return int(crc32c(orjson.dumps(values, _hex)))
