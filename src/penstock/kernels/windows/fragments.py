"""Rows as fragments of sessions: partial results over stretches of time that can be put together in any order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import HASH, TIME
from penstock.core.hashing import hash64
from penstock.kernels.aggregates.partials import Aggregation
from penstock.kernels.column_names import FIRST, LAST
from penstock.kernels.columns import numbers
from penstock.kernels.keyed import key_numbers
from penstock.kernels.windows import corrections
from penstock.kernels.windows.chains import Chains, alike, chained, cut
from penstock.plan import Aggregate

Longs = npt.NDArray[np.int64]


_NONE = np.empty(0, np.int64)
_LONG = pa.int64()
_PANE, _SESSION = "__pane", "__session"


_SPAN = (Aggregate(FIRST, "min", TIME, _LONG), Aggregate(LAST, "max", TIME, _LONG))  # over the rows' time


@dataclass(frozen=True)
class Sessions:
    """What fragments add up to: sessions, numbered from 0 on by key and time."""

    firsts: Longs
    lasts: Longs
    ends: Longs
    keys: Longs  # numbers of their keys; they do not fall
    of: Longs  # of each fragment: the number of its session, or -1


class Fragments:
    """Fragments of the rows of a key that are less than `gap` apart.

    With `longest` a fragment is an instant: where a session is cut is known only when all rows before are."""

    def __init__(
        self, by: Sequence[str], gap: int, longest: int | None, aggregates: Sequence[Aggregate], rows: pa.Schema, counts_late: bool
    ) -> None:
        """counts_late: whether late rows in them are counted and named."""
        self.by, self.gap, self.longest, self._counts_late = tuple(by), gap, longest, counts_late
        timed = rows.append(pa.field(TIME, pa.int64()))
        self._of_rows, self._span = Aggregation([*_SPAN, *aggregates], timed), Aggregation(_SPAN, timed)
        self.aggregation = Aggregation(aggregates, rows)
        keys = [rows.field(name).with_nullable(True) for name in by]
        rest = [*self.aggregation.fields, *(corrections.FIELDS if counts_late else ()), pa.field(HASH, pa.uint64())]
        self.schema = pa.schema([*keys, pa.field(FIRST, pa.int64()), pa.field(LAST, pa.int64()), *rest])

    def of_rows(self, rows: pa.Table, *, late: bool = False) -> pa.Table:
        """Rows of one stretch of `gap` on the clock are less than `gap` apart; so they are added up without being sorted."""
        times = numbers(rows, TIME)
        panes = times if self.longest is not None else times // np.int64(self.gap)
        partial = self._of_rows.partial(rows, self.by, {_PANE: panes})
        if self._counts_late:
            partial = corrections.with_late_rows(partial, rows, self.by, panes, _PANE) if late else corrections.none(partial)
        for name, values in self._span.results(partial).items():
            partial = partial.append_column(name, values)
        hashes = hash64([partial[name] for name in self.by], partial.num_rows)
        return partial.append_column(HASH, pa.array(hashes)).select(self.schema.names)

    def together(self, pieces: Sequence[pa.Table], worth: int = 1) -> pa.Table:
        """As few fragments as mean the same; or as they are, unless so many times fewer would do."""
        fragments = whole(pieces) if pieces else self.schema.empty_table()
        if fragments.num_rows < 2:
            return fragments
        keys, firsts, lasts = key_numbers(fragments, self.by), numbers(fragments, FIRST), numbers(fragments, LAST)
        chains = alike(keys, firsts) if self.longest is not None else chained(keys, firsts, lasts, self.gap)
        if len(chains.firsts) == len(firsts) or len(chains.firsts) * worth > len(firsts):
            return fragments
        return self.folded(fragments, chains.numbers, chains.firsts, chains.lasts)[0]

    def sessions(self, fragments: pa.Table, since: int) -> Sessions:
        """The sessions that end after `since`, complete or not."""
        if not fragments.num_rows:
            return Sessions(_NONE, _NONE, _NONE, _NONE, _NONE)
        chains, ends = self._chains(fragments)
        lives = ends > since
        of = np.where(lives, np.cumsum(lives) - 1, -1)[chains.numbers]
        return Sessions(chains.firsts[lives], chains.lasts[lives], ends[lives], chains.keys[lives], of)

    def folded(self, fragments: pa.Table, of: Longs, firsts: Longs, lasts: Longs) -> tuple[pa.Table, Longs]:
        """The fragments as one for each session that they are of, as long as the session; and the number of the session of each."""
        fragments = _replaced(_replaced(fragments, FIRST, firsts[of]), LAST, lasts[of])
        if np.bincount(of).max(initial=0) < 2:
            return fragments, of
        numbered = fragments.append_column(_SESSION, pa.array(of))
        more = corrections.folding() if self._counts_late else ()
        folded = self.aggregation.fold(numbered, [_SESSION], [*self.by, FIRST, LAST, HASH], more)
        return folded.drop_columns([_SESSION]), numbers(folded, _SESSION)

    def _chains(self, fragments: pa.Table) -> tuple[Chains, Longs]:
        keys, firsts, lasts = key_numbers(fragments, self.by), numbers(fragments, FIRST), numbers(fragments, LAST)
        if self.longest is None:
            chains = chained(keys, firsts, lasts, self.gap)
            return chains, chains.lasts + self.gap
        chains = cut(keys, firsts, self.gap, self.longest)
        return chains, np.minimum(chains.lasts + self.gap, chains.firsts + self.longest)


def whole(pieces: Sequence[pa.Table]) -> pa.Table:
    """Tables as one, each column in one piece."""
    return (pieces[0] if len(pieces) == 1 else pa.concat_tables(pieces)).combine_chunks()


def _replaced(table: pa.Table, name: str, values: Longs) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))
