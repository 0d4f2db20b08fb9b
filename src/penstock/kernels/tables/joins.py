"""Joins of two tables as they are now: every change of either side becomes the changes of the rows it is part of.

Of either side some rows are taken back, some are new, and some stay the same. What holds no more is L_back x (R_back + R_same) and
L_same x R_back; what is new is L_new x (R_new + R_same) and L_same x R_new. L_same is looked up for what changed on the right, and
R_same for what changed on the left: the cost follows the changes and the rows they are part of.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import HASH, OP, PARTNERS, POSITION, TIME
from penstock.core.hashing import Hashes
from penstock.kernels.changes import differences
from penstock.kernels.columns import numbers, travelling
from penstock.kernels.joins.probe import spread
from penstock.kernels.keyed import key_numbers
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.tables.join_rows import Block, JoinedRows
from penstock.kernels.tables.join_sides import Changed, Pool, Side
from penstock.kernels.windows.session_state import distinct
from penstock.plan import TableJoin

Longs = npt.NDArray[np.int64]
Both = tuple[Longs, Longs]  # before and after

LEFT, RIGHT = 0, 1
_ALONE: dict[str, tuple[int, ...]] = {"left": (LEFT,), "anti": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT)}
_COUNTED: dict[str, tuple[int, ...]] = {"inner": (), "right": (LEFT,), "full": (LEFT, RIGHT)}


class TableJoinKernel:
    """l and r match iff their `on` columns are equal; null equals nothing. State: see table_join_sides."""

    needs_position, gives_position = True, True

    def __init__(self, join: TableJoin, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._on, self._how, self._schema = list(join.on), join.how, output
        self._alone = _ALONE.get(join.how, ())  # the sides whose rows come out without a partner
        self._counted = _COUNTED.get(join.how, (RIGHT,))  # the sides of which it is known how many partners they offer
        self._pairs = join.how not in ("semi", "anti")
        self._key = list(join.key) or [POSITION]
        on = pa.schema([inputs[LEFT].field(name).with_nullable(True).remove_metadata() for name in join.on])
        kept = (set(output.names), {own for _, own in join.right})
        self._sides = [
            Side(table, [name for name in inputs[i].names if name in kept[i] or name in join.keys[i]], on, join.keys[i])
            for i, table in enumerate(("left", "right"))
        ]
        self._rows = JoinedRows(output, dict(join.right), join.on, paired=self._pairs)
        self._empty = [self.prepare(i, travelling(schema).empty_table()).rows for i, schema in enumerate(inputs)]

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        signed = self._sides[port].signed(rows, alone=port in self._alone)
        return Prepared(signed, fates=+Counter(passed=rows.num_rows))

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        placed = self.gives_position or self._key == [POSITION]
        if not any(r is not None and r.num_rows for r in rows):
            return Stepped(travelling(self._schema, (OP, pa.int8()), placed=placed).empty_table(), Changes())
        given = [self._empty[port] if r is None else r for port, r in enumerate(rows)]
        changed = [side.changed(signed) for side, signed in zip(self._sides, given, strict=True)]
        pools, partners = self._looked_up(state, changed)
        before, after = (
            self._rows.made(pools[LEFT].rows, pools[RIGHT].rows, blocks, placed=placed) for blocks in self._blocks(pools, partners)
        )
        values = [*self._schema.names, TIME, *([POSITION] if placed else [])]
        return Stepped(differences(before, after, self._key, values).changelog(), self._kept(changed))

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        side = next(side for side in self._sides if table in (side.table, side.count))
        return side.current.merge(runs) if table == side.table else side.added(runs)

    def frontier(self, frontiers: Sequence[int]) -> int:
        return min(frontiers)

    def open_rows(self, state: State) -> pa.Table | None:
        """Everything it has to say is said."""
        return None

    def _looked_up(self, state: State, changed: Sequence[Changed]) -> tuple[list[Pool], list[Both]]:
        """The rows of both sides that matter; and per side how many partners it offers to each code, before and after."""
        concerned = distinct([c.hashes for c in changed])
        counts = [
            side.counts(state, concerned if port in self._counted else concerned[:0]) for port, side in enumerate(self._sides)
        ]
        same = self._same(state, changed, counts)
        codes = self._numbered([*(c.signed for c in changed), *same, *counts])
        size = max((int(c.max()) + 1 for c in codes if len(c)), default=0)
        pools = [Pool.of(changed[i], same[i], (codes[i], codes[2 + i])) for i in (LEFT, RIGHT)]
        return pools, [_tally(size, changed[i], codes[i], counts[i], codes[4 + i]) for i in (LEFT, RIGHT)]

    def _same(self, state: State, changed: Sequence[Changed], counts: Sequence[pa.Table]) -> list[pa.Table]:
        left, right = self._sides
        if self._pairs:
            return [left.same(state, changed[RIGHT].hashes, changed[LEFT]), right.same(state, changed[LEFT].hashes, changed[RIGHT])]
        turned = self._turned(changed[RIGHT], counts[RIGHT])
        return [left.same(state, turned, changed[LEFT]), self._empty[RIGHT]]

    def _turned(self, right: Changed, counts: pa.Table) -> Hashes:
        """The hashes of what has its first partner now, or has lost its last one."""
        mine, theirs = self._numbered([right.signed, counts])
        size = max((int(c.max()) + 1 for c in (mine, theirs) if len(c)), default=0)
        before, after = _tally(size, right, mine, counts, theirs)
        return distinct([numbers(right.signed, HASH)[((before > 0) != (after > 0))[mine]]])

    def _numbered(self, pieces: Sequence[pa.Table]) -> list[Longs]:
        """A number for what each row is joined on."""
        codes = key_numbers(pa.concat_tables([p.select([*self._on, HASH]) for p in pieces]), self._on)
        return np.split(codes, np.cumsum([p.num_rows for p in pieces])[:-1])

    def _blocks(self, pools: Sequence[Pool], partners: Sequence[Both]) -> tuple[list[Block], list[Block]]:
        """What was shown of the rows that matter, and what is to be shown."""
        before, after = [], []
        if self._pairs:
            left, right = pools
            before += [_met(left, left.back, right, right.before()), _met(left, left.same, right, right.back)]
            after += [_met(left, left.new, right, right.after()), _met(left, left.same, right, right.new)]
        for port in self._alone if self._pairs else (LEFT,):
            pool = pools[port]
            was, is_ = ((n > 0) if self._how == "semi" else (n == 0) for n in partners[1 - port])
            was, is_ = was[pool.codes], is_[pool.codes]
            turned = was[pool.same] != is_[pool.same]
            same = pool.same[turned]
            before.append(_alone(port, np.concatenate([pool.back[was[pool.back]], same[was[same]]])))
            after.append(_alone(port, np.concatenate([pool.new[is_[pool.new]], same[is_[same]]])))
        return before, after

    def _kept(self, changed: Sequence[Changed]) -> Changes:
        add = {}
        for port, (side, new) in enumerate(zip(self._sides, changed, strict=True)):
            if port == LEFT or self._pairs:
                add[side.table, 0] = new.run
            if port in self._counted:
                add[side.count, 0] = side.counted(new)
        return Changes({place: run for place, run in add.items() if run.num_rows})


def _tally(size: int, changed: Changed, codes: Longs, counts: pa.Table, theirs: Longs) -> Both:
    before = np.zeros(size, np.int64)
    np.add.at(before, theirs, numbers(counts, PARTNERS))
    after = before.copy()
    np.add.at(after, codes[changed.keyed], changed.signs[changed.keyed])
    return before, after


def _met(left: Pool, lefts: Longs, right: Pool, rights: Longs) -> Block:
    """All pairs of these rows with equal codes."""
    lefts, rights = lefts[left.keyed[lefts]], rights[right.keyed[rights]]
    if not len(lefts) or not len(rights):
        return Block(lefts[:0], rights[:0])
    rights = rights[np.argsort(right.codes[rights], kind="stable")]
    size = 1 + max(int(left.codes[lefts].max()), int(right.codes[rights[-1]]))
    counts = np.bincount(right.codes[rights], minlength=size)
    mine = counts[left.codes[lefts]]
    return Block(np.repeat(lefts, mine), rights[spread((np.cumsum(counts) - counts)[left.codes[lefts]], mine)])


def _alone(port: int, rows: Longs) -> Block:
    return Block(rows, None) if port == LEFT else Block(None, rows)


def build(join: TableJoin, inputs: Sequence[pa.Schema], output: pa.Schema) -> TableJoinKernel:
    return TableJoinKernel(join, inputs, output)
