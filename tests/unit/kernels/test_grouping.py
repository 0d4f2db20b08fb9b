"""Aggregates over tables: after any changes, cut anyhow, every group says what a query over the rows that are there would say."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laws.reference.tables import grouped
from penstock.core.change import OP, POSITION, TIME, WATERMARK, Op
from penstock.core.hashing import hash64
from penstock.core.position import window_positions
from penstock.core.time import NEVER
from penstock.flow.plan import Grouping
from penstock.kernels import current, grouping_rows, grouping_sums
from penstock.kernels.families import kernel_of
from penstock.kernels.grouping_rows import RowsKernel
from penstock.kernels.grouping_sums import SumsKernel
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import Kernel
from unit.kernels import cutting
from unit.kernels.changing import Epoch, Row, Running, Table, epochs, plain
from unit.kernels.cutting import AGGREGATES, OTHERS, Agg, aggregated, few_hashes, otherwise

SCHEMA = pa.schema([("id", pa.int64()), ("g", pa.float64()), *cutting.SCHEMA])
SUMS = (
    *(a for a in AGGREGATES if a.name in ("n", "known", "total")),
    Agg("spread", "var", "v", pa.float64(), options=(0,)),
)
EVERY = (*AGGREGATES, *OTHERS)

groups = st.sampled_from((None, math.nan, 0.0, -0.0, 1.0))
rows = st.fixed_dictionaries(
    {
        "g": groups,
        "k": st.sampled_from((None, "", "a")),
        "v": st.sampled_from((None, 2**62, -(2**62), 0, 1, 2)),
        "x": st.sampled_from((None, math.nan, math.inf, -math.inf, 2.0**900, -0.0, 0.25, 2.0)),
        "s": st.sampled_from((None, "", "p", "é")),
        TIME: st.integers(-2, 2),
    }
)
BY = st.sampled_from((("g",), ("k",), ("k", "g"), ()))
KEY = st.sampled_from((("id",), ()))
FANOUT = st.sampled_from((2, 3, 8))


@dataclass(frozen=True)
class Case:
    by: tuple[str, ...]
    aggregates: tuple[Agg, ...]
    key: tuple[str, ...] = ("id",)

    @property
    def output(self) -> pa.Schema:
        return pa.schema([*(SCHEMA.field(name) for name in self.by), *((a.name, a.type) for a in self.aggregates)])

    def kernel(self) -> Kernel:
        return kernel_of("grouping", Grouping(self.by, self.aggregates, self.key), [SCHEMA], self.output)

    def expected(self, rows: list[Row]) -> list[Row]:
        return [plain(self._told(group)) for group in grouped(rows, self.by)]

    def _told(self, group: Any) -> Row:
        members = [cutting.Row(r[TIME], r["k"], r["v"], r["x"], r["s"], NEVER, r[POSITION]) for r in group]
        values = aggregated(members) | otherwise(members)
        first = group[0]
        named = {name: first[name] + 0.0 if isinstance(first[name], float) else first[name] for name in self.by}  # -0.0 is 0.0
        keys = [pa.array([named[name]], SCHEMA.field(name).type) for name in self.by]
        place = window_positions(keys, np.zeros(1, np.int64))[0].as_py()
        told = named | {a.name: values[a.name] for a in self.aggregates}
        return told | {TIME: max(m.t for m in members), WATERMARK: NEVER, POSITION: place}


def hold(case: Case, cut: list[Epoch], fanout: int, hidden: Any = None) -> Running:
    table = Table("table", SCHEMA, hidden)
    kernel = case.kernel()
    running = Running(kernel, [POSITION], fanout)
    left_out = {TIME} if isinstance(kernel, SumsKernel) else set()
    for epoch in cut:
        running.epoch([table.edit(epoch.edits[0])], epoch)
        assert counted(running.shown.values(), left_out) == counted(case.expected(table.shown()), left_out)
    return running


def counted(rows: Any, left_out: set[str]) -> list[str]:
    return sorted(str(sorted((n, str(v)) for n, v in row.items() if n not in left_out)) for row in rows)


@settings(max_examples=80)
@given(cut=epochs(rows), by=BY, key=KEY, fanout=FANOUT)
def test_sums_are_taken_back_whatever_the_changes_and_the_cut(cut: Any, by: Any, key: Any, fanout: int) -> None:
    hold(Case(by, SUMS, key), cut, fanout)


@settings(max_examples=80)
@given(cut=epochs(rows), by=BY, key=KEY, fanout=FANOUT)
def test_every_aggregate_is_that_of_the_rows_that_are_there(cut: Any, by: Any, key: Any, fanout: int) -> None:
    hold(Case(by, EVERY, key), cut, fanout)


@settings(max_examples=40)
@given(
    cut=epochs(rows),
    aggregates=st.sampled_from((SUMS, EVERY)),
    hidden=st.sampled_from((("k", "a"), ("v", 1), ("g", 1.0))),
    key=KEY,
    fanout=FANOUT,
)
def test_halves_of_changes_count_as_what_they_are(cut: Any, aggregates: Any, hidden: Any, key: Any, fanout: int) -> None:
    hold(Case(("g",), aggregates, key), cut, fanout, hidden)
