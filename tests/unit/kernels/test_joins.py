"""Interval joins: who meets whom, who stays alone, what is kept."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.change import HASH, POSITION, TIME, WATERMARK
from penstock.core.hashing import bucket_of
from penstock.core.time import FOREVER, NEVER
from penstock.kernels.joins import JoinKernel
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import State

SCHEMA = [("k", pa.string()), ("v", pa.int64())]


def kernel(
    how: Any = "inner", lo: int = 0, hi: int = 10, late: Any = "divert", key: pa.DataType | None = None, **more: Any
) -> JoinKernel:
    fields = [("k", key or pa.string()), ("v", pa.int64())]
    output = pa.schema([*fields, ("other", pa.int64())])
    return JoinKernel(["k"], lo, hi, how, late, pa.schema(fields), pa.schema(fields), [("other", "v")], output, **more)


def rows(*given: tuple[Any, ...], key: pa.DataType | None = None, watermark: int = NEVER) -> pa.Table:
    """(key, value, time); the position says the value and time."""
    columns = {"k": pa.array([g[0] for g in given], key or pa.string()), "v": pa.array([g[1] for g in given], pa.int64())}
    columns[TIME] = pa.array([g[2] for g in given], pa.int64())
    columns[WATERMARK] = pa.array([watermark] * len(given), pa.int64())
    columns[POSITION] = pa.array([f"s{g[1]}@{g[2]:03}".encode() for g in given], pa.binary())
    return pa.table(columns)


def pairs(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(((r["v"], r["other"], r[TIME]) for r in table.to_pylist()), key=str)


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
    assert not [slot for table in ("left", "right", "waiting", "matched") for slot in runner.state(0).slots(table)]


def test_late_rows_are_diverted_as_they_came_or_ignored() -> None:
    given = pa.concat_tables([rows(("a", 1, 5), watermark=6), rows(("a", 2, 6), watermark=6)])
    diverting, ignoring = kernel().prepare(0, given), kernel(late="ignore").prepare(1, given)
    assert diverting.late is not None
    assert diverting.late.to_pylist() == given.slice(0, 1).to_pylist()
    assert diverting.fates == {"on time": 1, "diverted": 1}
    assert ignoring.late is None
    assert ignoring.fates == {"on time": 1, "ignored": 1}


def test_the_frontier_is_held_back_by_what_a_left_row_may_wait() -> None:
    assert kernel("inner", 0, 10).frontier([50, 40]) == 40
    assert kernel("left", 0, 10).frontier([50, 40]) == 30
    assert kernel("left", -20, -10).frontier([50, 40]) == 40
    assert kernel("left").frontier([FOREVER, FOREVER]) == FOREVER
    assert kernel("left").frontier([NEVER, 5]) == NEVER


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
    monkeypatch.setattr("penstock.kernels.pairing._BLOCK", 3)
    left, right = rows(("a", 1, 0), ("a", 2, 0)), rows(*(("a", 10 + i, i) for i in range(5)))
    ran = MemoryRunner(kernel()).epoch([[left], [right]], [NEVER, NEVER])
    assert pairs(ran.rows) == [(v, 10 + i, i) for v in (1, 2) for i in range(5)]
