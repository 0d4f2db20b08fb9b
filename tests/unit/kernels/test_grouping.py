"""Aggregates over tables: after any changes, cut anyhow, every group says what a query over the rows that are there would say."""

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import cases
from laws.reference.tables import grouped, joined
from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.hashing import hash64
from penstock.core.position import window_positions
from penstock.core.time import NEVER
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import Kernel
from penstock.kernels.registry import kernel_of
from penstock.kernels.tables import current, grouping_rows, grouping_sums
from penstock.kernels.tables.grouping_rows import RowsKernel
from penstock.kernels.tables.grouping_sums import SumsKernel
from penstock.plan import Grouping, TableJoin
from unit.kernels import cutting
from unit.kernels.changing import Epoch, Row, Running, Table, epochs, many_epochs, plain
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
        return kernel_of(Grouping(self.by, self.aggregates, self.key), [SCHEMA], self.output)

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


@settings(max_examples=30)
@given(cut=epochs(rows), by=BY, key=KEY, fanout=FANOUT)
def test_sums_are_taken_back_whatever_the_changes_and_the_cut(cut: Any, by: Any, key: Any, fanout: int) -> None:
    hold(Case(by, SUMS, key), cut, fanout)


@settings(max_examples=30)
@given(cut=epochs(rows), by=BY, key=KEY, fanout=FANOUT)
def test_every_aggregate_is_that_of_the_rows_that_are_there(cut: Any, by: Any, key: Any, fanout: int) -> None:
    hold(Case(by, EVERY, key), cut, fanout)


@pytest.mark.parametrize("aggregates", [SUMS, EVERY], ids=["sums", "rows"])
def test_what_went_stays_away_however_runs_are_merged(aggregates: Any) -> None:
    def row(rng: random.Random) -> Row:
        return {"g": 1.0, "k": rng.choice((None, "a", "b")), "v": rng.randrange(3), "x": 0.5, "s": None, TIME: rng.randrange(2)}

    for seed in range(cases(3)):
        hold(Case(("k",), aggregates, ("id",) if seed % 3 else ()), many_epochs(random.Random(seed), 40, row), 2 + seed % 2)


@settings(max_examples=30)
@given(
    cut=epochs(rows),
    aggregates=st.sampled_from((SUMS, EVERY)),
    hidden=st.sampled_from((("k", "a"), ("v", 1), ("g", 1.0))),
    key=KEY,
    fanout=FANOUT,
)
def test_halves_of_changes_count_as_what_they_are(cut: Any, aggregates: Any, hidden: Any, key: Any, fanout: int) -> None:
    hold(Case(("g",), aggregates, key), cut, fanout, hidden)


@settings(max_examples=cases(12))
@given(cut=epochs(rows), aggregates=st.sampled_from((SUMS, EVERY)), by=BY, key=KEY, fanout=FANOUT)
def test_groups_and_names_that_share_a_hash_stay_apart(cut: Any, aggregates: Any, by: Any, key: Any, fanout: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (grouping_sums, grouping_rows, current):
            patch.setattr(module, "hash64", few_hashes(hash64))
        hold(Case(by, aggregates, key), cut, fanout)


lefts = st.fixed_dictionaries({"ref": st.sampled_from((None, 0, 1)), "v": st.integers(0, 3), TIME: st.just(0)})
rights = st.fixed_dictionaries({"ref": st.sampled_from((None, 0, 1)), "w": st.sampled_from((None, "a", "b")), TIME: st.just(0)})
LEFT = pa.schema([("id", pa.int64()), ("ref", pa.int64()), ("v", pa.int64())])
RIGHT = pa.schema([("id", pa.int64()), ("ref", pa.int64()), ("w", pa.string())])
JOINED = pa.schema([*LEFT, ("right_id", pa.int64()), ("w", pa.string())])
OVER_JOIN = {
    "sums": (Agg("n", "count", None, pa.int64()), Agg("total", "sum", "v", pa.int64())),
    "rows": (Agg("n", "count", None, pa.int64()), Agg("total", "sum", "v", pa.int64()), Agg("high", "max", "v", pa.int64())),
}


@pytest.mark.parametrize("kept", OVER_JOIN)
@settings(max_examples=30)
@given(cut=epochs(lefts, rights), how=st.sampled_from(("inner", "left", "right", "full")), key=KEY, fanout=FANOUT)
def test_groups_over_a_join_follow_it(kept: str, cut: Any, how: Any, key: Any, fanout: int) -> None:
    """key: whether rows of the join are named by columns or by their positions."""
    side = ("id",) if key else ()
    join = TableJoin(("ref",), how, (("right_id", "id"), ("w", "w")), (side, side), ("id", "right_id") if key else ())
    inner = Running(kernel_of(join, [LEFT, RIGHT], JOINED), join.key or (POSITION,), fanout)
    aggregates = OVER_JOIN[kept]
    output = pa.schema([("w", pa.string()), *((a.name, a.type) for a in aggregates)])
    outer = Running(kernel_of(Grouping(("w",), aggregates, join.key), [JOINED], output), ["w"], fanout)
    left, right = Table("left", LEFT), Table("right", RIGHT)
    for epoch in cut:
        outer.epoch([inner.epoch([left.edit(epoch.edits[0]), right.edit(epoch.edits[1])], epoch)], epoch)
        pairs = [{"w": b and b["w"], "v": a and a["v"]} for a, b in joined(left.shown(), right.shown(), ["ref"], how)]
        expected = {}
        for group in grouped(pairs, ["w"]):
            known = [row["v"] for row in group if row["v"] is not None]
            told = {"w": group[0]["w"], "n": len(group), "total": sum(known) if known else None, "high": max(known, default=None)}
            expected[(group[0]["w"],)] = {name: told[name] for name in output.names}
        assert {key: {n: row[n] for n in output.names} for key, row in outer.shown.items()} == expected


def changes(*rows: tuple[Op, Row]) -> pa.Table:
    every = {"k": "a", "g": 0.0, "v": 1, "x": 0.25, "s": "p", TIME: 0}
    return Table("t", SCHEMA).changes([(op, every | {POSITION: str(row["id"]).encode()} | row) for op, row in rows])


def said(ran: Any, *names: str) -> list[tuple[Any, ...]]:
    return [(r[OP], r["k"], *(r[name] for name in names)) for r in ran.rows.to_pylist()]


N_AND_HIGH = tuple(a for a in AGGREGATES if a.name in ("n", "high"))
N_AND_TOTAL = tuple(a for a in AGGREGATES if a.name in ("n", "total"))


@pytest.mark.parametrize("aggregates", [N_AND_TOTAL, N_AND_HIGH])
def test_a_row_that_changes_group_leaves_one_and_joins_the_other_and_an_empty_group_goes(aggregates: Any) -> None:
    runner = MemoryRunner(Case(("k",), aggregates).kernel())
    assert said(runner.epoch([[changes((Op.INSERT, {"id": 1}))]], [0]), "n") == [(Op.INSERT, "a", 1)]
    moved = changes((Op.UPDATE_BEFORE, {"id": 1}), (Op.UPDATE_AFTER, {"id": 1, "k": "b"}))
    assert said(runner.epoch([[moved]], [0]), "n") == [(Op.DELETE, "a", 1), (Op.INSERT, "b", 1)]
    more = changes((Op.INSERT, {"id": 2, "k": "b"}))
    assert said(runner.epoch([[more]], [0]), "n") == [(Op.UPDATE_BEFORE, "b", 1), (Op.UPDATE_AFTER, "b", 2)]
    gone = changes((Op.DELETE, {"id": 1, "k": "b"}), (Op.DELETE, {"id": 2, "k": "b"}))
    assert said(runner.epoch([[gone]], [0]), "n") == [(Op.DELETE, "b", 2)]
    assert said(runner.epoch([[changes((Op.INSERT, {"id": 1, "k": "b"}))]], [0]), "n") == [(Op.INSERT, "b", 1)]


def test_the_greatest_goes_back_when_its_row_goes() -> None:
    runner = MemoryRunner(Case(("k",), N_AND_HIGH).kernel())
    runner.epoch([[changes((Op.INSERT, {"id": 1, "v": 1}), (Op.INSERT, {"id": 2, "v": 9}))]], [0])
    assert said(runner.epoch([[changes((Op.DELETE, {"id": 2, "v": 9}))]], [0]), "n", "high") == [
        (Op.UPDATE_BEFORE, "a", 2, 9),
        (Op.UPDATE_AFTER, "a", 1, 1),
    ]


def test_sums_of_doubles_do_not_remember_what_went() -> None:
    runner = MemoryRunner(Case(("k",), tuple(a for a in AGGREGATES if a.name == "xs")).kernel())
    runner.epoch([[changes((Op.INSERT, {"id": 1, "x": 0.25}), (Op.INSERT, {"id": 2, "x": math.inf}))]], [0])
    ran = runner.epoch([[changes((Op.DELETE, {"id": 2, "x": math.inf}))]], [0])
    assert said(ran, "xs") == [(Op.UPDATE_BEFORE, "a", math.inf), (Op.UPDATE_AFTER, "a", 0.25)]


def test_what_changes_nothing_of_a_group_is_not_sent() -> None:
    runner = MemoryRunner(Case(("k",), N_AND_HIGH).kernel())
    runner.epoch([[changes((Op.INSERT, {"id": 1, "s": "p"}))]], [0])
    other = changes((Op.UPDATE_BEFORE, {"id": 1, "s": "p"}), (Op.UPDATE_AFTER, {"id": 1, "s": "q"}))
    assert runner.epoch([[other]], [0]).rows.num_rows == 0


def test_sums_are_kept_without_rows_and_anything_else_with_them() -> None:
    for aggregates, made in ((SUMS, SumsKernel), (EVERY, RowsKernel), ((), SumsKernel)):
        assert type(Case(("k",), aggregates).kernel()) is made
    for one in AGGREGATES[3:] + OTHERS[1:]:
        assert type(Case(("k",), (one,)).kernel()) is RowsKernel, one.name


@pytest.mark.parametrize("aggregates", [SUMS, EVERY])
def test_groups_that_went_leave_no_state(aggregates: Any) -> None:
    runner = MemoryRunner(Case(("k",), aggregates).kernel(), fanout=2)
    for i in range(64):
        for op in (Op.INSERT, Op.DELETE):
            runner.epoch([[changes((op, {"id": i, "k": str(i)}))]], [0])
    state = runner.state(0)
    assert sum(r.num_rows for name in state.runs_of for slot in state.slots(name) for r in state.runs(name, slot)) < 4


def test_final_states_are_those_of_another_database() -> None:
    duckdb = pytest.importorskip("duckdb")
    aggregates = (
        *(a for a in AGGREGATES if a.name in ("n", "known", "low", "shigh")),
        Agg("mean", "avg", "v", pa.float64()),
        Agg("different", "distinct", "s", pa.int64()),
        Agg("best", "top", "v", pa.list_(pa.int64()), ("x",), (2,)),
    )
    sql = "select k, count(*), count(v), min(v), max(s), avg(v), count(distinct s), list(v order by x desc)[1:2] from t group by k"
    for seed in range(cases(15)):
        rng, table = random.Random(seed), Table("table", SCHEMA)
        running = Running(Case(("k",), aggregates).kernel(), ["k"], 2 + seed % 3)
        for _ in range(5):
            edits = (tuple(some_edits(rng)),)
            running.epoch([table.edit(edits[0])], Epoch(edits, 1 + seed % 2, 1 + seed % 3, False, False))
        t = table.changes([(Op.INSERT, row) for row in table.shown()])
        found = duckdb.sql(sql).fetchall()
        mine = [tuple(row[n] for n in ("k", *(a.name for a in aggregates))) for row in running.shown.values()]
        assert sorted(mine, key=str) == sorted(((*f[:-1], tuple(f[-1])) for f in found), key=str), seed
        assert t.num_rows >= len(mine)


def some_edits(rng: random.Random) -> list[Any]:
    def row() -> Row:
        words = {"k": rng.choice((None, "a", "b")), "s": rng.choice((None, "p", "q"))}
        return words | {"g": 0.0, "v": rng.choice((None, 1, 2, 5)), "x": rng.random(), TIME: 0}

    return [(rng.randrange(12), rng.choice((None, row(), row()))) for _ in range(rng.randrange(8))]


@pytest.mark.parametrize("aggregates", [N_AND_TOTAL, N_AND_HIGH])
def test_a_group_that_is_nan_is_found_again(aggregates: Any) -> None:
    runner = MemoryRunner(Case(("g",), aggregates).kernel())
    runner.epoch([[changes((Op.INSERT, {"id": 1, "g": math.nan}))]], [0])
    ran = runner.epoch([[changes((Op.INSERT, {"id": 2, "g": -math.nan}))]], [0])
    assert [(r[OP], r["n"]) for r in ran.rows.to_pylist()] == [(Op.UPDATE_BEFORE, 1), (Op.UPDATE_AFTER, 2)]
