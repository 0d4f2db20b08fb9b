"""What is told of a table of alerts: a row when a key begins or ends to fire, from epoch to epoch.

A key that begins and ends within one epoch is not told of, so how many rows there are depends on where epochs were cut. What does
not: the last one of a key says what holds. State: table "told", what is known of each key that ever fired; the newest run counts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.arrow import schema_of, table_of
from penstock.core.change import Op
from penstock.core.columns import HASH, OP, POSITION, TIME, WATERMARK
from penstock.core.hashing import hash64
from penstock.core.position import window_positions
from penstock.core.time import NEVER, micros
from penstock.kernels.alerts.firing import FIRED, KEPT, RESOLVED, Firing
from penstock.kernels.alerts.tables import ALERT, SINCE
from penstock.kernels.changes import newest_of_all, touched
from penstock.kernels.column_names import GONE
from penstock.kernels.columns import as_type, column, numbers, sorted_by_hash, travelling, with_plain
from penstock.kernels.keyed import key_numbers
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.plan import Told

TOLD = "told"
_STATE: dict[str, pa.DataType] = {**KEPT, "__last_told": pa.int64(), "__repeats": pa.int64()}
_QUIET = Firing()


@dataclass(frozen=True)
class Teller:
    """One key. at, number: of the last row that was told; they only rise, so that no two rows are told under one position, and are
    the time of the row that was the reason and zero, unless rows of one time, or of older times, were told in between."""

    firing: Firing = _QUIET
    at: int = NEVER
    number: int = 0

    @property
    def kept(self) -> tuple[int | bool, ...]:
        return self.firing.since, self.firing.told, self.firing.open, self.at, self.number

    def after(self, t: int, says: str | None, since: int | None, every: int | None) -> "tuple[Teller, str | None]":
        """What is known behind a change of the table at this time, and what is told of it. says: None where neither is said, and
        what was told stays."""
        before = self.firing
        fires = says == FIRED or (says is None and before.since > NEVER)
        firing, word = before.after(t, says == FIRED, not fires, every)
        if fires and since is not None:  # what was told goes on, however often it ended in between
            firing = replace(firing, since=since if before.since == NEVER else min(before.since, since))
        if word is None:
            return replace(self, firing=firing), None
        at = max(t, self.at)
        return Teller(firing, at, self.number + 1 if at == self.at else 0), word


class ToldKernel:
    """At most one change of a key in an epoch comes in, as the table gives them."""

    needs_position, gives_position = False, True

    def __init__(self, told: Told, output_schema: pa.Schema) -> None:
        self._by, self._every = list(told.by), None if told.every is None else micros(told.every)
        self._output, self._schema, self._keys = output_schema, travelling(output_schema), [*told.by, HASH]
        keys: list[pa.Field] = [output_schema.field(name).with_nullable(True) for name in told.by]
        self._known = schema_of([*keys, *_STATE.items(), (HASH, pa.uint64())])

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        """What a key says now; of one that is gone, what it said."""
        ops = numbers(rows, OP)
        taken = rows.select([*self._output.names, TIME]).append_column(GONE, pa.array(ops == Op.DELETE))
        taken = with_plain(taken.filter(pa.array(ops != Op.UPDATE_BEFORE)), self._by)
        hashes = hash64([taken[name] for name in self._by], taken.num_rows)
        return Prepared(taken.append_column(HASH, pa.array(hashes)), fates=+Counter(passed=rows.num_rows))

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        new = rows[0]
        if new is None or not new.num_rows:
            return Stepped(self._schema.empty_table(), Changes())
        runs = touched(state.runs(TOLD, 0), np.unique(numbers(new, HASH)))
        known = newest_of_all([*runs, self._known.empty_table()], self._keys)
        keys = key_numbers(pa.concat_tables([table.select(self._keys) for table in (known, new)]), self._by)
        tellers = _tellers(known, keys[: known.num_rows].tolist())
        told, changed = list[tuple[int, str, Teller, Teller]](), list[tuple[int, Teller]]()
        for at, (key, said) in enumerate(zip(keys[known.num_rows :].tolist(), _said(new), strict=True)):
            before = tellers.get(key, Teller())
            after, word = before.after(*said, self._every)
            changed += [(at, after)] if after != before else []
            told += [(at, word, before, after)] if word else []
        changes = Changes({(TOLD, 0): self._kept(new, changed)} if changed else {})
        return Stepped(self._rows(new, told), changes)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return newest_of_all(runs, self._keys)

    def frontier(self, frontiers: Sequence[int]) -> int:
        """A row is told when the table changes, whatever its time."""
        return NEVER

    def open_rows(self, state: State) -> pa.Table | None:
        return None

    def _rows(self, new: pa.Table, told: list[tuple[int, str, Teller, Teller]]) -> pa.Table:
        taken = new.take(pa.array([at for at, _, _, _ in told], pa.int64()))
        since = [(after if word == FIRED else before).firing.since for _, word, before, after in told]
        made: dict[str, pa.Array] = {
            ALERT: pa.array([word for _, word, _, _ in told], pa.string()),
            SINCE: pa.array(since, pa.int64()),
        }
        columns: dict[str, Any] = {f.name: as_type(made[f.name], f.type) if f.name in made else taken[f.name] for f in self._output}
        numbered = pa.array([after.number for *_, after in told], pa.int64())
        places: list[pa.Array] = [*(column(taken, name) for name in self._by), made[ALERT], numbered]
        at = np.array([after.at for *_, after in told], np.int64)
        columns |= {TIME: taken[TIME], WATERMARK: pa.array(np.full(len(told), NEVER)), POSITION: window_positions(places, at)}
        return table_of(columns, schema=self._schema)

    def _kept(self, new: pa.Table, changed: list[tuple[int, Teller]]) -> pa.Table:
        rows = new.select(self._keys).take(pa.array([at for at, _ in changed], pa.int64()))
        values = zip(*(teller.kept for _, teller in changed), strict=True)
        made = {name: pa.array(each, t) for (name, t), each in zip(_STATE.items(), values, strict=True)}
        columns: dict[str, Any] = {name: made[name] if name in made else rows[name] for name in self._known.names}
        return sorted_by_hash(table_of(columns, schema=self._known))


def _said(rows: pa.Table) -> Iterator[tuple[int, str | None, int | None]]:
    """Of each row its time, what it says and since when; one that is gone fires no more."""
    words = (RESOLVED if gone else word for gone, word in zip(rows[GONE].to_pylist(), rows[ALERT].to_pylist(), strict=True))
    return zip(numbers(rows, TIME).tolist(), words, as_type(rows[SINCE], pa.int64()).to_pylist(), strict=True)


def _tellers(known: pa.Table, keys: list[int]) -> dict[int, Teller]:
    columns = zip(keys, *(known[name].to_pylist() for name in _STATE), strict=True)
    return {key: Teller(Firing(since, told, open), at, number) for key, since, told, open, at, number in columns}


def build(told: Told, inputs: Sequence[pa.Schema], output: pa.Schema) -> ToldKernel:
    return ToldKernel(told, output)
