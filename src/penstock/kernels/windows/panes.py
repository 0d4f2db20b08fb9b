"""Fixed windows that overlap, are corrected, or are sent before they are complete.

Rows are added up per pane, so that overlap costs nothing per row; a window is the sum of its panes. Rows that count for some
windows of their pane alone, and rows that correct one, are kept apart, per window.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.columns import HASH, INDEX
from penstock.kernels.aggregates.partials import joinable
from penstock.kernels.aggregates.unanswered import parted, stepped
from penstock.kernels.changes import SENT, among, net_changes, newest, newest_of_all, touched
from penstock.kernels.column_names import START
from penstock.kernels.columns import column, numbers
from penstock.kernels.judging import Verdicts
from penstock.kernels.port import Changes, State, Stepped
from penstock.kernels.windows import corrections
from penstock.kernels.windows.final import OPEN, WindowKernel, by_start
from penstock.plan import Aggregate, Late
from penstock.plan.layouts import Layout

Longs = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

APART = "apart"
IS_APART = "__apart"


class PaneKernel(WindowKernel):
    """State: "open" one slot a pane, "apart" and "sent" one slot a window. A slot goes when F >= end + allowed."""

    def __init__(
        self,
        by: Sequence[str],
        layout: Layout,
        aggregates: Sequence[Aggregate],
        late: Late,
        input_schema: pa.Schema,
        output_schema: pa.Schema,
        allowed_us: int = 0,
        emit: Literal["final", "updates"] = "final",
        early_us: int | None = None,
    ) -> None:
        super().__init__(by, layout, aggregates, late, input_schema, output_schema, allowed_us)
        self._updates, self._early = emit == "updates", early_us
        self._updating = self._updates or late == "correct" or early_us is not None
        self.needs_position = self.needs_position or ("late" if late == "correct" else False)
        rich = [*corrections.FIELDS, pa.field(IS_APART, pa.bool_())]
        self._partials = pa.schema([*list(self._partials)[:-1], *rich, self._partials.field(HASH)])
        self._key = [*self._by, START]
        self._values = [name for name in output_schema.names if name != "cause"]

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        new = self._folded_by([*self._key, IS_APART], [rows[0]] if rows[0] is not None else [], [HASH])
        before, now = state.before(), frontiers[0]
        folded = self._looked_at(state, new, before, now)
        changes = Changes(self._kept(new, now), self._over(state, now))
        if not self._updating:
            return stepped(self._results(folded), changes)
        out, sent, failed = self._changed(state, folded, new, now)
        run = by_start(SENT, sent, numbers(sent, START))
        changes.add |= {place: part for place, part in run.items() if not self._is_over(place[1], now, window=True)}
        return Stepped(out, changes, failed=failed)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return newest_of_all(runs, self._key) if table == SENT else super().merge(table, runs)

    def open_rows(self, state: State) -> pa.Table | None:
        before = state.before()
        panes = [self._spread(run) for slot in state.slots(OPEN) for run in state.runs(OPEN, slot)]
        folded = self._fold(panes + [run for slot in state.slots(APART) for run in state.runs(APART, slot)])
        return parted(self._results(folded.filter(pa.array(self._layout.ends(numbers(folded, START)) > before))))[0]

    def _counted(self, rows: pa.Table, verdicts: Verdicts) -> pa.Table:
        pieces = [super()._counted(rows, verdicts)] if verdicts.whole is None or verdicts.whole.any() else []
        for corrects in (False, True):
            mine = verdicts.corrected == corrects
            if mine.any():
                pieces.append(self._single(rows.take(verdicts.rows[mine]), verdicts.starts[mine], corrects))
        return pa.concat_tables([self._partials.empty_table(), *pieces])

    def _partial(self, rows: pa.Table, starts: Longs) -> pa.Table:
        return self._rich(corrections.none(super()._partial(rows, starts)), apart=False)

    def _single(self, rows: pa.Table, starts: Longs, corrects: bool) -> pa.Table:
        """Rows, each with a window that it counts for."""
        partial = super()._partial(rows, starts)
        partial = corrections.with_late_rows(partial, rows, self._by, starts, START) if corrects else corrections.none(partial)
        return self._rich(partial, apart=True)

    def _rich(self, partial: pa.Table, *, apart: bool) -> pa.Table:
        return partial.append_column(IS_APART, pa.array(np.full(partial.num_rows, apart))).select(self._partials.names)

    def _fold(self, pieces: Sequence[pa.Table]) -> pa.Table:
        return self._folded_by(self._key, pieces, [IS_APART, HASH])

    def _folded_by(self, keys: list[str], pieces: Sequence[pa.Table], kept: list[str]) -> pa.Table:
        together = pa.concat_tables([self._partials.empty_table(), *(piece.select(self._partials.names) for piece in pieces)])
        if together.num_rows < 2:
            return together
        return self._aggregation.fold(together, keys, kept, corrections.folding())

    def _spread(self, partials: pa.Table) -> pa.Table:
        """Partial results of panes as those of all their windows."""
        if self._layout.single:
            return partials
        rows, starts = self._layout.windows(numbers(partials, START))
        return partials.take(rows).set_column(self._partials.names.index(START), START, pa.array(starts))

    def _looked_at(self, state: State, new: pa.Table, before: int, now: int) -> pa.Table:
        """Folded partial results of the windows that may have something to say: those that are complete now and, where changes
        are sent, those of the keys that came."""
        fresh = self._per_window(new)
        everything = self._early is not None and state.ticked(self._early)
        hashes = np.unique(numbers(new, HASH)) if self._updating else np.empty(0, np.uint64)
        came = set(np.unique(numbers(fresh, START)).tolist()) if self._updating else set()
        pieces = [fresh]
        for table in (OPEN, APART):
            for slot in state.slots(table):
                starts = self._layout.windows(np.array([slot]))[1] if table == OPEN else np.array([slot])
                whole = everything or bool(self._complete(starts, before, now).any())
                if whole or not came.isdisjoint(starts.tolist()):
                    runs = state.runs(table, slot) if whole else touched(state.runs(table, slot), hashes)
                    pieces += [self._spread(run) if table == OPEN else run for run in runs]
        folded = self._fold(pieces)
        starts = numbers(folded, START)
        wanted = self._complete(starts, before, now)
        if everything:
            wanted = np.ones(len(starts), np.bool_)
        elif self._updating:
            wanted |= np.isin(starts, np.fromiter(came, np.int64, len(came))) & among(numbers(folded, HASH), hashes)
        return folded if wanted.all() else folded.filter(pa.array(wanted))

    def _per_window(self, new: pa.Table) -> pa.Table:
        if self._layout.single:
            return new
        apart = new[IS_APART].to_numpy()
        return pa.concat_tables([self._spread(new.filter(pa.array(~apart))), new.filter(pa.array(apart))])

    def _complete(self, starts: Longs, before: int, now: int) -> npt.NDArray[np.bool_]:
        ends = self._layout.ends(starts)
        return np.asarray((ends > before) & (ends <= now))

    def _changed(self, state: State, folded: pa.Table, new: pa.Table, now: int) -> tuple[pa.Table, pa.Table, pa.Table | None]:
        """What to send, what is then known as sent, and the windows without a result: what was sent of them is taken back."""
        starts = numbers(folded, START)
        shown = np.ones(len(starts), np.bool_)
        if not self._updates and not (self._early is not None and state.ticked(self._early)):
            shown = self._layout.ends(starts) <= now
        wanted = folded if shown.all() else folded.filter(pa.array(shown))
        hashes = np.unique(numbers(wanted, HASH))
        slots = set(np.unique(numbers(wanted, START)).tolist())
        runs = [run for slot in state.slots(SENT) if slot in slots for run in touched(state.runs(SENT, slot), hashes)]
        sent = newest(runs, self._key)
        rows = self._results(wanted)
        if self._late == "correct":
            rows = rows.set_column(rows.column_names.index("cause"), "cause", self._causes(wanted, sent, new))
        rows = rows.append_column(START, wanted[START]).append_column(HASH, wanted[HASH])
        if sent is not None:
            sent = _those_of(sent, rows, self._key)
        good, failed = parted(rows)
        out, run = net_changes(sent, good, self._key, self._values)
        return out.drop_columns([START]), run, failed

    def _causes(self, wanted: pa.Table, sent: pa.Table | None, new: pa.Table) -> pa.Array:
        """Which late rows came since each result was last sent; null where there are none."""
        corrected = numbers(wanted, corrections.LATE) > 0
        if not corrected.any():
            return pa.nulls(wanted.num_rows, corrections.TYPE)
        causes = self._late_causes(wanted.filter(pa.array(corrected)), sent, new)
        return corrections.spread(causes, corrected)

    def _late_causes(self, wanted: pa.Table, sent: pa.Table | None, new: pa.Table) -> pa.Array:
        fresh = joinable(new.filter(new[IS_APART]), self._key, corrections.CAUSE)
        came = joinable(wanted, self._key).join(fresh, on=self._key, how="left", nulls_equal=True, maintain_order="left")
        positions = came[corrections.CAUSE].to_arrow(compat_level=pl.CompatLevel.oldest())
        return corrections.causes(wanted, corrections.revisions(sent, wanted, self._key), positions)

    def _revisions(self, partials: pa.Table) -> dict[str, Any]:
        revisions: dict[str, Any] = {"revision": column(partials, corrections.LATE)}
        return revisions | ({"cause": pa.nulls(partials.num_rows, corrections.TYPE)} if self._late == "correct" else {})

    def _kept(self, new: pa.Table, now: int) -> dict[tuple[str, int], pa.Table]:
        """The new partial results as runs, without what is over."""
        apart = new[IS_APART].to_numpy(zero_copy_only=False)
        kept: dict[tuple[str, int], pa.Table] = {}
        for table, mine in ((OPEN, ~apart), (APART, apart)):
            rows = new.filter(pa.array(mine))
            runs = by_start(table, rows, numbers(rows, START))
            kept |= {place: run for place, run in runs.items() if not self._is_over(place[1], now, window=table == APART)}
        return kept

    def _over(self, state: State, now: int) -> set[tuple[str, int]]:
        tables = (OPEN, APART, SENT)
        return {(t, slot) for t in tables for slot in state.slots(t) if self._is_over(slot, now, window=t != OPEN)}

    def _is_over(self, slot: int, now: int, *, window: bool) -> bool:
        end = int(self._layout.ends(np.array([slot]))[0]) if window else self._layout.last_end(slot)
        return end + self._allowed <= now


def _those_of(sent: pa.Table, wanted: pa.Table, key: list[str]) -> pa.Table:
    """The sent rows whose key is wanted: a window that was sent stays sent."""
    mine = joinable(sent, key).with_row_index(INDEX)
    kept = mine.join(joinable(wanted, key), on=key, how="semi", nulls_equal=True, maintain_order="left")[INDEX]
    return sent.take(kept.to_arrow())
