"""Joins of tables: after any changes, cut anyhow, what was sent folds to the join of the rows that are there."""

import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laws.reference.tables import joined
from penstock.core.change import OP, POSITION, TIME, WATERMARK, Op
from penstock.core.hashing import hash64
from penstock.core.time import NEVER
from penstock.flow.plan import TableJoin
from penstock.kernels import current, table_join_sides
from penstock.kernels.families import kernel_of
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import Kernel
from unit.kernels.changing import Epoch, Row, Running, Table, epochs, plain, told
from unit.kernels.cutting import few_hashes

HOWS = ("inner", "left", "right", "full", "semi", "anti")
LEFT = pa.schema([("id", pa.int64()), ("ref", pa.float64()), ("v", pa.string())])
RIGHT = pa.schema([("id", pa.int64()), ("ref", pa.float64()), ("w", pa.int64())])

REFS = st.sampled_from((None, math.nan, 0.0, -0.0, 1.0, 2.0))
TIMES = st.integers(-2, 2)
lefts = st.fixed_dictionaries({"ref": REFS, "v": st.sampled_from((None, "", "x", "y")), TIME: TIMES})
rights = st.fixed_dictionaries({"ref": REFS, "w": st.sampled_from((None, 1, 2)), TIME: TIMES})


@dataclass(frozen=True)
class Case:
    """How two tables are joined, and who a row of either is: by its id, or by its position."""

    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]] = (("id",), ("id",))
    right: tuple[tuple[str, str], ...] = (("right_id", "id"), ("w", "w"))
    left_schema: pa.Schema = field(default=LEFT)
    right_schema: pa.Schema = field(default=RIGHT)

    @property
    def of_left(self) -> bool:
        return self.how in ("semi", "anti")

    @property
    def key(self) -> tuple[str, ...]:
        if self.of_left:
            return self.keys[0]
        return ("id", "right_id") if all(self.keys) else ()

    @property
    def output(self) -> pa.Schema:
        if self.of_left:
            return self.left_schema
        return pa.schema([*self.left_schema, *(self.right_schema.field(own).with_name(name) for name, own in self.right)])

    def kernel(self) -> Kernel:
        right = () if self.of_left else self.right
        join = TableJoin(("ref",), self.how, right, self.keys, self.key)  # type: ignore[arg-type]
        return kernel_of("table-join", join, [self.left_schema, self.right_schema], self.output)

    def expected(self, lefts: list[Row], rights: list[Row]) -> dict[Any, Row]:
        rows = [self._row(left, right) for left, right in joined(lefts, rights, ["ref"], self.how)]
        return {tuple(told(row[name]) for name in self.key or (POSITION,)): plain(row) for row in rows}

    def _row(self, left: Any, right: Any) -> Row:
        some = left or right
        row = {f.name: left[f.name] if left else None for f in self.left_schema} | {"ref": some["ref"]}
        times = {TIME: max(side[TIME] for side in (left, right) if side), WATERMARK: NEVER}
        if self.of_left:
            return row | times | {POSITION: left[POSITION]}
        row |= {name: right[own] if right else None for name, own in self.right}
        places = [side[POSITION] if side else b"\x00" for side in (left, right)]
        return row | times | {POSITION: b"p" + b"".join(places)}


def hold(case: Case, cut: list[Epoch], fanout: int, hidden: Any = None) -> Running:
    """Runs the epochs and compares after every one of them."""
    left, right = Table("left", case.left_schema, hidden), Table("right", case.right_schema)
    running = Running(case.kernel(), case.key or (POSITION,), fanout)
    for epoch in cut:
        running.epoch([left.edit(epoch.edits[0]), right.edit(epoch.edits[1])], epoch)
        assert running.shown == case.expected(left.shown(), right.shown())
    return running


KEYS = st.tuples(st.sampled_from(((), ("id",))), st.sampled_from(((), ("id",))))
FANOUT = st.sampled_from((2, 3, 8))


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=70)
@given(cut=epochs(lefts, rights), keys=KEYS, fanout=FANOUT)
def test_any_changes_in_any_cut_fold_to_the_join_of_the_tables_as_they_are(how: str, cut: Any, keys: Any, fanout: int) -> None:
    hold(Case(how, keys), cut, fanout)


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=25)
@given(cut=epochs(lefts, rights), keys=KEYS, hidden=st.sampled_from((("v", "x"), ("ref", 1.0), (TIME, 0))), fanout=FANOUT)
def test_halves_of_changes_count_as_what_they_are(how: str, cut: Any, keys: Any, hidden: Any, fanout: int) -> None:
    hold(Case(how, keys), cut, fanout, hidden)
