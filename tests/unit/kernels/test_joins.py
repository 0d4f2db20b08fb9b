"""Interval joins: who meets whom, who stays alone, what is kept."""

import math
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.expression import Call, Column, Expression, Literal, Tree
from penstock.core.hashing import bucket_of
from penstock.core.time import FOREVER, NEVER
from penstock.kernels.joins.interval import JoinKernel
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import State
from penstock.plan import Join

MICRO = timedelta(microseconds=1)
V, OTHER = Column("v", pa.int64()), Column("other", pa.int64())
SMALLER = Call("<", (V, OTHER), pa.bool_())
TABLES = ("left", "right", "waiting", "matched", "waiting_right", "matched_right")


def kernel(
    how: Any = "inner",
    lo: int = 0,
    hi: int = 10,
    late: Any = "divert",
    key: pa.DataType | None = None,
    where: Tree | None = None,
    slot_us: int | None = None,
) -> JoinKernel:
    """Joins (k, v) with (k, v), whose v is called other."""
    given = pa.schema([("k", key or pa.string()), ("v", pa.int64())])
    output = given if how in ("semi", "anti") else pa.schema([*given, ("other", pa.int64())])
    condition = None if where is None else Expression("", pa.bool_(), (), where)
    join = Join(("k",), lo * MICRO, hi * MICRO, how, late, (("other", "v"),), condition)
    return JoinKernel(join, [given, given], output, slot_us=slot_us)


def rows(*given: tuple[Any, ...], key: pa.DataType | None = None, watermark: int = NEVER) -> pa.Table:
    """(key, value, time); the position says the value and time."""
    columns = {"k": pa.array([g[0] for g in given], key or pa.string()), "v": pa.array([g[1] for g in given], pa.int64())}
    columns[TIME] = pa.array([g[2] for g in given], pa.int64())
    columns[WATERMARK] = pa.array([watermark] * len(given), pa.int64())
    columns[POSITION] = pa.array([f"s{g[1]}@{g[2]:03}".encode() for g in given], pa.binary())
    return pa.table(columns)


def pairs(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(((r["v"], r["other"], r[TIME]) for r in table.to_pylist()), key=str)


def own(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of the left side as they came: value, time, watermark, position."""
    return sorted((r["v"], r[TIME], r[WATERMARK], r[POSITION]) for r in table.to_pylist())


def test_rows_meet_within_both_bounds_included() -> None:
    left, right = rows(("a", 1, 100)), rows(("a", 10, 98), ("a", 11, 99), ("a", 12, 103), ("a", 13, 104), ("b", 14, 100))
    ran = MemoryRunner(kernel(lo=-1, hi=3)).epoch([[left], [right]], [NEVER, NEVER])
    assert pairs(ran.rows) == [(1, 11, 100), (1, 12, 103)]


@pytest.mark.parametrize("slot", [1, 3, 7, None])
def test_rows_meet_across_epochs_and_slots(slot: int | None) -> None:
    runner = MemoryRunner(kernel(slot_us=slot), buckets=2, fanout=2)
    assert runner.epoch([[rows(("a", 1, -5), ("b", 2, 4))], [rows(("a", 10, 20))]], [NEVER, NEVER]).rows.num_rows == 0
    assert pairs(runner.epoch([[], [rows(("a", 11, 5), ("b", 12, 15))]], [NEVER, NEVER]).rows) == [(1, 11, 5)]
    assert pairs(runner.epoch([[rows(("a", 3, 10))], []], [NEVER, NEVER]).rows) == [(3, 10, 20)]


def test_a_pair_has_both_positions_and_a_lonely_row_comes_before_its_pairs() -> None:
    runner = MemoryRunner(kernel("left"))
    ran = runner.epoch([[rows(("a", 1, 0), ("b", 2, 0))], [rows(("a", 3, 1))]], [FOREVER, FOREVER])
    positions = {r["v"]: r[POSITION] for r in ran.rows.to_pylist()}
    assert positions == {1: b"ps1@000s3@001", 2: b"ps2@000\x00"}


def test_null_equals_nothing_but_stays_in_a_left_join() -> None:
    left, right = rows((None, 1, 0)), rows((None, 2, 0))
    assert MemoryRunner(kernel()).epoch([[left], [right]], [FOREVER, FOREVER]).rows.num_rows == 0
    runner = MemoryRunner(kernel("left"), buckets=3)
    assert runner.epoch([[left], [right]], [0, 0]).rows.num_rows == 0
    assert pairs(runner.epoch([[], []], [FOREVER, FOREVER]).rows) == [(1, None, 0)]


def test_nan_meets_nan_and_zero_meets_minus_zero() -> None:
    double = pa.float64()
    left, right = rows((math.nan, 1, 0), (0.0, 2, 0), key=double), rows((math.nan, 3, 0), (-0.0, 4, 0), key=double)
    ran = MemoryRunner(kernel(key=double)).epoch([[left], [right]], [NEVER, NEVER])
    assert pairs(ran.rows) == [(1, 3, 0), (2, 4, 0)]


def test_a_lonely_row_comes_out_once_when_nobody_can_come_any_more() -> None:
    runner = MemoryRunner(kernel("left"))
    assert runner.epoch([[rows(("a", 1, 0), ("b", 2, 1))], []], [NEVER, 10]).rows.num_rows == 0
    assert pairs(runner.epoch([[], []], [NEVER, 11]).rows) == [(1, None, 0)]
    assert pairs(runner.epoch([[], []], [NEVER, 12]).rows) == [(2, None, 1)]
    assert runner.epoch([[], []], [FOREVER, FOREVER]).rows.num_rows == 0


def test_a_row_matched_in_any_epoch_is_not_lonely() -> None:
    runner = MemoryRunner(kernel("left"), fanout=2)
    runner.epoch([[rows(("a", 1, 0))], []], [NEVER, NEVER])
    for t in (1, 2, 3):
        assert pairs(runner.epoch([[], [rows(("a", 10 + t, t))]], [NEVER, NEVER]).rows) == [(1, 10 + t, t)]
    assert runner.epoch([[], []], [FOREVER, FOREVER]).rows.num_rows == 0


def test_left_rows_that_wait_can_be_looked_at() -> None:
    runner = MemoryRunner(kernel("left"))
    runner.epoch([[rows(("a", 1, 0), ("b", 2, 1))], [rows(("b", 3, 1))]], [NEVER, NEVER])
    opened = runner.open_rows()
    assert opened is not None
    assert pairs(opened) == [(1, None, 0)]
    assert MemoryRunner(kernel("inner")).open_rows() is None


def test_state_goes_when_nobody_can_come_for_it() -> None:
    runner = MemoryRunner(kernel("left", slot_us=4))
    runner.epoch([[rows(("a", 1, 0), ("a", 2, 30))], [rows(("b", 3, 0), ("b", 4, 30))]], [NEVER, NEVER])
    runner.epoch([[], []], [20, 20])
    assert runner.state(0).slots("left") == [28]
    assert runner.state(0).slots("right") == [28]
    runner.epoch([[], []], [FOREVER, FOREVER])
    assert not [slot for table in TABLES for slot in runner.state(0).slots(table)]


def test_late_rows_are_diverted_as_they_came_or_ignored() -> None:
    given = pa.concat_tables([rows(("a", 1, 5), watermark=6), rows(("a", 2, 6), watermark=6)])
    diverting, ignoring = kernel().prepare(0, given), kernel(late="ignore").prepare(1, given)
    assert diverting.late is not None
    assert diverting.late.to_pylist() == given.slice(0, 1).to_pylist()
    assert diverting.fates == {"on time": 1, "diverted": 1}
    assert ignoring.late is None
    assert ignoring.fates == {"on time": 1, "ignored": 1}


@pytest.mark.parametrize(
    ("how", "lo", "hi", "frontier"),
    [
        ("inner", -5, 10, 40),
        ("left", -5, 10, 30),
        ("semi", -5, 10, 30),
        ("anti", -5, 10, 30),
        ("right", -5, 10, 35),
        ("full", -5, 10, 30),
        ("full", -15, 10, 25),
        ("left", -20, -10, 40),
        ("right", 5, 10, 40),
    ],
)
def test_the_frontier_is_held_back_by_what_a_row_may_wait(how: str, lo: int, hi: int, frontier: int) -> None:
    assert kernel(how, lo, hi).frontier([50, 40]) == frontier


def test_a_frontier_without_end_is_not_held_back() -> None:
    assert kernel("full").frontier([FOREVER, FOREVER]) == FOREVER
    assert kernel("full").frontier([NEVER, 5]) == NEVER


def test_runs_are_sorted_by_a_number_that_falls_into_the_bucket_of_the_key() -> None:
    k = kernel("left", slot_us=1000)
    given = rows(*((f"key{i % 7}", i, i * 31 % 900) for i in range(200)))
    prepared = k.prepare(0, given).rows
    buckets = {r["v"]: b for r, b in zip(prepared.to_pylist(), bucket_of(prepared[HASH].to_numpy(), 64).tolist(), strict=True)}
    changes = k.step(State(), [prepared, None], [NEVER, NEVER]).changes
    assert {table for table, _ in changes.add} == {"left", "waiting"}
    for run in changes.add.values():
        hashes = run[HASH].to_numpy()
        assert np.all(hashes[1:] >= hashes[:-1])
        assert bucket_of(hashes, 64).tolist() == [buckets[v] for v in run["v"].to_pylist()]


def test_times_centuries_apart_still_meet_exactly() -> None:
    century = 100 * 365 * 86_400_000_000
    left = rows(*(("a", i, i * century) for i in range(5)))
    right = rows(*(("a", 10 + i, i * century + 10 + i // 3) for i in range(5)))
    assert pairs(MemoryRunner(kernel()).epoch([[left], [right]], [NEVER, NEVER]).rows) == [
        (i, 10 + i, i * century + 10) for i in range(3)
    ]


def test_many_pairs_of_one_row_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.kernels.joins.matches.BLOCK", 3)
    left, right = rows(("a", 1, 0), ("a", 2, 0)), rows(*(("a", 10 + i, i) for i in range(5)))
    ran = MemoryRunner(kernel()).epoch([[left], [right]], [NEVER, NEVER])
    assert pairs(ran.rows) == [(v, 10 + i, i) for v in (1, 2) for i in range(5)]


def test_rows_of_the_right_side_come_out_alone_when_no_left_one_can_come() -> None:
    runner = MemoryRunner(kernel("right", lo=-3, hi=10))
    assert runner.epoch([[], [rows(("a", 7, 20), ("b", 8, 21), (None, 9, 20))]], [23, NEVER]).rows.num_rows == 0
    ran = runner.epoch([[rows(("b", 1, 24))], []], [24, NEVER]).rows.to_pylist()
    assert [(r["k"], r["v"], r["other"], r[TIME]) for r in ran if r["v"] is None] == [("a", None, 7, 20), (None, None, 9, 20)]
    assert [(r["k"], r["v"], r["other"], r[TIME]) for r in ran if r["v"] is not None] == [("b", 1, 8, 24)]
    assert runner.epoch([[], []], [FOREVER, FOREVER]).rows.num_rows == 0


def test_a_full_join_gives_both_sides_once_each_with_the_key_it_has() -> None:
    runner = MemoryRunner(kernel("full"), buckets=2, fanout=2)
    runner.epoch([[rows(("a", 1, 0), ("l", 2, 0))], [rows(("r", 3, 0))]], [NEVER, NEVER])
    assert pairs(runner.epoch([[], [rows(("a", 4, 1))]], [NEVER, NEVER]).rows) == [(1, 4, 1)]
    alone = runner.epoch([[], []], [FOREVER, FOREVER]).rows.to_pylist()
    found = sorted((r["k"], r["v"], r["other"], r[POSITION]) for r in alone)
    assert found == [("l", 2, None, b"ps2@000\x00"), ("r", None, 3, b"p\x00s3@000")]
    assert runner.epoch([[], []], [FOREVER, FOREVER]).rows.num_rows == 0


def test_new_rows_of_both_sides_that_meet_at_once_do_not_wait() -> None:
    runner = MemoryRunner(kernel("full"))
    given = rows(("a", 1, 0)), rows(("a", 3, 5), ("a", 4, 11))
    assert pairs(runner.epoch([[given[0]], [given[1]]], [NEVER, NEVER]).rows) == [(1, 3, 5)]
    assert pairs(runner.epoch([[], []], [FOREVER, FOREVER]).rows) == [(None, 4, 11)]


def test_a_semi_join_gives_a_row_as_soon_as_its_first_partner_is_known_and_once() -> None:
    runner = MemoryRunner(kernel("semi", slot_us=4), buckets=2, fanout=2)
    ran = runner.epoch(
        [[rows(("a", 1, 0), ("b", 2, 3), ("c", 3, 0), (None, 4, 0))], [rows(("a", 10, 1), ("a", 11, 1))]], [NEVER, NEVER]
    )
    assert own(ran.rows) == [(1, 0, NEVER, b"s1@000")]
    assert ran.rows.column_names == ["k", "v", TIME, WATERMARK, POSITION]
    assert runner.epoch([[], [rows(("a", 12, 2))]], [NEVER, NEVER]).rows.num_rows == 0
    for t in (4, 5, 6):
        expected = [(2, 3, NEVER, b"s2@003")] if t == 4 else []
        assert own(runner.epoch([[], [rows(("b", 20 + t, t), ("b", 30 + t, t))]], [NEVER, NEVER]).rows) == expected
    assert runner.epoch([[], []], [FOREVER, FOREVER]).rows.num_rows == 0
    assert not [slot for bucket in (0, 1) for table in TABLES for slot in runner.state(bucket).slots(table)]
    assert runner.open_rows() is None


def test_an_anti_join_gives_the_rows_that_nobody_came_for_as_they_were() -> None:
    runner = MemoryRunner(kernel("anti"), fanout=2)
    runner.epoch([[rows(("a", 1, 0), ("b", 2, 0), ("c", 3, 0), (None, 4, 0))], [rows(("a", 10, 1))]], [NEVER, NEVER])
    opened = runner.open_rows()
    assert opened is not None
    assert [row[0] for row in own(opened)] == [2, 3, 4]
    assert runner.epoch([[], [rows(("b", 11, 9))]], [NEVER, 10]).rows.num_rows == 0
    ran = runner.epoch([[], []], [NEVER, 11])
    assert own(ran.rows) == [(3, 0, NEVER, b"s3@000"), (4, 0, NEVER, b"s4@000")]
    assert runner.epoch([[], []], [FOREVER, FOREVER]).rows.num_rows == 0


def test_rows_of_a_semi_or_anti_join_are_kept_only_while_they_wait() -> None:
    given = [[rows(("a", 1, 0), ("b", 2, 0))], [rows(("a", 10, 1))]]
    for how in ("semi", "anti"):
        runner = MemoryRunner(kernel(how))
        runner.epoch(given, [NEVER, NEVER])
        (run,) = runner.state(0).runs("left", 0)
        assert run["k"].to_pylist() == ["b"]
        assert ("v" in run.column_names) == (how == "semi")  # an anti join has it among those that wait


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [(1, 5, 1)]),
        ("left", [(1, 5, 1), (9, None, 0)]),
        ("right", [(1, 5, 1), (None, 0, 1)]),
        ("full", [(1, 5, 1), (9, None, 0), (None, 0, 1)]),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_pair_counts_only_where_the_condition_holds(how: str, expected: list[Any], together: bool) -> None:
    left, right = rows(("a", 1, 0), ("a", 9, 0)), rows(("a", 5, 1), ("a", 0, 1))
    runner, found = MemoryRunner(kernel(how, where=SMALLER)), []
    for given in ([[left], [right]],) if together else ([[left], []], [[], [right]]):
        found += pairs(runner.epoch(given, [NEVER, NEVER]).rows)
    found += pairs(runner.epoch([[], []], [FOREVER, FOREVER]).rows)
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(("how", "expected"), [("semi", [1]), ("anti", [9])])
@pytest.mark.parametrize("right_first", [True, False])
def test_a_condition_decides_who_is_matched(how: str, expected: list[int], right_first: bool) -> None:
    left, right = rows(("a", 1, 0), ("a", 9, 0)), rows(("a", 5, 1), ("a", 0, 1))
    runner, found = MemoryRunner(kernel(how, where=SMALLER)), []
    for given in ([[], [right]], [[left], []]) if right_first else ([[left], []], [[], [right]]):
        found += own(runner.epoch(given, [NEVER, NEVER]).rows)
    found += own(runner.epoch([[], []], [FOREVER, FOREVER]).rows)
    assert [row[0] for row in found] == expected


def test_a_condition_that_is_null_does_not_hold_and_a_constant_counts_for_all() -> None:
    left, right = rows(("a", None, 0)), rows(("a", 5, 1))
    for where, met in ((SMALLER, 0), (Call("is_null", (V,), pa.bool_()), 1), (Literal(True, pa.bool_()), 1)):
        assert MemoryRunner(kernel(where=where)).epoch([[left], [right]], [NEVER, NEVER]).rows.num_rows == met


def test_what_is_left_of_many_pairs_is_kept_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.kernels.joins.matches.BLOCK", 4)
    left, right = rows(("a", 3, 0), ("a", 100, 0)), rows(*(("a", i, i) for i in range(10)))
    ran = MemoryRunner(kernel("left", where=SMALLER)).epoch([[left], [right]], [FOREVER, FOREVER])
    assert pairs(ran.rows) == sorted([(100, None, 0), *((3, i, i) for i in range(4, 10))], key=str)
