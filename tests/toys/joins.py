"""A join from outside: each row of the left stream with the nearest row of the right one, once none nearer can come."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.time import FOREVER, NEVER, micros
from penstock.flow.definition import Known
from penstock.flow.place import At
from penstock.flow.steps.matching import joined_schema, meeting_columns, right_names
from penstock.kernels import registry
from penstock.kernels.columns import by_slot, numbers, sorted_by_hash, travelling
from penstock.kernels.keyed import judge_instants, placed
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.plan import Facts, Judging, Late, Meaning, Step, StreamJoin

LEFT, RIGHT = "left", "right"


@dataclass(frozen=True)
class Nearest(StreamJoin):
    family: ClassVar[str] = "toy-nearest"

    on: tuple[str, ...]
    lo: timedelta
    hi: timedelta
    right: tuple[tuple[str, str], ...]
    late: Late = "divert"

    def facts(self) -> Facts:
        yield "on", f"{', '.join(self.on)}, the nearest"

    def judging(self) -> Judging:
        return Judging(self.late)

    def meaning(self) -> Meaning:
        return {"is": "toy-nearest/1", "on": list(self.on), "within": micros(self.hi), "right": dict(self.right), "late": self.late}


@dataclass(frozen=True)
class NearestDefinition:
    on: tuple[str, ...]
    within: timedelta
    late: Late = "divert"

    kind: ClassVar[str] = "nearest"
    judges: ClassVar[bool] = True
    takes_updates: ClassVar[bool] = False

    @property
    def by(self) -> tuple[str, ...]:
        return self.on

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        left, right = inputs
        on = meeting_columns(self.on, left, right, at, "find the nearest")
        names = right_names(on, left, right, at)
        schema = joined_schema(on, names, left.schema, right.schema, "left")
        node = Nearest(on, -self.within, self.within, names, self.late)
        step = Step(at.name, (left.name, right.name), node, schema, at.origin)
        return Known((step,), at.name, topic_key=on, inputs=(left, right))


class NearestKernel:
    """State: "left", rows that wait until F > t + within; "right", rows that they may find. Slots are as wide as the bound."""

    needs_position, gives_position = True, True

    def __init__(self, node: Nearest, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._on, self._within, self._names = node.on, micros(node.hi), dict(node.right)
        self._late = node.late
        self._sides, self._schema = [placed(schema) for schema in inputs], travelling(output)

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        return judge_instants(rows, self._sides[port], self._on, self._late)

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        before, now = min(state.frontiers, default=NEVER), min(frontiers)
        changes = Changes()
        for table, new in zip((LEFT, RIGHT), rows, strict=True):
            runs = by_slot(new, self._within).items() if new is not None and new.num_rows else ()
            changes.add |= {(table, slot): sorted_by_hash(run) for slot, run in runs}
            reach = self._within if table == LEFT else 2 * self._within
            known = {*state.slots(table), *(slot for t, slot in changes.add if t == table)}
            changes.drop |= {(table, slot) for slot in known if slot + self._within + reach < now}
        left, right = (self._all(state, port, new) for port, new in enumerate(rows))
        due = numbers(left, TIME) + self._within
        fresh = np.zeros(len(due), np.bool_)
        fresh[len(due) - (rows[0].num_rows if rows[0] is not None else 0) :] = True
        return Stepped(self._joined(left.filter(pa.array((due < now) & (fresh | (due >= before)))), right), changes)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return sorted_by_hash(pa.concat_tables(runs))

    def frontier(self, frontiers: Sequence[int]) -> int:
        least = min(frontiers)
        return least if least in (NEVER, FOREVER) else least - self._within

    def open_rows(self, state: State) -> pa.Table | None:
        return None

    def _all(self, state: State, port: int, new: pa.Table | None) -> pa.Table:
        table = (LEFT, RIGHT)[port]
        kept = [run for slot in state.slots(table) for run in state.runs(table, slot)]
        return pa.concat_tables([self._sides[port].empty_table(), *kept, *([new] if new is not None else [])]).combine_chunks()

    def _joined(self, left: pa.Table, right: pa.Table) -> pa.Table:
        partners = dict[tuple[Any, ...], list[dict[str, Any]]]()
        for row in right.to_pylist():
            partners.setdefault(tuple(row[name] for name in self._on), []).append(row)
        out = [self._row(row, partners.get(tuple(row[name] for name in self._on), [])) for row in left.to_pylist()]
        return pa.Table.from_pylist(out, schema=self._schema)

    def _row(self, row: dict[str, Any], partners: list[dict[str, Any]]) -> dict[str, Any]:
        near = [p for p in partners if abs(p[TIME] - row[TIME]) <= self._within]
        found = min(near, key=lambda p: (abs(p[TIME] - row[TIME]), p[TIME], p[POSITION]), default=None)
        theirs = {new: found[own] if found else None for new, own in self._names.items()}
        return {k: v for k, v in row.items() if k != HASH} | theirs | {WATERMARK: NEVER}


registry.register("toy-nearest", NearestKernel)
