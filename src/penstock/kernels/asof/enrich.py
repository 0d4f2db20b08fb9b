"""Enrich: each row of a stream with the version of a table's row that it sees.

A version is seen by rows with t >= max(its time, M - allowed), where M is the mark that the answers of the epochs before left on
the table. State: the versions (kernels/asof/versions.py), rows that wait to be answered (kernels/waiting_rows.py), and those whose
answers may still change (kernels/asof/answered_rows.py).
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa

from penstock.core.change import Op
from penstock.core.columns import ADDRESS, APPEND_TIME, HASH, OP, POSITION, TIME, WATERMARK
from penstock.core.hashing import hash64
from penstock.core.time import FOREVER, NEVER, micros
from penstock.kernels.asof.answered_rows import AnsweredRows
from penstock.kernels.asof.answers import Answers
from penstock.kernels.asof.versions import VERSIONS, Mask, Versions, without_null
from penstock.kernels.changes import differences
from penstock.kernels.columns import numbers, sorted_by_hash
from penstock.kernels.keyed import Longs
from penstock.kernels.port import Changes, Fates, Prepared, State, Stepped
from penstock.kernels.waiting_rows import WaitingRows
from penstock.plan import Enrich

_LONGEST = FOREVER // 2  # a longer span means the same, and could overflow


class EnrichKernel:
    """Rows keep their time, watermark and position. It judges nothing; a row with t < W - history is too old to see a version."""

    gives_position = True

    def __init__(
        self,
        enrich: Enrich,
        stream_schema: pa.Schema,
        table_schema: pa.Schema,
        output_schema: pa.Schema,
        *,
        held: WaitingRows | None = None,
        slot_us: int | None = None,
    ) -> None:
        self._on, self._inner, self._correct = list(enrich.on), enrich.how == "inner", enrich.correct
        self._clock = APPEND_TIME if enrich.as_of == "now" else TIME
        self._allowed = _micros(enrich.allowed) if enrich.correct else 0
        self._wait = None if enrich.wait is None else _micros(enrich.wait)
        self._history = None if enrich.history is None else _micros(enrich.history)
        self._versions = Versions(enrich.key, [own for _, own in enrich.right], table_schema, self._clock)
        self._held = held or WaitingRows("held", self._wait or 0)
        self._answered = AnsweredRows(self._clock, self._allowed, slot_us)
        self._answers = Answers(enrich, output_schema)
        names = dict.fromkeys([*self._answers.of_the_stream, *self._on])
        self._stream = pa.schema([stream_schema.field(name).with_nullable(True) for name in names])

    @property
    def keeps_order(self) -> bool:
        """Rows that do not wait come out as they came in; answers that change are no longer rows of the log."""
        return self._wait is None and not self._correct

    @property
    def needs_position(self) -> tuple[bool, bool]:
        return self._correct or self.gives_position, True

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Rows and versions on their way to the bucket of their key."""
        if port == 1:
            return Prepared(self._versions.prepare(rows), fates=+Counter(version=rows.num_rows))
        system = [TIME, WATERMARK, *([POSITION] if self.needs_position[0] else []), APPEND_TIME]
        system += [ADDRESS] if self.keeps_order else []
        taken = rows.select(self._stream.names).cast(self._stream)
        for name in system:
            if name in rows.column_names:
                taken = taken.append_column(name, rows[name])
        return Prepared(taken.append_column(HASH, pa.array(hash64([taken[name] for name in self._on], taken.num_rows))))

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        now, changes = frontiers[0], Changes()
        due = self._due(state, rows[0], now, changes)
        came = self._versions.came(rows[1], state.answered - self._allowed, self._horizon(state, now))
        if came.num_rows:
            changes.add[VERSIONS, 0] = self._versions.merge([came])
        again = self._again(state, came)
        versions = self._seen(state, [*due, *again], came)
        out, fates = [self._empty()], Counter(held=(rows[0].num_rows if rows[0] else 0) - sum(r.num_rows for r in due))
        for part in again:
            out.append(self._changed(part, versions, versions.num_rows - came.num_rows, fates))
        answered = NEVER
        for part in due:
            out.append(self._first(part, versions, fates))
            answered = max(answered, int(numbers(part, self._clock).max()) + 1)
        if self._correct:
            self._remember(state, due, max(answered, state.answered) - self._allowed, changes)
        counts = Counter({fate: n for fate, n in fates.items() if n})
        return Stepped(pa.concat_tables(out, promote_options="default"), changes, counts, answered=answered)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return self._versions.merge(runs) if table == VERSIONS else sorted_by_hash(pa.concat_tables(runs))

    def frontier(self, frontiers: Sequence[int]) -> int:
        """A row may be held for `wait`. What is endless stays so."""
        least = frontiers[0]
        return least if least in (NEVER, FOREVER) else least - (self._wait or 0)

    def open_rows(self, state: State) -> pa.Table | None:
        """The rows that wait, as they would be answered now."""
        if self._wait is None:
            return None
        held = self._due(state, None, FOREVER, Changes())
        versions = self._seen(state, held, self._versions.schema.empty_table())
        answers = [self._joined(part, self._answer(part, versions), versions) for part in held]
        return pa.concat_tables([self._answers.empty(self.gives_position), *answers], promote_options="default")

    def _due(self, state: State, new: pa.Table | None, now: int, changes: Changes) -> list[pa.Table]:
        """The rows to be answered, as one table or none."""
        new = new.combine_chunks() if new is not None and new.num_rows else None
        if self._wait is None:
            return [new] if new is not None else []
        due = self._held.advance(state, new, now, changes)
        return [pa.concat_tables(due).combine_chunks()] if due else []

    def _again(self, state: State, came: pa.Table) -> list[pa.Table]:
        """The rows that were answered and may see one of the versions that came, as one table or none."""
        if not self._correct or not came.num_rows:
            return []
        found = self._answered.again(state, numbers(came, HASH), self._versions.first_seen(came))
        return [pa.concat_tables(found).combine_chunks()] if found else []

    def _seen(self, state: State, rows: Sequence[pa.Table], came: pa.Table) -> pa.Table:
        """The versions that these rows may see: those that were known before, then those that came."""
        if not rows:
            return came
        known = self._versions.known(state, [numbers(part, HASH) for part in rows])
        return pa.concat_tables([known, came]).combine_chunks() if came.num_rows else known

    def _horizon(self, state: State, now: int) -> int:
        """No row that is answered after this epoch is older. As of now there is none: append times have no frontier."""
        if self._history is None or self._clock != TIME:
            return NEVER
        coming = now - max(self._history, self._wait or 0)
        return min(coming, state.answered - self._allowed) if self._correct else coming

    def _too_old(self, rows: pa.Table) -> Mask:
        if self._history is None:
            return np.zeros(rows.num_rows, np.bool_)
        return np.asarray(numbers(rows, TIME) < numbers(rows, WATERMARK) - np.int64(self._history))

    def _may_see(self, rows: pa.Table) -> Mask:
        return ~self._too_old(rows) & without_null(rows, self._on)

    def _answer(self, rows: pa.Table, versions: pa.Table) -> Longs:
        """For each row the number of the version that it sees, or -1."""
        may = self._may_see(rows)
        times = numbers(rows, self._clock)
        if may.all():
            return self._versions.look_up(versions, rows, self._on, times)
        found = np.full(rows.num_rows, -1)
        found[may] = self._versions.look_up(versions, rows.filter(pa.array(may)), self._on, times[may])
        return found

    def _first(self, rows: pa.Table, versions: pa.Table, fates: Fates) -> pa.Table:
        """Rows that are answered for the first time."""
        found = self._answer(rows, versions)
        old = int(np.count_nonzero(self._too_old(rows)))
        lonely = int(np.count_nonzero(found < 0)) - old if self._inner else 0
        fates.update({"too old": old, "unmatched": lonely, "answered": rows.num_rows - old - lonely})
        out = self._joined(rows, found, versions)
        return out.append_column(OP, pa.array(np.full(out.num_rows, Op.INSERT, np.int8))) if self._correct else out

    def _changed(self, rows: pa.Table, versions: pa.Table, known: int, fates: Fates) -> pa.Table:
        """What changes of the answers of rows, now that more versions than the first so many are known."""
        before, after = self._answer(rows, versions.slice(0, known)), self._answer(rows, versions)
        other = before != after
        rows, before, after = rows.filter(pa.array(other)), before[other], after[other]
        if self._inner:
            more = int(np.count_nonzero(after >= 0)) - int(np.count_nonzero(before >= 0))
            fates.update({"answered": more, "unmatched": -more})
        sent, wanted = (self._joined(rows, found, versions) for found in (before, after))
        return differences(sent, wanted, [POSITION], self._answers.of_the_table).changelog()

    def _joined(self, rows: pa.Table, found: Longs, versions: pa.Table) -> pa.Table:
        if self._inner:
            matched = found >= 0
            rows, found = rows.filter(pa.array(matched)), found[matched]
        return self._answers.joined(rows, found, versions, self.needs_position[0])

    def _remember(self, state: State, rows: Sequence[pa.Table], least: int, changes: Changes) -> None:
        """Rows are kept as long as a version that comes late may change their answers."""
        for part in rows:
            self._answered.keep(part.filter(pa.array(self._may_see(part))), least, changes)
        self._answered.forget(state, least, changes)

    def _empty(self) -> pa.Table:
        empty = self._answers.empty(self.needs_position[0])
        return empty.append_column(OP, pa.array([], pa.int8())) if self._correct else empty


def build(enrich: Enrich, inputs: Sequence[pa.Schema], output: pa.Schema) -> EnrichKernel:
    return EnrichKernel(enrich, inputs[0], inputs[1], output)


def _micros(span: timedelta) -> int:
    return min(micros(span), _LONGEST)
