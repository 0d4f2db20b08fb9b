"""The last rows: they come, they go, whatever the cut."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from colliding import colliding
from penstock import plan
from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.time import FOREVER, NEVER
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.registry import kernel_of
from penstock.kernels.windows.last import LastKernel, shown_rows
from unit.kernels.cutting import SCHEMA, Log, Outcome, Row, a_log, blocks, counted, in_one_epoch, run_anyhow, table


def kernel(size: int, width: int = 2, factor: int = 2) -> LastKernel:
    return LastKernel(size, SCHEMA, shown=shown_rows(size, width=width, factor=factor))


def shown(row: Row) -> dict[str, Any]:
    return {"k": row.k, "v": row.v, "x": row.x, "s": row.s, TIME: row.t, WATERMARK: NEVER, POSITION: row.position}


def specified(log: Log, size: int, frontier: int) -> list[dict[str, Any]]:
    return [shown(r) for r in log.rows if r.t > frontier - size]


def folded(out: Outcome) -> list[dict[str, Any]]:
    """What is shown in the end; on the way, a row is deleted only as it was inserted, and changes once in an epoch."""
    rows: dict[bytes, dict[str, Any]] = {}
    for epoch in out.epochs:
        assert len({c[POSITION] for c in epoch}) == len(epoch)
        for change in epoch:
            row = {name: value for name, value in change.items() if name != OP}
            if change[OP] == Op.INSERT:
                assert row[POSITION] not in rows
                rows[row[POSITION]] = row
            else:
                assert change[OP] == Op.DELETE
                assert counted([rows.pop(row[POSITION])]) == counted([row])
    return list(rows.values())


@pytest.mark.parametrize("block", blocks(10))
def test_any_cut_shows_the_rows_of_the_last_so_long(block: int) -> None:
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        log, size, drain = a_log(rng), rng.choice((1, 2, 5, 40)), rng.random() < 0.3
        made = kernel(size, rng.choice((1, 2, 7)), rng.choice((2, 3)))
        out, once = run_anyhow(made, log, rng, drain=drain), in_one_epoch(made, log, drain=drain)
        expected = counted(specified(log, size, out.frontier))
        assert counted(folded(out)) == expected, seed
        assert counted(folded(once)) == expected, seed
        assert out.fates == once.fates == {"passed": len(log.rows)}


def of_one_hash(log: Log) -> Log:
    """The same rows, at positions that share a hash."""
    positions = iter(colliding(len(log.rows)))
    return replace(log, partitions=[[r._replace(position=next(positions).encode()) for r in rows] for rows in log.partitions])


def test_rows_whose_positions_share_a_hash_stay_apart() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        log = of_one_hash(a_log(rng))
        out = run_anyhow(kernel(5), log, rng, drain=False)
        assert counted(folded(out)) == counted(specified(log, 5, out.frontier))


def row(t: int, number: int = 0) -> Row:
    return Row(t, "a", 1, None, None, NEVER, b"%03d" % number)


def ops(ran: Any) -> list[tuple[int, int]]:
    return [(r[TIME], r[OP]) for r in ran.rows.to_pylist()]


def test_a_row_goes_when_the_frontier_reaches_its_time_and_the_size() -> None:
    runner = MemoryRunner(kernel(10))
    assert ops(runner.epoch([[table([row(5)])]], [0])) == [(5, Op.INSERT)]
    assert ops(runner.epoch([[]], [14])) == []
    assert ops(runner.epoch([[]], [15])) == [(5, Op.DELETE)]
    assert ops(runner.epoch([[]], [FOREVER])) == []


def test_a_row_that_is_too_old_when_it_comes_is_never_shown() -> None:
    runner = MemoryRunner(kernel(10))
    assert ops(runner.epoch([[table([row(5, 1), row(6, 2)])]], [15])) == [(6, Op.INSERT)]
    assert ops(runner.epoch([[]], [FOREVER])) == [(6, Op.DELETE)]


def test_a_flow_gets_the_kernel_it_describes() -> None:
    definition = plan.Last(timedelta(seconds=1))
    runner = MemoryRunner(kernel_of(definition, [SCHEMA], SCHEMA))
    assert ops(runner.epoch([[table([row(5)])]], [0])) == [(5, Op.INSERT)]
    assert ops(runner.epoch([[]], [1_000_004])) == []
    assert ops(runner.epoch([[]], [1_000_005])) == [(5, Op.DELETE)]


def test_an_epoch_reads_the_slots_that_fall_due_alone() -> None:
    made = kernel(10, width=4, factor=4)
    runner = MemoryRunner(made)
    runner.epoch([[table([row(t, t + 50) for t in range(-40, 300)])]], [NEVER])
    runner.epoch([[]], [-35])
    opened: list[tuple[str, int]] = []
    state = runner.state(0)
    watched = type(state)(
        {
            name: {slot: [_watched(opened, name, slot, run) for run in runs] for slot, runs in slots.items()}
            for name, slots in state.runs_of.items()
        },
        state.frontiers,
    )
    stepped = made.step(watched, [None], [-28])
    assert sorted(stepped.rows[TIME].to_pylist()) == [-40, -39, -38]
    assert opened == [("shown0", -40)]


def _watched(opened: list[tuple[str, int]], name: str, slot: int, run: Any) -> Any:
    def read() -> pa.Table:
        opened.append((name, slot))
        return run()

    return read


def test_state_is_empty_at_the_end_of_input() -> None:
    runner = MemoryRunner(kernel(10), buckets=2)
    runner.epoch([[table([row(t, t + 50) for t in range(-40, 300, 7)])]], [NEVER])
    runner.epoch([[]], [FOREVER])
    assert all(not slots for b in range(2) for slots in runner.state(b).runs_of.values())
