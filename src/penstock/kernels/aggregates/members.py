"""Any aggregates over many ranges of rows that overlap.

Rows are brought together by sixteen, those again by sixteen, and so on; a range is put together from a few of each kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.aggregates.partials import Aggregation
from penstock.kernels.columns import numbers
from penstock.kernels.joins.probe import spread
from penstock.kernels.windows.looking_back import Ranges

Longs = npt.NDArray[np.int64]

RANGE = "__range"
_TOGETHER = 16
_BLOCK = 1 << 19  # pieces brought together at once


@dataclass(frozen=True)
class Pieces:
    """Of one kind of piece: begin[i] … end[i] - 1 belong to range of[i]."""

    of: Longs
    begin: Longs
    end: Longs

    def members(self, first: int, behind: int) -> tuple[Longs, Longs]:
        """(range, piece) for the ranges first … behind - 1."""
        a, b = np.searchsorted(self.of, [first, behind])
        counts = self.end[a:b] - self.begin[a:b]
        return np.repeat(self.of[a:b], counts), spread(self.begin[a:b], counts)


def partials(aggregation: Aggregation, sources: Sequence[Ranges]) -> pa.Table:
    """Partial results of what each row looks back upon, over all sources, in the order of the rows."""
    found = [_of_source(aggregation, source) for source in sources]
    together = pa.concat_tables(found)
    return _by_number(together if len(found) == 1 else aggregation.fold(together, [RANGE]))


def _of_source(aggregation: Aggregation, source: Ranges) -> pa.Table:
    kinds = _decomposed(source.begin, source.end)
    tables = [source.rows, *_ever_wider(aggregation, source.rows, len(kinds) - 1)]
    out = []
    for first, behind in _blocks(kinds, len(source.of)):
        pieces = []
        for level, (kind, table) in enumerate(zip(kinds, tables, strict=True)):
            of, members = kind.members(first, behind)
            if len(of):
                taken, rows = table.take(members), source.of[of]
                pieces.append(_numbered(taken, rows) if level else aggregation.partial(taken, (), {RANGE: rows}))
        out.append(aggregation.fold(pa.concat_tables(pieces), [RANGE]))
    return pa.concat_tables(out)


def _decomposed(begin: Longs, end: Longs) -> list[Pieces]:
    """The pieces of each kind that make up the ranges: rows, sixteens of rows, …"""
    of, kinds = np.arange(len(begin)), []
    while len(of):
        inner, outer = -(-begin // _TOGETHER), end // _TOGETHER
        whole = inner < outer
        heads = np.where(whole, inner * _TOGETHER, end)
        tails = np.where(whole, outer * _TOGETHER, end)
        both = np.repeat(of, 2), np.stack([begin, tails], 1).ravel(), np.stack([heads, end], 1).ravel()
        kinds.append(Pieces(*both))
        of, begin, end = of[whole], inner[whole], outer[whole]
    return kinds


def _ever_wider(aggregation: Aggregation, rows: pa.Table, levels: int) -> list[pa.Table]:
    tables: list[pa.Table] = []
    for level in range(levels):
        if not level:
            table = aggregation.partial(rows, (), {RANGE: np.arange(rows.num_rows) // _TOGETHER})
        else:
            table = aggregation.fold(_numbered(tables[-1], numbers(tables[-1], RANGE) // _TOGETHER), [RANGE])
        tables.append(_by_number(table))
    return tables


def _blocks(kinds: list[Pieces], ranges: int) -> Iterator[tuple[int, int]]:
    """Ranges that are put together at once."""
    sizes = np.zeros(ranges, np.int64)
    for kind in kinds:
        sizes += np.bincount(kind.of, kind.end - kind.begin, ranges).astype(np.int64)
    behind, first = np.cumsum(sizes), 0
    while first < ranges:
        done = int(behind[first - 1]) if first else 0
        after = max(int(np.searchsorted(behind, done + _BLOCK, "right")), first + 1)
        yield first, after
        first = after


def _numbered(table: pa.Table, of: Longs) -> pa.Table:
    return table.set_column(table.column_names.index(RANGE), table.schema.field(RANGE), pa.array(of))


def _by_number(table: pa.Table) -> pa.Table:
    return table.take(np.argsort(numbers(table, RANGE)))
