"""A stream join whose condition was evaluated elsewhere: which rows come out alone or once follows from the pairs that matched.

Inputs: both sides, and the pairs for which the condition holds, which come in the epoch of the later of their rows. State: who
waits and who was matched, as in other joins (kernels/joins/waiting.py); the rows that may still meet others are where the pairs
are made.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import HASH, LEFT, LEFT_TIME, POSITION, RIGHT, RIGHT_TIME, TIME
from penstock.core.hashing import hash64
from penstock.kernels.columns import column
from penstock.kernels.joins.interval import JoinKernel
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.plan import Matched

PAIRS = 2  # the port
_PLACES = ((LEFT, LEFT_TIME), (RIGHT, RIGHT_TIME))
_BLOCK = 1 << 17  # pairs made at once


class MatchedKernel(JoinKernel):
    """Gives the pairs that come in, and rows of both sides as they are in none."""

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Judges the rows of both sides; only those travel that may come out alone. Pairs are never late."""
        if port == PAIRS:
            hashes = hash64([rows[name] for name in self._on], rows.num_rows)
            return Prepared(rows.append_column(HASH, pa.array(hashes)), None, Counter({"passed": rows.num_rows}))
        judged = super().prepare(port, rows)
        return judged if port in self._alone else replace(judged, rows=judged.rows.slice(0, 0))

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        changes, out = Changes(), [self._output.empty(self.gives_position)]
        left, right, pairs = rows
        sides = Sides((left, right), [self._partners(pairs, port) for port in (0, 1)])
        others = frontiers[1::-1]  # what the rows of either side wait for
        for port in self._alone:
            out += self._unmatched(state, changes, port, sides, others[port])
        if self._how == "semi":
            out += self._matched(state, changes, sides, others[0])
        more = () if self._how in ("semi", "anti") or pairs is None else self._again(pairs)
        return Stepped(pa.concat_tables(out), changes, more=more)

    def _partners(self, pairs: pa.Table | None, port: int) -> pa.Table | None:
        """The rows of one side that pairs were made of, each once, with the HASH of state."""
        if pairs is None:
            return None
        position, time = _PLACES[port]
        codes = column(pairs, position).dictionary_encode().indices.to_numpy(zero_copy_only=False)
        each = pairs.take(np.unique(codes, return_index=True)[1])
        own = each.drop_columns([POSITION, TIME])
        return self._coded(own.append_column(TIME, each[time]).append_column(POSITION, each[position]))

    def _again(self, pairs: pa.Table) -> Iterator[pa.Table]:
        for start in range(0, pairs.num_rows, _BLOCK):
            yield self._output.again(pairs.slice(start, _BLOCK), self.gives_position)


@dataclass(frozen=True)
class Sides:
    """The new rows of both sides that may come out alone, and the rows of both that were matched now, by side."""

    new: tuple[pa.Table | None, pa.Table | None]
    matched: Sequence[pa.Table | None]

    def met_known(self, port: int) -> pa.Table | None:
        return _without(self.matched[port], self.new[port])

    def met_fresh(self, port: int) -> pa.Table | None:
        return None  # they are made from pairs, as those in state are

    def lonely(self, port: int) -> pa.Table | None:
        return _without(self.new[port], self.matched[port])


def _without(rows: pa.Table | None, others: pa.Table | None) -> pa.Table | None:
    """Rows that are not among the others."""
    if rows is None or others is None:
        return rows
    return rows.filter(pc.invert(pc.is_in(column(rows, POSITION), column(others, POSITION))))


def build(join: Matched, inputs: Sequence[pa.Schema], output: pa.Schema) -> MatchedKernel:
    return MatchedKernel(join, inputs, output)
