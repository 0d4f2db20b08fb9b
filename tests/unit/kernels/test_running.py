"""Running aggregates: one row per key, kept up to date, whatever the cut."""

import random
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from amount import cases
from penstock import plan
from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.position import Position, window_positions
from penstock.core.time import FOREVER, NEVER
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.registry import kernel_of
from penstock.kernels.windows.running import KeptKernel, RunningKernel
from unit.kernels.cutting import (
    AGGREGATES,
    SCHEMA,
    Agg,
    Log,
    Row,
    a_log,
    aggregated,
    blocks,
    colliding_keys,
    counted,
    in_one_epoch,
    run_anyhow,
    table,
)
from unit.kernels.sending import folded

FEW = tuple(a for a in AGGREGATES if a.name in ("n", "high"))
MICRO = timedelta(microseconds=1)


@dataclass(frozen=True)
class Running:
    keep: timedelta | None = None
    aggregates: tuple[Agg, ...] = FEW
    by: tuple[str, ...] = ("k",)


def output(running: Running) -> pa.Schema:
    return pa.schema([*((k, SCHEMA.field(k).type) for k in running.by), *((a.name, a.type) for a in running.aggregates)])


def kernel(running: Running, slot: int = 3) -> RunningKernel:
    if running.keep is None:
        return RunningKernel(running, SCHEMA, output(running))
    return KeptKernel(running, SCHEMA, output(running), running.keep // MICRO, slot_us=slot)


def shown(rows: list[Row], running: Running) -> dict[str, Any]:
    keys = [pa.array([getattr(rows[0], name)], pa.string()) for name in running.by]
    position = window_positions(keys, pa.array([0]).to_numpy())[0].as_py()
    made = {TIME: max(r.t for r in rows), WATERMARK: NEVER, POSITION: position}
    values = aggregated(rows)
    return {n: getattr(rows[0], n) for n in running.by} | {a.name: values[a.name] for a in running.aggregates} | made


def too_old(row: Row, running: Running) -> bool:
    return running.keep is not None and row.t + running.keep // MICRO <= row.W


def specified(log: Log, running: Running, frontier: int) -> list[dict[str, Any]]:
    """By definition: all rows of a key; with keep, those since it was last silent for so long, unless it still is."""
    out = []
    for key in {tuple(getattr(r, name) for name in running.by) for r in log.rows}:
        mine = [r for r in log.rows if tuple(getattr(r, name) for name in running.by) == key and not too_old(r, running)]
        rows = sorted(mine, key=lambda r: r.order)
        if running.keep is not None:
            keep = running.keep // MICRO
            begins = [i for i in range(len(rows)) if i == 0 or rows[i].t - rows[i - 1].t >= keep]
            rows = rows[begins[-1] :] if rows and rows[-1].t + 2 * keep > frontier else []
        if rows:
            out.append(shown(rows, running))
    return out


def hold(log: Log, running: Running, made: RunningKernel, rng: random.Random, seed: int) -> None:
    drain = rng.random() < 0.3
    out, once = run_anyhow(made, log, rng, drain=drain), in_one_epoch(made, log, drain=drain)
    expected = counted(specified(log, running, out.frontier))
    assert counted(folded(once, [POSITION])) == expected, seed
    assert counted(folded(out, [POSITION])) == expected, seed
    fates = Counter("too old" if too_old(r, running) else "passed" for r in log.rows)
    assert out.fates == once.fates == fates, seed


def a_lively_log(rng: random.Random) -> Log:
    """One key, seldom silent for long."""
    now, mark, rows, marks = 0, NEVER, [], [NEVER]
    for offset in range(rng.choice((10, 30))):
        now += rng.choice((0, 1, 1, 1, 1, 2))
        t = now - rng.choice((0, 0, 0, 1, 4))
        rows.append(Row(t, "a", offset, None, None, mark, Position("topic", 0, offset).encode()))
        mark = max(mark, t - 1)
        marks.append(mark)
    return Log([rows], [marks])


@pytest.mark.parametrize("block", blocks(5))
def test_any_cut_shows_every_key_over_all_its_rows(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        rng = random.Random(seed)
        running = Running(None, rng.choice((FEW, AGGREGATES)), rng.choice((("k",), ("k", "s"), ())))
        hold(a_log(rng, colliding_keys()), running, kernel(running), rng, seed)


@pytest.mark.parametrize("block", blocks(6))
def test_any_cut_shows_a_key_that_is_kept_since_it_was_last_silent(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        rng = random.Random(seed)
        keep = rng.choice((1, 2, 3, 5, 8, 40)) * MICRO
        running = Running(keep, rng.choice((FEW, FEW, AGGREGATES)), rng.choice((("k",), ("k",), ("k", "s"), ())))
        hold(rng.choice((a_log, a_lively_log))(rng), running, kernel(running, rng.choice((1, 2, 7, 50))), rng, seed)


def test_keys_that_share_a_hash_stay_apart() -> None:
    for seed in range(cases(12)):
        rng = random.Random(seed)
        running = Running(rng.choice((None, 5 * MICRO)))
        hold(a_log(rng, colliding_keys()), running, kernel(running), rng, seed)


def row(t: int, v: int, key: str = "a", mark: int = NEVER) -> Row:
    return Row(t, key, v, None, None, mark, Position("topic", 0, v).encode())


def said(ran: Any) -> list[tuple[Any, ...]]:
    """(op, key, number of rows, time) of what came out, in its order."""
    return [(r[OP], r["k"], r["n"], r[TIME]) for r in ran.rows.to_pylist()]


def test_a_key_is_told_anew_when_its_rows_come_and_only_then() -> None:
    runner = MemoryRunner(kernel(Running()))
    assert sorted(said(runner.epoch([[table([row(5, 1), row(3, 2), row(4, 3, "b")])]], [NEVER]))) == [
        (Op.INSERT, "a", 2, 5),
        (Op.INSERT, "b", 1, 4),
    ]
    assert said(runner.epoch([[]], [FOREVER])) == []
    assert said(runner.epoch([[table([row(1, 4, mark=FOREVER)])]], [FOREVER])) == [
        (Op.UPDATE_BEFORE, "a", 2, 5),
        (Op.UPDATE_AFTER, "a", 3, 5),
    ]


def test_a_row_that_changes_neither_value_nor_time_is_not_sent() -> None:
    runner = MemoryRunner(kernel(Running(aggregates=FEW[1:])))
    assert runner.epoch([[table([row(5, 3)])]], [NEVER]).rows.num_rows == 1
    assert runner.epoch([[table([row(5, 2)])]], [NEVER]).rows.num_rows == 0
    assert runner.epoch([[table([row(6, 2)])]], [NEVER]).rows[TIME].to_pylist() == [5, 6]


def test_a_key_that_is_kept_goes_after_twice_that_long_and_comes_back_as_new() -> None:
    runner = MemoryRunner(kernel(Running(10 * MICRO)))
    assert said(runner.epoch([[table([row(0, 1)])]], [0])) == [(Op.INSERT, "a", 1, 0)]
    assert said(runner.epoch([[]], [19])) == []
    assert said(runner.epoch([[]], [20])) == [(Op.DELETE, "a", 1, 0)]
    assert said(runner.epoch([[table([row(25, 2, mark=20)])]], [20])) == [(Op.INSERT, "a", 1, 25)]
    ran = runner.epoch([[table([row(10, 3, mark=20)])]], [20])
    assert ran.fates == {"too old": 1}
    assert not ran.rows.num_rows


def test_keys_that_went_leave_no_state() -> None:
    runner = MemoryRunner(kernel(Running(10 * MICRO)))
    for t in range(0, 600, 30):
        runner.epoch([[table([row(t, t, str(t), mark=t)])]], [t])
        state = runner.state(0)
        assert sum(run.num_rows for name in state.runs_of for slot in state.slots(name) for run in state.runs(name, slot)) < 12


def test_a_plan_of_a_flow_makes_the_kernel() -> None:
    for keep, made in ((None, RunningKernel), (timedelta(hours=1), KeptKernel)):
        running = Running(keep)
        node = plan.Running(running.by, running.aggregates, keep)  # type: ignore[arg-type]
        assert type(kernel_of(node, [SCHEMA], output(running))) is made
