"""Interval join of two streams: inner, left, right, full, semi and anti.

State: tables "left" and "right" hold the rows that may still meet others, in slots of time, sorted so that partners are one range
(kernels/joins/probe.py). Where rows come out alone, or once, it is also remembered who waits and who was matched
(kernels/joins/waiting.py).
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import HASH, POSITION, TIME
from penstock.core.hashing import Hashes, hash64
from penstock.core.time import FOREVER, NEVER, micros
from penstock.kernels.columns import by_slot, column, numbers, sorted_by_hash
from penstock.kernels.joins import waiting
from penstock.kernels.joins.matches import Batch, Encounter, Matches, Met
from penstock.kernels.joins.pairing import Condition, Output
from penstock.kernels.joins.probe import Side, Stretch, probe
from penstock.kernels.judging import behind_their_watermark
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.plan import Join, Matched, Pairs

Mask = npt.NDArray[np.bool_]

SIDES = ("left", "right")
_ALONE: dict[str, tuple[int, ...]] = {"left": (0,), "anti": (0,), "right": (1,), "full": (0, 1)}  # whose rows come out unmatched
_VERDICTS = {"divert": ("on time", "diverted"), "ignore": ("on time", "ignored"), "none": ("passed", "filtered")}
_NARROWEST = 60_000_000  # a slot is at least a minute, so that a short bound under a long lateness does not make thousands of files
_WAITING_PER_SLOT = 8


class JoinKernel:
    """l and r match iff their `on` columns are equal (null equals nothing), lo <= r.t - l.t <= hi, and the condition holds."""

    needs_position, gives_position = True, True

    def __init__(
        self, join: Join | Pairs | Matched, inputs: Sequence[pa.Schema], output: pa.Schema, *, slot_us: int | None = None
    ) -> None:
        """slot_us: how wide a slot of state is (state cannot change it)."""
        self._on, self._how, self._late = tuple(join.on), join.how, join.late
        self._lo, self._hi = micros(join.lo), micros(join.hi)
        self._reach = (self._hi, -self._lo)  # a row of time t may meet rows of the other side up to t + reach
        self._alone = _ALONE.get(join.how, ())
        self._width = slot_us or max(self._hi - self._lo, _NARROWEST)
        # Whoever waits is looked through when due, a part of a slot at a time; who was matched in a semi join, slot by slot.
        width = self._width if join.how == "semi" else max(self._width // _WAITING_PER_SLOT, 1)
        self._waiting = [waiting.Waiting(port, reach, width) for port, reach in enumerate(self._reach)]
        tree = join.condition.tree if join.condition else None
        self._condition = Condition(tree, dict(join.right)) if tree is not None else None
        self._output = Output(output, self._on, join.right, own=join.how in ("semi", "anti"))
        self._compared = [{*self._on, *names} for names in (self._condition.reads() if self._condition else ((), ()))]
        read = [self._compared[port] | self._output.reads(port) for port in (0, 1)]
        self._names = [[*(n for n in inputs[port].names if n in read[port]), TIME, POSITION] for port in (0, 1)]

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Judges rows; those on time go on and are never judged again."""
        late = self._is_late(rows)
        count = int(np.count_nonzero(late))
        taken_as, refused_as = _VERDICTS[self._late]
        fates = Counter({taken_as: rows.num_rows - count, refused_as: count})
        kept = ~late
        if port not in self._alone:
            kept &= self._keyed(rows)
        taken = rows.select(self._names[port])
        taken = taken if kept.all() else taken.filter(pa.array(kept))
        hashes = hash64([taken[name] for name in self._on], taken.num_rows)
        diverted = rows.filter(pa.array(late)) if count and self._late == "divert" else None
        return Prepared(taken.append_column(HASH, pa.array(hashes)), diverted, +fates)

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        left, right = self._batches(rows)
        changes, out = Changes(), [self._output.empty(self.gives_position)]
        seeking = self._met(state, 0, left, right)
        sought = self._met(state, 1, right, None)
        encounter = Encounter((left, right), (seeking, sought))
        others = frontiers[::-1]  # what the rows of either side wait for
        for port in self._alone:
            out += self._unmatched(state, changes, port, encounter, others[port])
        if self._how == "semi":
            out += self._matched(state, changes, encounter, others[0])
        for port in (0, 1):
            self._keep(changes, port, self._lasting(port, encounter), others[port] - self._reach[port])
            self._evict(state, changes, port, others[port] - self._reach[port])
        pairs = () if self._how in ("semi", "anti") else self._pairs(encounter)
        return Stepped(pa.concat_tables(out), changes, more=pairs)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        if table in waiting.MATCHED:
            return waiting.matched_once(runs)
        return sorted_by_hash(pa.concat_tables(runs))

    def frontier(self, frontiers: Sequence[int]) -> int:
        """A row that comes out under its own time may be held until nobody can come for it. What is endless stays so."""
        least = min(frontiers)
        if least in (NEVER, FOREVER):
            return least
        held = [self._reach[port] for port in ((0,) if self._how == "semi" else self._alone)]
        return least - max(0, *held) if held else least

    def open_rows(self, state: State) -> pa.Table | None:
        """Rows that wait for a partner, as they would come out alone."""
        if not self._alone:
            return None
        out = [self._output.empty(self.gives_position)]
        for port in self._alone:
            side = self._waiting[port]
            out += self._lonely(port, side.fall_due(state, side.due(state, FOREVER), None))
        return pa.concat_tables(out)

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
        ordered = may.combine_chunks().take(order)
        side = Side(numbers(ordered, HASH), numbers(ordered, TIME), [column(ordered, name) for name in self._on])
        return Batch(ordered, side, stretch, keyless)

    def _met(self, state: State, port: int, seeker: Batch | None, fresh: Batch | None) -> Matches | None:
        """Who of the partners of one side's new rows is in state or among the fresh rows of the other side."""
        if seeker is None or not seeker.rows.num_rows:
            return None
        table, reach = SIDES[1 - port], (-self._reach[1 - port], self._reach[port])
        found = []
        first, last = int(seeker.side.times.min()) + reach[0], int(seeker.side.times.max()) + reach[1]
        for slot in state.slots(table):
            if slot <= last and first < slot + self._width:
                stretch = Stretch(slot, self._width)
                found += [probe(seeker.side, run, stretch, reach, self._on) for run in state.runs(table, slot)]
        here = None
        if fresh is not None:
            run = _with_hash(fresh.rows, fresh.stretch.code(fresh.side.hashes, fresh.side.times))
            here = probe(seeker.side, run, fresh.stretch, reach, self._on)
        known = [f for f in found if f is not None]
        return self._counting(port, seeker.rows, Matches.of(known, here)) if known or here else None

    def _counting(self, port: int, seeker: pa.Table, met: Matches) -> Matches | None:
        """Without the pairs for which the condition does not hold."""
        if self._condition is None:
            return met
        if port == 0:
            return met.where(self._condition.over(seeker, met.partners))
        holds = self._condition.over(met.partners, seeker)
        return met.where(lambda ri, li: holds(li, ri))

    def _pairs(self, encounter: Encounter) -> Iterator[pa.Table]:
        (left, right), (seeking, sought) = encounter.batches, encounter.meetings
        if left and seeking:
            for li, ri in seeking.blocks():
                yield self._output.pairs(left.rows, li, seeking.partners, ri, self.gives_position)
        if right and sought:
            for ri, li in sought.blocks():
                yield self._output.pairs(sought.partners, li, right.rows, ri, self.gives_position)

    def _unmatched(self, state: State, changes: Changes, port: int, encounter: Met, now: int) -> list[pa.Table]:
        """Rows of one side that are due without a partner; those not yet due are put to wait."""
        side, fresh = self._waiting[port], None
        due, met = side.due(state, now), encounter.met_known(port)
        matched_now = waiting.matched(met) if met is not None else None
        alone, lonely = side.fall_due(state, due, matched_now), encounter.lonely(port)
        if lonely is not None:
            overdue = due.overdue(numbers(lonely, TIME))
            alone.append(lonely.filter(pa.array(overdue)))
            fresh = sorted_by_hash(self._coded(lonely.filter(pa.array(~overdue))))
        side.keep(changes, due, fresh, matched_now)
        side.drop(state, changes, due)
        return self._lonely(port, alone)

    def _matched(self, state: State, changes: Changes, encounter: Met, now: int) -> list[pa.Table]:
        """Left rows that have met somebody for the first time."""
        side, known, fresh = self._waiting[0], encounter.met_known(0), encounter.met_fresh(0)
        due, first = side.due(state, now), side.first_met(state, known) if known is not None else None
        side.keep(changes, due, None, waiting.matched(first) if first is not None else None)
        side.drop(state, changes, due)
        return self._lonely(0, [rows for rows in (fresh, first) if rows is not None])

    def _lonely(self, port: int, rows: Sequence[pa.Table]) -> list[pa.Table]:
        return [self._output.alone(port, some, self.gives_position) for some in rows]

    def _lasting(self, port: int, encounter: Encounter) -> pa.Table | None:
        """New rows that others may still come for: all, but only for the first time where a row comes out once or not at all."""
        batch = encounter.batches[port]
        if batch is None or port == 1 or self._how not in ("semi", "anti"):
            return batch.rows if batch else None
        rows = batch.rows.filter(pa.array(~encounter.met(0)))
        if self._how == "semi":
            return rows
        return rows.select(
            [n for n in rows.column_names if n in {*self._compared[0], TIME, POSITION, HASH}]
        )  # whole: those that wait

    def _keep(self, changes: Changes, port: int, rows: pa.Table | None, least: int) -> None:
        """Adds new rows to state, but for those that nobody can come for any more."""
        if rows is None:
            return
        lasting = numbers(rows, TIME) >= least
        rows = rows if lasting.all() else rows.filter(pa.array(lasting))
        for slot, part in by_slot(self._coded(rows), self._width).items():
            changes.add[SIDES[port], slot] = sorted_by_hash(part)

    def _evict(self, state: State, changes: Changes, port: int, least: int) -> None:
        changes.drop |= {(SIDES[port], slot) for slot in state.slots(SIDES[port]) if slot + self._width <= least}

    def _coded(self, rows: pa.Table) -> pa.Table:
        """Rows with the code within their slot as HASH; its high bits, by which buckets are cut, stay those of the hash."""
        codes = Stretch(0, self._width).code(numbers(rows, HASH), numbers(rows, TIME) % np.int64(self._width))
        return _with_hash(rows, codes)


def build(join: Join | Pairs, inputs: Sequence[pa.Schema], output: pa.Schema) -> JoinKernel:
    return JoinKernel(join, inputs, output)


def _with_hash(rows: pa.Table, codes: Hashes) -> pa.Table:
    return rows.set_column(rows.column_names.index(HASH), HASH, pa.array(codes))
