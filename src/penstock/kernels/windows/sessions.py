"""Sessions: rows of a key less than a gap apart become one row.

State: what session_state and filed keep. Nothing is looked at but keys that came and keys with something due.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.position import window_positions
from penstock.core.time import NEVER, micros
from penstock.kernels.aggregates.partials import frame_of
from penstock.kernels.aggregates.unanswered import parted, stepped, with_failed
from penstock.kernels.changes import SENT
from penstock.kernels.column_names import FIRST, NUMBER, START
from penstock.kernels.columns import as_type, column, numbers, travelling
from penstock.kernels.judging import behind_their_watermark
from penstock.kernels.port import Prepared, State, Stepped
from penstock.kernels.windows import corrections
from penstock.kernels.windows.fragments import Fragments, whole
from penstock.kernels.windows.sent_sessions import SentSessions
from penstock.kernels.windows.session_state import END, Looked, SessionState, Stretch, distinct
from penstock.plan import Session

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]


class SessionKernel:
    """A session is [first, last + gap), at most `longest` long; it is complete when F >= its end."""

    gives_position = True

    def __init__(self, session: Session, input_schema: pa.Schema, output_schema: pa.Schema, *, slot_us: int | None = None) -> None:
        """slot_us: how wide a slot of state is (state cannot change it)."""
        self._by, self._late, self._output = tuple(session.by), session.late, output_schema
        self._corrects = session.late == "correct"
        self._allowed = micros(session.allowed) if self._corrects else 0
        self._updates, self._early = session.emit == "updates", micros(session.early) if session.early is not None else None
        self._updating = self._updates or self._corrects or self._early is not None
        longest = micros(session.longest) if session.longest is not None else None
        self._fragments = Fragments(self._by, micros(session.gap), longest, session.aggregates, input_schema, self._corrects)
        whole = self._fragments.aggregation.needs_position
        self.needs_position: bool | Literal["late"] = whole or ("late" if self._corrects else False)
        self._state = SessionState(self._fragments, self._allowed, slot_us)
        values = [name for name in output_schema.names if name != "cause"]
        self._sent = SentSessions([*self._by, START], values, self._state.width, self._allowed)
        self._nothing = travelling(output_schema).empty_table()
        self._due = [] if self._updates else [d for d in (self._fragments.gap, longest) if d is not None]

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Judges rows; those that count become fragments."""
        behind = behind_their_watermark(rows)
        if not behind.any():
            return Prepared(self._shortened([self._of_rows(rows)]), None, +Counter({"on time": rows.num_rows}))
        corrects = np.zeros(rows.num_rows, np.bool_)
        if self._corrects:
            corrects = behind & (numbers(rows, TIME) + self._allowed >= numbers(rows, WATERMARK))
        refused = behind & ~corrects
        pieces = [self._of_rows(rows, ~behind), self._of_rows(rows, corrects, late=True)]
        counts = [int(np.count_nonzero(mask)) for mask in (~behind, corrects, refused)]
        kinds = ("on time", "corrected", "ignored" if self._late == "ignore" else "diverted")
        fates = Counter(dict(zip(kinds, counts, strict=True)))
        diverted = rows.filter(pa.array(refused)) if counts[2] and self._late != "ignore" else None
        return Prepared(self._shortened(pieces), diverted, +fates)

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        new = self._shortened([rows[0]] if rows[0] is not None else [])
        stretch = Stretch(state.before(), frontiers[0])
        ticked = self._early is not None and state.ticked(self._early)
        looked = self._state.look(state, new, stretch, self._hashes(state, new, stretch, everything=ticked))
        changes = self._state.changes(state, new, looked, stretch)
        ends = looked.sessions.ends
        if not self._updating:
            return stepped(self._results(*self._chosen(looked, stretch.reached(ends, 0))), changes)
        shown = np.ones(len(ends), np.bool_) if self._updates or ticked else ends <= stretch.now
        sent = self._sent.of(state, looked.hashes, stretch.before)
        there = self._there(looked) if self._early is not None and not ticked else None
        wanted, failed = parted(self._wanted(looked, shown, sent))
        out = self._sent.change(changes, sent, wanted, there, stretch.now, failed)
        changes.drop |= self._sent.drop(state, stretch.now)
        return Stepped(out.drop_columns([START]), changes, failed=failed)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return self._sent.merge(runs) if table == SENT else self._state.merge(table, runs)

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        before, none = state.before(), self._fragments.schema.empty_table()
        stretch = Stretch(before, before)
        looked = self._state.look(state, none, stretch, self._state.everything(state, none))
        return parted(self._results(*self._chosen(looked, looked.sessions.ends > before)))[0]

    def _of_rows(self, rows: pa.Table, mine: Mask | None = None, *, late: bool = False) -> pa.Table:
        """Fragments of my rows; None: all are."""
        if mine is not None and not mine.any():
            return self._fragments.schema.empty_table()
        if mine is not None:
            aggregation = self._fragments.aggregation
            place = [POSITION] if late or aggregation.needs_position else []
            rows = rows.select(list(dict.fromkeys([*self._by, *aggregation.columns, TIME, *place]))).filter(pa.array(mine))
        return self._fragments.of_rows(rows, late=late) if rows.num_rows else self._fragments.schema.empty_table()

    def _shortened(self, pieces: Sequence[pa.Table]) -> pa.Table:
        """Fragments brought together where that makes them much fewer. Instants mostly are what they are."""
        if self._fragments.longest is not None:
            return whole(pieces) if pieces else self._fragments.schema.empty_table()
        return self._fragments.together(pieces, worth=2)

    def _hashes(self, state: State, new: pa.Table, stretch: Stretch, *, everything: bool) -> Hashes:
        """Of the keys to look at."""
        if everything:
            return self._state.everything(state, new)
        due = self._state.concerned(state, new, stretch, self._due)
        return distinct([due, numbers(new, HASH)]) if self._updating else due

    def _chosen(self, looked: Looked, chosen: Mask) -> tuple[pa.Table, Longs]:
        """Partial results of the chosen sessions, and their ends."""
        partials, which = self._state.rows(looked, chosen)
        return partials, looked.sessions.ends[which]

    def _wanted(self, looked: Looked, shown: Mask, sent: pa.Table | None) -> pa.Table:
        """The rows to be shown, as they are compared with what was sent."""
        partials, which = self._state.rows(looked, shown)
        ends = looked.sessions.ends[which]
        rows = self._results(partials, ends)
        rows = rows.append_column(START, partials[FIRST]).append_column(END, pa.array(ends)).append_column(HASH, partials[HASH])
        if self._corrects:
            causes = self._causes(looked, partials, which, self._sent.revisions(sent, rows))
            rows = rows.set_column(rows.column_names.index("cause"), "cause", causes)
        return rows

    def _causes(self, looked: Looked, partials: pa.Table, which: Longs, known: Longs) -> pa.Array:
        """Which late rows came since a session was sent; all of its late rows where it is not known which they were: it was not
        sent when some came, or it was made of two."""
        total = numbers(partials, corrections.LATE)
        revised = total > np.maximum(known, 0)
        if not revised.any():
            return pa.nulls(len(total), corrections.TYPE)
        mine = looked.fresh & (looked.sessions.of >= 0)
        came = frame_of(looked.fragments.select([corrections.LATE, corrections.CAUSE]).filter(pa.array(mine)))
        fresh = came.group_by(pl.Series(NUMBER, looked.sessions.of[mine])).agg(corrections.folding())
        wanted = pl.DataFrame({NUMBER: which[revised]})
        found = wanted.join(fresh, on=NUMBER, how="left", maintain_order="left")
        new = known[revised] + found[corrections.LATE].fill_null(0).to_numpy()
        since = np.where(new == total[revised], known[revised], -1)
        positions = found[corrections.CAUSE].to_arrow(compat_level=pl.CompatLevel.oldest())
        causes = corrections.causes(partials.filter(pa.array(revised)), since, positions)
        return corrections.spread(causes, revised)

    def _there(self, looked: Looked) -> pa.Table:
        """Names and ends of all sessions."""
        sessions = looked.sessions
        names, _ = self._state.names(looked, np.ones(len(sessions.ends), np.bool_))
        return names.append_column(START, pa.array(sessions.firsts)).append_column(END, pa.array(sessions.ends))

    def _results(self, partials: pa.Table, ends: Longs) -> pa.Table:
        if not len(ends):
            return self._nothing
        starts = numbers(partials, FIRST)
        made: dict[str, Any] = {"window_start": pa.array(starts), "window_end": pa.array(ends)}
        made["revision"] = column(partials, corrections.LATE) if self._corrects else pa.array(np.zeros(len(ends), np.int64))
        made["cause"] = pa.nulls(len(ends), corrections.TYPE)
        made |= {name: column(partials, name) for name in self._by}
        made |= self._fragments.aggregation.results(partials, (ends - starts) / 1e6)
        columns = {f.name: as_type(made[f.name], f.type) for f in self._output}
        columns |= {TIME: pa.array(ends - 1), WATERMARK: pa.array(np.full(len(ends), NEVER))}
        columns[POSITION] = window_positions([column(partials, name) for name in self._by], starts)
        return with_failed(pa.table(columns, schema=self._nothing.schema), made)


def build(session: Session, inputs: Sequence[pa.Schema], output: pa.Schema) -> SessionKernel:
    return SessionKernel(session, inputs[0], output)
