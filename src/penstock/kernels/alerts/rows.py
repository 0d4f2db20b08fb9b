"""Alerts: of each key, in the order (time, position), the rows with which it begins and ends to fire.

State: rows that wait until F > t (kernels/waiting_rows.py), and "known": for each key that ever fired since when it does, when that
was told last, and whether it was told of what goes on now; the newest run wins.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import schema_of, table_of
from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.time import FOREVER, NEVER, micros
from penstock.kernels.alerts.firing import KEPT, OPEN, SINCE_TIME, TOLD_TIME, Firing
from penstock.kernels.changes import newest_of_all, touched
from penstock.kernels.columns import as_type, numbers, plain, sorted_by_hash, travelling
from penstock.kernels.keyed import in_order, judge_instants, key_numbers, placed
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.kernels.waiting_rows import WaitingRows
from penstock.plan import Alert

Longs = npt.NDArray[np.int64]

KNOWN = "known"


class AlertKernel:
    """Rows are taken once F > t; those that tell something come out with their own time and position."""

    needs_position, gives_position = True, True

    def __init__(
        self, alert: Alert, input_schema: pa.Schema, output_schema: pa.Schema, *, waiting: WaitingRows | None = None
    ) -> None:
        self._alert, self._every = alert, None if alert.every is None else micros(alert.every)
        self._waiting = waiting or WaitingRows("waiting")
        self._placed = placed(input_schema)
        keys: list[pa.Field] = [input_schema.field(name).with_nullable(True) for name in alert.by]
        self._known = schema_of([*keys, *KEPT.items(), (HASH, pa.uint64())])
        self._output, self._schema = output_schema, travelling(output_schema)

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """Judges rows; those on time go on and are never judged again."""
        prepared = judge_instants(rows, self._placed, self._alert.by, self._alert.late)
        for name in self._alert.by:
            at = prepared.rows.column_names.index(name)
            prepared.rows = prepared.rows.set_column(at, prepared.rows.schema.field(at), plain(prepared.rows[name]))
        return prepared

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        changes = Changes()
        due = self._waiting.advance(state, rows[0], frontiers[0], changes)
        if not due:
            return Stepped(self._schema.empty_table(), changes)
        taken = pa.concat_tables(due)
        runs = touched(state.runs(KNOWN, 0), np.unique(numbers(taken, HASH)))
        known = newest_of_all(runs, self._keys) if runs else self._known.empty_table()
        keys = key_numbers(pa.concat_tables([table.select(self._keys) for table in (known, taken)]), self._alert.by)
        firing = self._firing(known, keys[: known.num_rows])
        mine = keys[known.num_rows :]
        order = in_order(taken, mine)
        told, changed = self._taken(taken.take(order), mine[order], firing)
        if changed:
            changes.add[KNOWN, 0] = self._kept(taken, mine, firing, changed)
        return Stepped(told, changes)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return newest_of_all(runs, self._keys) if table == KNOWN else sorted_by_hash(pa.concat_tables(runs))

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        """What rows that wait would tell now."""
        return self.step(state, [None], [FOREVER]).rows

    @property
    def _keys(self) -> list[str]:
        return [*self._alert.by, HASH]

    def _firing(self, known: pa.Table, keys: Longs) -> dict[int, Firing]:
        columns = zip(keys.tolist(), *(known[name].to_pylist() for name in KEPT), strict=True)
        return {key: Firing(since, told, open) for key, since, told, open in columns}

    def _taken(self, rows: pa.Table, keys: Longs, firing: dict[int, Firing]) -> tuple[pa.Table, set[int]]:
        """What rows in their order tell, and the keys of which something else holds now; `firing` is brought up to date."""
        told: list[tuple[int, str, int]] = []
        changed: set[int] = set()
        columns = (numbers(rows, TIME).tolist(), rows[self._alert.when].to_pylist(), rows[self._alert.resolve].to_pylist())
        for at, (key, t, when, resolve) in enumerate(zip(keys.tolist(), *columns, strict=True)):
            before = firing.get(key, Firing())
            after, word = before.after(t, bool(when), bool(resolve), self._every)
            if after != before:
                firing[key] = after
                changed.add(key)
            if word:
                told.append((at, word, before.since if before.since > NEVER else after.since))
        return self._rows(rows, told), changed

    def _rows(self, rows: pa.Table, told: list[tuple[int, str, int]]) -> pa.Table:
        taken = rows.take(pa.array([at for at, _, _ in told], pa.int64()))
        made: dict[str, pa.Array] = {"alert": pa.array([word for _, word, _ in told], pa.string())}
        made["since"] = pa.array([since for _, _, since in told], pa.int64())
        columns: dict[str, Any] = {f.name: as_type(made[f.name], f.type) if f.name in made else taken[f.name] for f in self._output}
        columns |= {TIME: taken[TIME], WATERMARK: pa.array(np.full(len(told), NEVER)), POSITION: taken[POSITION]}
        return table_of(columns, schema=self._schema)

    def _kept(self, taken: pa.Table, keys: Longs, firing: dict[int, Firing], changed: set[int]) -> pa.Table:
        found, first = np.unique(keys, return_index=True)
        wanted = [(key, at) for key, at in zip(found.tolist(), first.tolist(), strict=True) if key in changed]
        rows = taken.select(self._keys).take(pa.array([at for _, at in wanted], pa.int64()))
        now = [firing[key] for key, _ in wanted]
        told: dict[str, Any] = {
            SINCE_TIME: pa.array([f.since for f in now], pa.int64()),
            TOLD_TIME: pa.array([f.told for f in now], pa.int64()),
            OPEN: pa.array([f.open for f in now], pa.bool_()),
        }
        columns = {name: told[name] if name in told else rows[name] for name in self._known.names}
        return sorted_by_hash(table_of(columns, schema=self._known))


def build(alert: Alert, inputs: Sequence[pa.Schema], output: pa.Schema) -> AlertKernel:
    return AlertKernel(alert, inputs[0], output)
