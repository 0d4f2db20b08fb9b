"""Interval join of two streams: inner and left.

State: tables "left" and "right" hold the rows that may still meet others, in slots of time, sorted so that partners are one range
(kernels/probe.py). A left join also remembers who waits and who was matched (kernels/waiting.py).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.change import HASH, POSITION, TIME
from penstock.core.hashing import Hashes, hash64
from penstock.core.time import FOREVER, NEVER, micros
from penstock.kernels import waiting
from penstock.kernels.judging import behind_their_watermark
from penstock.kernels.pairing import Meeting, Output
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.probe import Found, Side, Stretch, probe
from penstock.kernels.tables import by_slot, column, numbers, sorted_by_hash

Mask = npt.NDArray[np.bool_]

LEFT, RIGHT = "left", "right"
_NARROWEST = 60_000_000  # a slot is at least a minute, so that a short bound under a long lateness does not make thousands of files
_WAITING_PER_SLOT = 8


@dataclass(frozen=True)
class Batch:
    """New rows of one side that may match, sorted by the code of the epoch's stretch of time."""

    rows: pa.Table
    side: Side
    stretch: Stretch
    keyless: pa.Table  # rows with null in their key: they match nothing


class JoinKernel:
    """l and r match iff their `on` columns are equal (null equals nothing) and lo_us <= r.t - l.t <= hi_us."""

    needs_position, gives_position = True, True

    def __init__(
        self,
        on: Sequence[str],
        lo_us: int,
        hi_us: int,
        how: Literal["inner", "left"],
        late: Literal["divert", "ignore"],
        left_schema: pa.Schema,
        right_schema: pa.Schema,
        right: Sequence[tuple[str, str]],
        output_schema: pa.Schema,
        *,
        slot_us: int | None = None,
    ) -> None:
        """right: output name and name on the right side. slot_us: how wide a slot of state is (state cannot change it)."""
        self._on, self._lo, self._hi, self._how, self._late = tuple(on), lo_us, hi_us, how, late
        self._width = slot_us or max(hi_us - lo_us, _NARROWEST)
        self._narrow = max(self._width // _WAITING_PER_SLOT, 1)
        self._output = Output(output_schema, right)
        right_names = [name for name in right_schema.names if name in on or name in dict(right).values()]
        self._names = [[*left_schema.names, TIME, POSITION], [*right_names, TIME, POSITION]]

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Judges rows; those on time go on and are never judged again."""
        late = self._is_late(rows)
        count = int(np.count_nonzero(late))
        fates = Counter({"on time": rows.num_rows - count, "diverted" if self._late == "divert" else "ignored": count})
        kept = ~late
        if port == 1 or self._how == "inner":
            kept &= self._keyed(rows)
        taken = rows.select(self._names[port])
        taken = taken if kept.all() else taken.filter(pa.array(kept))
        hashes = hash64([taken[name] for name in self._on], taken.num_rows)
        diverted = rows.filter(pa.array(late)) if count and self._late == "divert" else None
        return Prepared(taken.append_column(HASH, pa.array(hashes)), diverted, +fates)

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        left, right = self._batches(rows)
        changes, out = Changes(), [self._output.empty(self.gives_position)]
        seeking = self._met(state, RIGHT, left, right, (self._lo, self._hi))
        sought = self._met(state, LEFT, right, None, (-self._hi, -self._lo))
        if self._how == "left":
            out += self._alone(state, changes, left, seeking, sought, frontiers[1])
        self._keep(changes, LEFT, left, frontiers[1] - self._hi)
        self._keep(changes, RIGHT, right, frontiers[0] + self._lo)
        self._evict(state, changes, LEFT, frontiers[1] - self._hi)
        self._evict(state, changes, RIGHT, frontiers[0] + self._lo)
        return Stepped(pa.concat_tables(out), changes, more=self._pairs(left, seeking, right, sought))

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        if table == waiting.MATCHED:
            return waiting.matched_once(runs)
        return sorted_by_hash(pa.concat_tables(runs))

    def frontier(self, frontiers: Sequence[int]) -> int:
        """A left row is held for hi before it comes out alone under its own time. What is endless stays so."""
        least = min(frontiers)
        if self._how == "inner" or least in (NEVER, FOREVER):
            return least
        return least - max(self._hi, 0)

    def open_rows(self, state: State) -> pa.Table | None:
        """Left rows that wait for a partner, as they would come out alone."""
        if self._how == "inner":
            return None
        alone = waiting.fall_due(state, self._due(state, FOREVER), None)
        placed = self.gives_position
        return pa.concat_tables([self._output.empty(placed), *(self._output.alone(rows, placed) for rows in alone)])

    def _is_late(self, rows: pa.Table) -> Mask:
        return behind_their_watermark(rows)

    def _keyed(self, rows: pa.Table) -> Mask:
        keyed = np.ones(rows.num_rows, np.bool_)
        for name in self._on:
            if rows[name].null_count:
                keyed &= column(rows, name).is_valid().to_numpy(zero_copy_only=False)
        return keyed

    def _batches(self, rows: Sequence[pa.Table | None]) -> tuple[Batch | None, Batch | None]:
        """Both sides sorted by one code, so that the rows of one side are in order for a search in the other."""
        some = [numbers(r, TIME) for r in rows if r is not None and r.num_rows]
        if not some:
            return None, None
        begin = min(int(t.min()) for t in some)
        stretch = Stretch(begin, max(int(t.max()) for t in some) - begin + 1)
        left, right = (self._batch(r, stretch) if r is not None and r.num_rows else None for r in rows)
        return left, right

    def _batch(self, rows: pa.Table, stretch: Stretch) -> Batch:
        keyed = self._keyed(rows)
        may, keyless = (rows, rows.slice(0, 0)) if keyed.all() else (rows.filter(pa.array(keyed)), rows.filter(pa.array(~keyed)))
        order = np.argsort(stretch.code(numbers(may, HASH), numbers(may, TIME)))
        ordered = may.combine_chunks().take(pa.array(order))
        side = Side(numbers(ordered, HASH), numbers(ordered, TIME), [column(ordered, name) for name in self._on])
        return Batch(ordered, side, stretch, keyless)

    def _met(self, state: State, table: str, seeker: Batch | None, fresh: Batch | None, reach: tuple[int, int]) -> Meeting | None:
        """Who of the seekers' partners is in state or among the fresh rows of the other side."""
        if seeker is None or not seeker.rows.num_rows:
            return None
        found: list[Found | None] = []
        first, last = int(seeker.side.times.min()) + reach[0], int(seeker.side.times.max()) + reach[1]
        for slot in state.slots(table):
            if slot <= last and first < slot + self._width:
                stretch = Stretch(slot, self._width)
                found += [probe(seeker.side, run, stretch, reach, self._on) for run in state.runs(table, slot)]
        if fresh is not None:
            run = _with_hash(fresh.rows, fresh.stretch.code(fresh.side.hashes, fresh.side.times))
            found.append(probe(seeker.side, run, fresh.stretch, reach, self._on))
        some = [f for f in found if f is not None]
        return Meeting.of(some) if some else None

    def _pairs(
        self, left: Batch | None, seeking: Meeting | None, right: Batch | None, sought: Meeting | None
    ) -> Iterator[pa.Table]:
        if left and seeking:
            for li, ri in seeking.blocks():
                yield self._output.pairs(left.rows, li, seeking.partners, ri, self.gives_position)
        if right and sought:
            for ri, li in sought.blocks():
                yield self._output.pairs(sought.partners, li, right.rows, ri, self.gives_position)

    def _alone(
        self, state: State, changes: Changes, left: Batch | None, seeking: Meeting | None, sought: Meeting | None, now: int
    ) -> list[pa.Table]:
        """Left rows that are due without a partner; those not yet due are put to wait."""
        due = self._due(state, now)
        matched_now = sorted_by_hash(sought.met().select([HASH, TIME, POSITION])) if sought else None
        alone, fresh = waiting.fall_due(state, due, matched_now), None
        if left is not None:
            lonely = left.rows if seeking is None else left.rows.filter(pa.array(seeking.missed(left.rows.num_rows)))
            lonely = pa.concat_tables([lonely, left.keyless])
            overdue = pa.array(numbers(lonely, TIME) + self._hi < now)
            alone.append(lonely.filter(overdue))
            fresh = sorted_by_hash(self._coded(lonely.filter(pc.invert(overdue))))
        waiting.keep(changes, due, self._narrow, fresh, matched_now)
        changes.drop |= waiting.over(state, due, self._narrow)
        return [self._output.alone(rows, self.gives_position) for rows in alone]

    def _due(self, state: State, now: int) -> waiting.Due:
        return waiting.Due(self._hi, state.before(1), now)

    def _keep(self, changes: Changes, table: str, batch: Batch | None, least: int) -> None:
        """Adds new rows that others may still come for."""
        if batch is None:
            return
        lasting = batch.side.times >= least
        rows = batch.rows if lasting.all() else batch.rows.filter(pa.array(lasting))
        for slot, part in by_slot(self._coded(rows), self._width).items():
            changes.add[table, slot] = sorted_by_hash(part)

    def _evict(self, state: State, changes: Changes, table: str, least: int) -> None:
        changes.drop |= {(table, slot) for slot in state.slots(table) if slot + self._width <= least}

    def _coded(self, rows: pa.Table) -> pa.Table:
        """Rows with the code within their slot as HASH; its high bits, by which buckets are cut, stay those of the hash."""
        codes = Stretch(0, self._width).code(numbers(rows, HASH), numbers(rows, TIME) % np.int64(self._width))
        return _with_hash(rows, codes)


class Definition(Protocol):
    """What a flow says of a join."""

    @property
    def on(self) -> Sequence[str]: ...
    @property
    def lo(self) -> timedelta: ...
    @property
    def hi(self) -> timedelta: ...
    @property
    def how(self) -> Literal["inner", "left"]: ...
    @property
    def late(self) -> Literal["divert", "ignore"]: ...
    @property
    def right(self) -> Sequence[tuple[str, str]]: ...


def build(join: Definition, inputs: Sequence[pa.Schema], output: pa.Schema) -> JoinKernel:
    left, right = inputs
    return JoinKernel(join.on, micros(join.lo), micros(join.hi), join.how, join.late, left, right, join.right, output)


def _with_hash(rows: pa.Table, codes: Hashes) -> pa.Table:
    return rows.set_column(rows.column_names.index(HASH), HASH, pa.array(codes))
