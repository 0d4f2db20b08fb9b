"""What is kept of sessions: their fragments, in slots of time, so that what is over is dropped slot by slot.

Table "open": runs of fragments that are added up; a fragment lies in the slot of its last time. A session is over when
F >= end + allowed: no row that is still taken reaches it. Its slots go once all sessions that may have ended there are over;
fragments of a session that lives on are brought to its end before.

With a greatest length no fragment outlives its session by more than that, so nothing is brought anywhere. But where the sessions of
a key are cut depends on where the first of them began: table "over" holds, per key, the end of the last session that is over. What
lies before it counts no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.change import HASH
from penstock.kernels.aggregation import frame_of
from penstock.kernels.changes import among, touched
from penstock.kernels.fragments import FIRST, LAST, Fragments, Sessions
from penstock.kernels.port import Changes, State
from penstock.kernels.tables import numbers, sorted_by_hash, stored
from penstock.kernels.windows import OPEN, by_start

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

OVER = "over"
END = "__end"

_NARROWEST = 60_000_000  # a slot is at least a minute, so that a short gap does not make thousands of files
_SLOTS = 4  # into how many slots the time is cut for which a session is kept


@dataclass(frozen=True)
class Stretch:
    """How far the frontier went."""

    before: int
    now: int

    def reached(self, times: Longs, later: int) -> Mask:
        """Which of the times + later the frontier has reached now and not before."""
        return np.asarray((times + later > self.before) & (times + later <= self.now))


@dataclass(frozen=True)
class Looked:
    """The sessions of all keys that may have something to say, as they are now; without those that were over before."""

    fragments: pa.Table
    fresh: Mask  # which fragments came in this epoch,
    leaving: Mask  # and which of them lie in slots that go now
    sessions: Sessions
    hashes: Hashes  # of the keys


class SessionState:
    def __init__(self, fragments: Fragments, allowed: int, slot_us: int | None = None) -> None:
        self._fragments, self._allowed = fragments, allowed
        self._reach = (fragments.gap if fragments.longest is None else fragments.longest) + allowed
        self.width = slot_us or max(self._reach // _SLOTS, _NARROWEST)
        keys = list(fragments.schema)[: len(fragments.by)]
        self._over_schema = pa.schema([*keys, pa.field(END, pa.int64()), pa.field(HASH, pa.uint64())])

    def slots_of(self, times: Longs) -> Longs:
        return times // np.int64(self.width) * np.int64(self.width)

    def look(self, state: State, new: pa.Table, stretch: Stretch, hashes: Hashes) -> Looked:
        """All sessions of these keys."""
        pieces, leaving = [new.filter(pa.array(among(numbers(new, HASH), hashes)))], []
        fresh = pieces[0].num_rows
        leaving.append(self._goes(self.slots_of(numbers(pieces[0], LAST)), stretch.now))
        for slot in state.slots(OPEN):
            for part in touched(state.runs(OPEN, slot), hashes):
                pieces.append(part.select(self._fragments.schema.names))
                leaving.append(np.full(part.num_rows, bool(self._goes(np.array([slot]), stretch.now)[0])))
        fragments, goes = pa.concat_tables(pieces), np.concatenate(leaving)
        came = np.arange(fragments.num_rows) < fresh
        counts = self._counts(state, fragments, hashes)
        if counts is not None and not counts.all():
            fragments, goes, came = fragments.filter(pa.array(counts)), goes[counts], came[counts]
        sessions = self._fragments.sessions(fragments, stretch.before - self._allowed)
        return Looked(fragments, came, goes, sessions, hashes)

    def concerned(self, state: State, new: pa.Table, stretch: Stretch, later: Sequence[int]) -> Hashes:
        """The hashes of keys with a fragment whose last time + one of `later` the frontier reached, or whose slot goes."""
        later = later if self._fragments.longest is None else [*later, self._reach]
        found = [self._reached(new, stretch, later)]
        if self._fragments.longest is None:
            found.append(numbers(new, HASH)[self._goes(self.slots_of(numbers(new, LAST)), stretch.now)])
        for slot in state.slots(OPEN):
            if self._fragments.longest is None and self._goes(np.array([slot]), stretch.now)[0]:
                found += [numbers(run, HASH) for run in state.runs(OPEN, slot)]
            elif any(slot + d <= stretch.now and slot + self.width + d > stretch.before for d in later):
                found += [self._reached(run, stretch, later) for run in state.runs(OPEN, slot)]
        return np.unique(np.concatenate(found))

    def everything(self, state: State, new: pa.Table) -> Hashes:
        runs = [run for slot in state.slots(OPEN) for run in state.runs(OPEN, slot)]
        return np.unique(np.concatenate([numbers(run, HASH) for run in [new, *runs]]))

    def changes(self, state: State, new: pa.Table, looked: Looked, stretch: Stretch) -> Changes:
        """The new fragments are kept, those of sessions that live on are brought along, what is over goes."""
        stays = ~self._goes(self.slots_of(numbers(new, LAST)), stretch.now)
        kept = [new if stays.all() else new.filter(pa.array(stays))]
        changes = Changes()
        if self._fragments.longest is None:
            kept.append(self._brought_along(looked, stretch.now))
        else:
            over = self._over(looked, stretch.now)
            changes.add |= self._filed(OVER, over, numbers(over, END), stretch.now)
        fragments = pa.concat_tables(kept)
        changes.add |= self._filed(OPEN, fragments, numbers(fragments, LAST), stretch.now)
        for table in (OPEN, OVER):
            changes.drop |= {(table, slot) for slot in state.slots(table) if self._goes(np.array([slot]), stretch.now)[0]}
        return changes

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return sorted_by_hash(self._fragments.together(runs) if table == OPEN else self._last_over(runs))

    def dead(self, ends: Longs, frontier: int) -> Mask:
        """Which sessions are over."""
        return np.asarray(ends + self._allowed <= frontier)

    def _goes(self, slots: Longs, now: int) -> Mask:
        return np.asarray(slots + (self.width + self._reach) <= now)

    def _filed(self, table: str, rows: pa.Table, times: Longs, now: int) -> dict[tuple[str, int], pa.Table]:
        runs = by_start(table, rows, self.slots_of(times))
        return {place: run for place, run in runs.items() if not self._goes(np.array([place[1]]), now)[0]}

    def _reached(self, fragments: pa.Table, stretch: Stretch, later: Sequence[int]) -> Hashes:
        lasts = numbers(fragments, LAST)
        found = np.zeros(len(lasts), np.bool_)
        for d in later:
            found |= stretch.reached(lasts, d)
        return np.asarray(numbers(fragments, HASH)[found])

    def _brought_along(self, looked: Looked, now: int) -> pa.Table:
        """Fragments in slots that go, of sessions that do not, as long as the session."""
        sessions = looked.sessions
        mine = looked.leaving & (sessions.of >= 0)
        mine[mine] = ~self.dead(sessions.ends, now)[sessions.of[mine]]
        if not mine.any():
            return self._fragments.schema.empty_table()
        of, firsts, lasts = sessions.of[mine], numbers(sessions.rows, FIRST), numbers(sessions.rows, LAST)
        return self._fragments.folded(looked.fragments.filter(pa.array(mine)), of, firsts, lasts)

    def _counts(self, state: State, fragments: pa.Table, hashes: Hashes) -> Mask | None:
        """Which fragments do not lie before the end of the last session of their key that is over."""
        runs = [run for slot in state.slots(OVER) for run in touched(state.runs(OVER, slot), hashes)]
        if not runs:
            return None
        by = list(self._fragments.by)
        mine, over = frame_of(fragments.select([*by, HASH, LAST])), frame_of(self._last_over(runs))
        joined = mine.join(over, on=[*by, HASH], how="left", nulls_equal=True, maintain_order="left")
        return joined.select(pl.col(END).is_null() | (pl.col(LAST) >= pl.col(END))).to_series().to_numpy()

    def _over(self, looked: Looked, now: int) -> pa.Table:
        sessions = looked.sessions
        over = self.dead(sessions.ends, now)
        rows = sessions.rows.select([*self._fragments.by, HASH]).filter(pa.array(over))
        return self._last_over([rows.append_column(END, pa.array(sessions.ends[over])).select(self._over_schema.names)])

    def _last_over(self, runs: Sequence[pa.Table]) -> pa.Table:
        together = frame_of(pa.concat_tables(runs))
        return stored(together.group_by(*self._fragments.by, HASH).agg(pl.col(END).max()), self._over_schema)
