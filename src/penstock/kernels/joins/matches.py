"""Who met whom in one epoch of a join."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.joins.probe import Found, Side, Stretch, spread

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

BLOCK = 1 << 17  # pairs made at once: they stay in the cache, and a column of text within what one Arrow array can hold


@dataclass(frozen=True)
class Batch:
    """New rows of one side that may match, sorted by the code of the epoch's stretch of time."""

    rows: pa.Table
    side: Side
    stretch: Stretch
    keyless: pa.Table  # rows with null in their key: they match nothing


@dataclass(frozen=True)
class Matches:
    """Row rows[i] of those that looked met count[i] rows of `partners` from start[i] on.

    The first `known` partners were in state; the others came in this epoch, as the rows `fresh` of their side."""

    rows: Longs
    start: Longs
    count: Longs
    partners: pa.Table
    known: int
    fresh: Longs

    @classmethod
    def of(cls, known: Sequence[Found], fresh: Found | None) -> "Matches":
        found = [*known, *([fresh] if fresh else [])]
        sizes = [f.touched.num_rows for f in found]
        shifts = np.cumsum([0, *sizes[:-1]])
        return cls(
            np.concatenate([f.rows for f in found]),
            np.concatenate([f.start + shift for f, shift in zip(found, shifts, strict=True)]),
            np.concatenate([f.count for f in found]),
            found[0].touched if len(found) == 1 else pa.concat_tables([f.touched for f in found]).combine_chunks(),
            sum(sizes[: len(known)]),
            fresh.places if fresh else np.zeros(0, np.int64),
        )

    def where(self, counts: Callable[[Longs, Longs], Mask]) -> "Matches | None":
        """The same without the pairs that do not count; None where none is left."""
        parts = [_ranges(rows[good], at[good]) for rows, at in self.blocks() if (good := counts(rows, at)).any()]
        if not parts:
            return None
        rows, start, count = (np.concatenate(some) for some in zip(*parts, strict=True))
        return Matches(rows, start, count, self.partners, self.known, self.fresh)

    def looked(self, rows: int) -> Mask:
        """Who of so many rows that looked met somebody."""
        some = np.zeros(rows, np.bool_)
        some[self.rows] = True
        return some

    def met_known(self) -> pa.Table:
        """The partners from state that somebody met."""
        return self.partners.slice(0, self.known).filter(pa.array(self._met()[: self.known]))

    def met_fresh(self, rows: int) -> Mask:
        """Who of so many rows that came in this epoch was met."""
        some = np.zeros(rows, np.bool_)
        some[self.fresh[self._met()[self.known :]]] = True
        return some

    def _met(self) -> Mask:
        """Which partners lie in some range: at each, how many ranges have begun and not yet ended."""
        n = self.partners.num_rows + 1
        open_ranges = np.cumsum(np.bincount(self.start, minlength=n) - np.bincount(self.start + self.count, minlength=n))
        return np.asarray(open_ranges[:-1] > 0)

    def blocks(self) -> Iterator[tuple[Longs, Longs]]:
        """Pairs as (row, partner), so many at a time."""
        behind = np.cumsum(self.count)
        at = 0
        while at < len(self.rows):
            done = int(behind[at - 1]) if at else 0
            end = max(int(np.searchsorted(behind, done + BLOCK, "right")), at + 1)
            yield np.repeat(self.rows[at:end], self.count[at:end]), spread(self.start[at:end], self.count[at:end])
            at = end


class Met(Protocol):
    """What a join has to know of an epoch to tell who comes out alone, or once. Rows in state have the HASH of state."""

    def met_known(self, port: int) -> pa.Table | None:
        """The rows of a side that were in state and met somebody now."""
        ...

    def met_fresh(self, port: int) -> pa.Table | None:
        """The new rows of a side that met somebody."""
        ...

    def lonely(self, port: int) -> pa.Table | None:
        """The new rows of a side that met nobody."""
        ...


@dataclass(frozen=True)
class Encounter:
    """The new rows of both sides, and whom they met: left ones looked at all right rows, right ones at left rows in state."""

    batches: tuple[Batch | None, Batch | None]
    meetings: tuple[Matches | None, Matches | None]

    def met(self, port: int) -> Mask:
        """Which of the new rows of a side met somebody."""
        batch, mine, other = self.batches[port], self.meetings[port], self.meetings[1 - port]
        n = batch.rows.num_rows if batch else 0
        met = mine.looked(n) if mine else np.zeros(n, np.bool_)
        return met | other.met_fresh(n) if other and len(other.fresh) else met

    def met_known(self, port: int) -> pa.Table | None:
        other = self.meetings[1 - port]
        return other.met_known() if other and other.known else None

    def met_fresh(self, port: int) -> pa.Table | None:
        batch = self.batches[port]
        return batch.rows.filter(pa.array(self.met(port))) if batch else None

    def lonely(self, port: int) -> pa.Table | None:
        batch = self.batches[port]
        if batch is None:
            return None
        met = self.met(port)
        rows = batch.rows.filter(pa.array(~met)) if met.any() else batch.rows
        return pa.concat_tables([rows, batch.keyless]) if batch.keyless.num_rows else rows


def _ranges(rows: Longs, at: Longs) -> tuple[Longs, Longs, Longs]:
    """Pairs put together again: neighbours of one row as one range."""
    new = np.ones(len(rows), np.bool_)
    new[1:] = (rows[1:] != rows[:-1]) | (at[1:] != at[:-1] + 1)
    first = np.flatnonzero(new)
    return rows[first], at[first], np.diff(first, append=len(rows))
