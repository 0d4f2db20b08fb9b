"""Alerts over rows that change: the newest row of each key, with whether it fires.

That is what the rows that are there now say, in the order (time, position); one that comes, changes or goes in between is as if it
had been so from the start. State, each in one slot: table "rows", those rows; table "base", what the rows have left that cannot
change any more; table "sent". Of all of them the newest counts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import schema_of, table_of
from penstock.core.columns import HASH, OP, POSITION, TIME, WATERMARK
from penstock.core.hashing import hash64
from penstock.core.position import window_positions
from penstock.core.time import FOREVER, NEVER, micros
from penstock.kernels.alerts.firing import FIRED, RESOLVED, Firing
from penstock.kernels.changes import SENT, net_changes, newest, newest_of_all, touched
from penstock.kernels.columns import as_type, column, numbers, sorted_by_hash, travelling, with_plain
from penstock.kernels.keyed import in_order, key_numbers
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.tables.current import MARK, NAME, Current, Mark, name_hashes, signed, taken_back
from penstock.kernels.windows.session_state import distinct
from penstock.plan import AlertTable

ROWS, BASE = "rows", "base"
ALERT, SINCE = "alert", "since"

Longs = npt.NDArray[np.int64]


class Standing(NamedTuple):
    """What holds of a key behind one of its rows. word: None as long as no row has made it fire or not fire; since: when what goes
    on now began, or what did last, NEVER if it never fired."""

    firing: Firing = Firing()
    word: str | None = None
    since: int = NEVER

    def after(self, t: int, when: bool, resolve: bool) -> "Standing":
        firing, _ = self.firing.after(t, when, resolve, None)
        if firing.since > NEVER:
            return Standing(firing, FIRED, firing.since)
        return Standing(firing, RESOLVED if resolve else self.word, self.since)

    @classmethod
    def of(cls, word: str | None, since: int | None) -> "Standing":
        """The same from its row."""
        began = NEVER if since is None else since
        return cls(Firing(began, began, True) if word == FIRED else Firing(), word, began)


Last = dict[int, tuple[int, Standing]]  # of each key the number of its last row, and what holds behind it


class AlertTableKernel:
    """Rows come in any order, and are taken at once."""

    needs_position, gives_position = True, True

    def __init__(self, alert: AlertTable, input_schema: pa.Schema, output_schema: pa.Schema) -> None:
        self._alert, self._output, self._by = alert, output_schema, list(alert.by)
        self._settled = None if alert.settled is None else micros(alert.settled)
        self._names = alert.key or (POSITION,)
        self._rows, self._name = Current(NAME, self._names), [*self._by, HASH]
        self._read = [*input_schema.names, TIME, POSITION]
        self._shown = schema_of([*(f.with_nullable(True) for f in output_schema), (TIME, pa.int64()), (HASH, pa.uint64())])
        self._schema = travelling(output_schema, (OP, pa.int8()))

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        taken = with_plain(pa.table({name: column(rows, name) for name in self._read}), self._by)
        hashes = hash64([taken[name] for name in self._by], taken.num_rows)
        taken = signed(taken, taken_back(rows)).append_column(HASH, pa.array(hashes))
        taken = taken.append_column(NAME, pa.array(name_hashes(taken, self._names, hashes)))
        return Prepared(taken, fates=+Counter(passed=rows.num_rows))

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        if rows[0] is None or not rows[0].num_rows:
            return Stepped(self._schema.empty_table(), Changes())
        run = self._rows.run(rows[0])
        hashes = distinct([numbers(run, HASH)])
        columns = [name for name in run.column_names if name != MARK]
        there = self._rows.live([*state.runs(ROWS, 0), run], hashes, columns)
        there = run.slice(0, 0).select(columns) if there is None else there
        base = newest_of_all([*touched(state.runs(BASE, 0), hashes), self._shown.empty_table()], self._name)
        keys = key_numbers(pa.concat_tables([base.select(self._name), there.select(self._name)]), self._by)
        known, mine = keys[: base.num_rows], keys[base.num_rows :]
        order = in_order(there, mine)
        there, mine, before = there.take(order), mine[order], self._settled_before(frontiers[0])
        last, settled = self._walked(there, mine, _standings(base, known), before)
        untouched = base.filter(pa.array([key not in last for key in known.tolist()], pa.bool_()))
        wanted = pa.concat_tables([self._standing(there, last), untouched])
        sent = newest(touched(state.runs(SENT, 0), hashes), self._name)
        out, told = net_changes(sent, wanted, self._name, [*self._output.names, TIME])
        gone = there.filter(pa.array(numbers(there, TIME) < before)) if settled else there.slice(0, 0)
        added = {(ROWS, 0): self._without(run, gone), (SENT, 0): told, (BASE, 0): sorted_by_hash(self._standing(there, settled))}
        return Stepped(self._changelog(out), Changes({place: part for place, part in added.items() if part.num_rows}))

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return self._rows.merge(runs) if table == ROWS else newest_of_all(runs, self._name)

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        """Everything it has to say is said."""
        return None

    def _settled_before(self, frontier: int) -> int:
        """Rows before this time do not change any more, and none of them is still to come."""
        if self._settled is None or frontier == NEVER:
            return NEVER
        return frontier if frontier >= FOREVER else frontier - self._settled

    def _walked(self, rows: pa.Table, keys: Longs, standings: dict[int, Standing], before: int) -> tuple[Last, Last]:
        """rows: in their order. All of them, and those before this time."""
        last, settled = Last(), Last()
        columns = (numbers(rows, TIME).tolist(), rows[self._alert.when].to_pylist(), rows[self._alert.resolve].to_pylist())
        for at, (key, t, when, resolve) in enumerate(zip(keys.tolist(), *columns, strict=True)):
            standings[key] = standings.get(key, Standing()).after(t, bool(when), bool(resolve))
            last[key] = (at, standings[key])
            if t < before:
                settled[key] = last[key]
        return last, settled

    def _standing(self, rows: pa.Table, last: Mapping[int, tuple[int, Standing]]) -> pa.Table:
        taken = rows.take(pa.array([at for at, _ in last.values()], pa.int64()))
        since = [None if standing.since == NEVER else standing.since for _, standing in last.values()]
        made: dict[str, pa.Array] = {
            ALERT: pa.array([s.word for _, s in last.values()], pa.string()),
            SINCE: pa.array(since, pa.int64()),
        }
        columns: dict[str, Any] = {f.name: as_type(made[f.name], f.type) if f.name in made else taken[f.name] for f in self._shown}
        return table_of(columns, schema=self._shown)

    def _without(self, run: pa.Table, gone: pa.Table) -> pa.Table:
        """The run, and that these rows are gone from what is kept."""
        if not gone.num_rows:
            return run
        marked = gone.append_column(MARK, pa.array(np.full(gone.num_rows, Mark.GONE, np.int8)))
        return self._rows.merge([run, sorted_by_hash(marked.select(run.column_names))])

    def _changelog(self, rows: pa.Table) -> pa.Table:
        n = rows.num_rows
        rows = rows.append_column(WATERMARK, pa.array(np.full(n, NEVER)))
        positions = window_positions([column(rows, name) for name in self._by], np.zeros(n, np.int64))
        return rows.append_column(POSITION, positions).select(self._schema.names).cast(self._schema)


def _standings(base: pa.Table, keys: Longs) -> dict[int, Standing]:
    columns = (keys.tolist(), base[ALERT].to_pylist(), as_type(base[SINCE], pa.int64()).to_pylist())
    return {key: Standing.of(word, since) for key, word, since in zip(*columns, strict=True)}


def build(alert: AlertTable, inputs: Sequence[pa.Schema], output: pa.Schema) -> AlertTableKernel:
    return AlertTableKernel(alert, inputs[0], output)
