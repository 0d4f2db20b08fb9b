"""Running aggregates: one row per key over all its rows so far, or over those since it was last silent for so long."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.position import window_positions
from penstock.core.time import FOREVER, NEVER, micros
from penstock.kernels.aggregates.unanswered import parted, with_failed
from penstock.kernels.changes import SENT, net_changes, newest, newest_of_all, touched
from penstock.kernels.column_names import LAST
from penstock.kernels.columns import as_type, column, numbers, sorted_by_hash
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.windows.final import OPEN
from penstock.kernels.windows.fragments import Fragments
from penstock.kernels.windows.sent_sessions import SentSessions
from penstock.kernels.windows.session_state import END, Looked, SessionState, Stretch, distinct
from penstock.plan import Running


class RunningKernel:
    """Every row of a key counts, whenever it comes.

    State, all in one slot: table "open", runs of partial results that are added up; table "sent"."""

    gives_position = True

    def __init__(self, running: Running, input_schema: pa.Schema, output_schema: pa.Schema, gap: int = FOREVER) -> None:
        """gap: how long a key may be silent without being begun anew."""
        self._by, self._output = tuple(running.by), output_schema
        self._name = list(self._by) or [HASH]
        self._fragments = Fragments(self._by, gap, None, running.aggregates, input_schema, False)
        self.needs_position = self._fragments.aggregation.needs_position

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        if not rows.num_rows:
            return Prepared(self._fragments.schema.empty_table())
        return Prepared(self._fragments.together([self._fragments.of_rows(rows)]), fates=Counter(passed=rows.num_rows))

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        new = self._fragments.together([rows[0]] if rows[0] is not None else [])
        hashes = distinct([numbers(new, HASH)])
        partials = self._fragments.together([new, *touched(state.runs(OPEN, 0), hashes)])
        sent = newest(touched(state.runs(SENT, 0), hashes), self._name)
        wanted, failed = parted(self._results(partials))
        out, run = net_changes(sent, wanted, self._name, [*self._output.names, TIME])
        added = {(OPEN, 0): sorted_by_hash(new), (SENT, 0): run}
        return Stepped(out, Changes({place: table for place, table in added.items() if table.num_rows}), failed=failed)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return newest_of_all(runs, self._name) if table == SENT else sorted_by_hash(self._fragments.together(runs))

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        """Everything it has to say is said."""
        return None

    def _results(self, partials: pa.Table) -> pa.Table:
        n = partials.num_rows
        made: dict[str, Any] = {name: column(partials, name) for name in self._by}
        made |= self._fragments.aggregation.results(partials)
        columns = {f.name: as_type(made[f.name], f.type) for f in self._output}
        columns |= {TIME: column(partials, LAST), WATERMARK: pa.array(np.full(n, NEVER))}
        columns[POSITION] = window_positions([column(partials, name) for name in self._by], np.zeros(n, np.int64))
        return with_failed(pa.table(columns | {HASH: column(partials, HASH)}), made)


class KeptKernel(RunningKernel):
    """A key's rows count as long as it is not silent for `keep`; when F >= its last row + 2 keep, it goes.

    Rows of a key less than `keep` apart are a session, and the newest one is shown. A row with t + keep <= W(r) is too old and
    changes nothing: so what is still taken lies behind everything that has gone. State as that of sessions."""

    def __init__(
        self, running: Running, input_schema: pa.Schema, output_schema: pa.Schema, keep: int, *, slot_us: int | None = None
    ) -> None:
        super().__init__(running, input_schema, output_schema, keep)
        self._keep = keep
        self._state = SessionState(self._fragments, keep, slot_us)
        self._sent = SentSessions(self._name, [*output_schema.names, TIME], self._state.width, keep)

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        if WATERMARK not in rows.column_names:
            return super().prepare(port, rows)
        old = numbers(rows, TIME) + self._keep <= numbers(rows, WATERMARK)
        prepared = super().prepare(port, rows.filter(pa.array(~old)) if old.any() else rows)
        prepared.fates.update(+Counter({"too old": int(np.count_nonzero(old))}))
        return prepared

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        new = self._fragments.together([rows[0]] if rows[0] is not None else [])
        stretch = Stretch(state.before(), frontiers[0])
        silent = self._state.concerned(state, new, stretch, [2 * self._keep])
        looked = self._state.look(state, new, stretch, distinct([silent, numbers(new, HASH)]))
        changes = self._state.changes(state, new, looked, stretch)
        sent = self._sent.of(state, looked.hashes, stretch.before)
        shown, failed = parted(self.shown(looked, stretch.now))
        out = self._sent.change(changes, sent, shown, None, stretch.now)
        changes.drop |= self._sent.drop(state, stretch.now)
        return Stepped(out, changes, failed=failed)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return self._sent.merge(runs) if table == SENT else self._state.merge(table, runs)

    def shown(self, looked: Looked, now: int) -> pa.Table:
        """The newest session of each key, if it is not over."""
        sessions = looked.sessions
        newest_ = np.append(sessions.keys[1:] != sessions.keys[:-1], True)[: len(sessions.keys)]
        partials, which = self._state.rows(looked, newest_ & ~self._state.dead(sessions.ends, now))
        return self._results(partials).append_column(END, pa.array(sessions.ends[which]))


def build(running: Running, inputs: Sequence[pa.Schema], output: pa.Schema) -> RunningKernel:
    if running.keep is None:
        return RunningKernel(running, inputs[0], output)
    return KeptKernel(running, inputs[0], output, micros(running.keep))
