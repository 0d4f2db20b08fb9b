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

from penstock.core.columns import HASH
from penstock.kernels.aggregates.partials import frame_of, joinable
from penstock.kernels.changes import among, touched
from penstock.kernels.column_names import LAST
from penstock.kernels.columns import numbers, sorted_by_hash, stored
from penstock.kernels.port import Changes, State
from penstock.kernels.windows.final import OPEN, by_start
from penstock.kernels.windows.fragments import Fragments, Sessions, whole

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
    leaving: Mask  # and which lie in slots that go now
    sessions: Sessions
    hashes: Hashes  # of the keys, sorted


class SessionState:
    def __init__(self, fragments: Fragments, allowed: int, slot_us: int | None = None) -> None:
        self._fragments, self._allowed, self._cut = fragments, allowed, fragments.longest is not None
        self._reach = (fragments.gap if fragments.longest is None else fragments.longest) + allowed
        self.width = slot_us or max(self._reach // _SLOTS, _NARROWEST)
        keys = list(fragments.schema)[: len(fragments.by)]
        self._over_schema = pa.schema([*keys, pa.field(END, pa.int64()), pa.field(HASH, pa.uint64())])

    def concerned(self, state: State, new: pa.Table, stretch: Stretch, later: Sequence[int]) -> Hashes:
        """The hashes of keys with a fragment whose last time + one of `later` the frontier reached, or whose slot goes."""
        later = [*later, self._reach] if self._cut else later
        found = [self._reached(new, stretch, later)]
        if not self._cut:
            found.append(numbers(new, HASH)[self._goes(numbers(new, LAST), stretch.now)])
        for slot in state.slots(OPEN):
            if not self._cut and self._slot_goes(slot, stretch.now):
                found += [numbers(run, HASH) for run in state.runs(OPEN, slot)]
            elif any(slot + d <= stretch.now and slot + self.width + d > stretch.before for d in later):
                found += [self._reached(run, stretch, later) for run in state.runs(OPEN, slot)]
        return distinct(found)

    def everything(self, state: State, new: pa.Table) -> Hashes:
        """The hashes of all keys."""
        return distinct([numbers(run, HASH) for slot in state.slots(OPEN) for run in state.runs(OPEN, slot)] + [numbers(new, HASH)])

    def look(self, state: State, new: pa.Table, stretch: Stretch, hashes: Hashes) -> Looked:
        """All sessions of these keys."""
        pieces = [new.filter(pa.array(among(numbers(new, HASH), hashes)))]
        leaving = [self._goes(numbers(pieces[0], LAST), stretch.now)]
        for slot in state.slots(OPEN) if len(hashes) else ():
            parts = touched(state.runs(OPEN, slot), hashes)
            pieces += [part.select(self._fragments.schema.names) for part in parts]
            leaving += [np.full(part.num_rows, self._slot_goes(slot, stretch.now)) for part in parts]
        fragments, goes = whole(pieces), np.concatenate(leaving)
        fresh = np.arange(fragments.num_rows) < pieces[0].num_rows
        counts = self._counts(state, fragments, hashes)
        if counts is not None and not counts.all():
            fragments, fresh, goes = fragments.filter(pa.array(counts)), fresh[counts], goes[counts]
        return Looked(fragments, fresh, goes, self._fragments.sessions(fragments, stretch.before - self._allowed), hashes)

    def rows(self, looked: Looked, chosen: Mask) -> tuple[pa.Table, Longs]:
        """One fragment for each of the chosen sessions, and their numbers."""
        sessions = looked.sessions
        mine = np.append(chosen, False)[sessions.of]  # -1 is the last one
        taken = looked.fragments if mine.all() else looked.fragments.filter(pa.array(mine))
        if not taken.num_rows:
            return taken, sessions.of[mine]
        return self._fragments.folded(taken, sessions.of[mine], sessions.firsts, sessions.lasts)

    def names(self, looked: Looked, chosen: Mask) -> tuple[pa.Table, Longs]:
        """Key and HASH of the chosen sessions, and their numbers."""
        of = looked.sessions.of
        one = np.zeros(len(chosen) + 1, np.int64)
        one[of] = np.arange(len(of))
        which = np.flatnonzero(chosen)
        return looked.fragments.select([*self._fragments.by, HASH]).take(one[which]), which

    def changes(self, state: State, new: pa.Table, looked: Looked, stretch: Stretch) -> Changes:
        """The new fragments are kept, those of sessions that live on are brought along, what is over goes."""
        stays = ~self._goes(numbers(new, LAST), stretch.now)
        kept = [new if stays.all() else new.filter(pa.array(stays))]
        dead, changes = self.dead(looked.sessions.ends, stretch.now), Changes()
        if self._cut:
            over = self._over(looked, dead & ~self._goes(looked.sessions.ends, stretch.now))
            changes.add |= by_start(OVER, over, self._slots(numbers(over, END)))
        else:
            kept += self._brought_along(looked, dead)
        fragments = whole(kept)
        changes.add |= by_start(OPEN, fragments, self._slots(numbers(fragments, LAST)))
        for table in (OPEN, OVER):
            changes.drop |= {(table, slot) for slot in state.slots(table) if self._slot_goes(slot, stretch.now)}
        return changes

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return sorted_by_hash(self._fragments.together(runs) if table == OPEN else self._last_over(runs))

    def dead(self, ends: Longs, frontier: int) -> Mask:
        """Which sessions are over."""
        return np.asarray(ends + self._allowed <= frontier)

    def _slots(self, times: Longs) -> Longs:
        return times // np.int64(self.width) * np.int64(self.width)

    def _goes(self, times: Longs, now: int) -> Mask:
        """Which times lie in slots that go."""
        return np.asarray(self._slots(times) + (self.width + self._reach) <= now)

    def _slot_goes(self, slot: int, now: int) -> bool:
        return slot + self.width + self._reach <= now

    def _reached(self, fragments: pa.Table, stretch: Stretch, later: Sequence[int]) -> Hashes:
        lasts = numbers(fragments, LAST)
        found = np.zeros(len(lasts), np.bool_)
        for d in later:
            found |= stretch.reached(lasts, d)
        return np.asarray(numbers(fragments, HASH)[found])

    def _brought_along(self, looked: Looked, dead: Mask) -> list[pa.Table]:
        """Fragments in slots that go, of sessions that do not, as long as the session."""
        sessions = looked.sessions
        mine = looked.leaving & np.append(~dead, False)[sessions.of]
        if not mine.any():
            return []
        taken = looked.fragments.filter(pa.array(mine))
        return [self._fragments.folded(taken, sessions.of[mine], sessions.firsts, sessions.lasts)[0]]

    def _counts(self, state: State, fragments: pa.Table, hashes: Hashes) -> Mask | None:
        """Which fragments do not lie before the end of the last session of their key that is over."""
        runs = [run for slot in state.slots(OVER) for run in touched(state.runs(OVER, slot), hashes)]
        if not runs:
            return None
        key = [*self._fragments.by, HASH]
        mine, over = joinable(fragments, key, LAST), joinable(self._last_over(runs), key, END)
        joined = mine.join(over, on=key, how="left", nulls_equal=True, maintain_order="left")
        return joined.select(pl.col(END).is_null() | (pl.col(LAST) >= pl.col(END))).to_series().to_numpy()

    def _over(self, looked: Looked, dead: Mask) -> pa.Table:
        if not dead.any():
            return self._over_schema.empty_table()
        rows, which = self.names(looked, dead)
        return self._last_over([rows.append_column(END, pa.array(looked.sessions.ends[which]))])

    def _last_over(self, runs: Sequence[pa.Table]) -> pa.Table:
        together = frame_of(pa.concat_tables([run.select(self._over_schema.names) for run in runs]))
        return stored(together.group_by(*self._fragments.by, HASH).agg(pl.col(END).max()), self._over_schema)


def distinct(pieces: Sequence[Hashes]) -> Hashes:
    """Sorted, each once."""
    hashes = np.sort(np.concatenate(pieces))
    return np.asarray(hashes[np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]])
