"""Count windows: every so many rows of a key in the order (time, position), whatever the cut."""

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from amount import cases
from penstock import plan
from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.position import window_positions
from penstock.core.time import FOREVER, NEVER, moment
from penstock.kernels.columns import column
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.registry import kernel_of
from penstock.kernels.waiting_rows import WaitingRows
from penstock.kernels.windows.counts import OPEN, CountKernel
from unit.kernels.cutting import (
    AGGREGATES,
    KEYS,
    OTHERS,
    SCHEMA,
    TIMESTAMP,
    Agg,
    Log,
    Row,
    a_log,
    aggregated,
    blocks,
    colliding_keys,
    counted,
    diverted,
    fates_of,
    in_one_epoch,
    otherwise,
    run_anyhow,
    table,
)

Tell = Callable[[list[Row]], dict[str, Any]]

COUNT = AGGREGATES[0]


def kernel(
    rows: int,
    *aggregates: Agg,
    by: tuple[str, ...] = ("k",),
    late: Any = "divert",
    slots: tuple[int, int] = (2, 2),
    schema: pa.Schema = SCHEMA,
) -> CountKernel:
    """slots: width and factor of the slots of the rows that wait."""
    made = [("window_start", TIMESTAMP), ("window_end", TIMESTAMP), *((a.name, a.type) for a in aggregates)]
    output = pa.schema([*(schema.field(name) for name in by), *made, ("revision", pa.int64())])
    return CountKernel(by, rows, aggregates, late, schema, output, waiting=WaitingRows("waiting", 0, *slots))


def specified(log: Log, size: int, frontier: int, by: tuple[str, ...], tell: Tell) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for r in sorted((r for r in log.rows if r.on_time and frontier > r.t), key=lambda r: r.order):
        groups.setdefault(tuple(getattr(r, name) for name in by), []).append(r)
    return [
        _shown(dict(zip(by, key, strict=True)), number, window := rows[number * size : number * size + size]) | tell(window)
        for key, rows in groups.items()
        for number in range(len(rows) // size)
    ]


def _shown(key: dict[str, Any], number: int, rows: list[Row]) -> dict[str, Any]:
    shown = key | {"window_start": moment(rows[0].t), "window_end": moment(rows[-1].t)}
    position = window_positions([pa.array([v], pa.string()) for v in key.values()], pa.array([number]).to_numpy())
    return shown | {"revision": 0, TIME: rows[-1].t, WATERMARK: NEVER, POSITION: position[0].as_py()}


def check(
    seed: int, aggregates: tuple[Agg, ...] = AGGREGATES, tell: Tell = aggregated, keys: tuple[str | None, ...] = KEYS
) -> None:
    rng = random.Random(seed)
    log, rows, drain, late = a_log(rng, keys), rng.choice((1, 2, 2, 3, 7)), rng.random() < 0.3, rng.choice(("divert", "ignore"))
    by: tuple[str, ...] = rng.choice((("k",), ("k",), (), ("k", "s")))
    made = kernel(rows, *aggregates, by=by, late=late, slots=(rng.choice((1, 2, 7)), rng.choice((2, 3))))
    expected = counted(specified(log, rows, FOREVER if drain else log.frontier([len(p) for p in log.partitions]), by, tell))
    for out in (run_anyhow(made, log, rng, drain=drain), in_one_epoch(made, log, drain=drain)):
        assert counted(out.rows) == expected, seed
        assert out.fates == fates_of(log, late), seed
        assert diverted(log, late) == Counter(out.late), seed


@pytest.mark.parametrize("block", blocks(10))
def test_any_cut_gives_the_same_windows(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        check(seed)


def test_keys_that_share_a_hash_stay_apart() -> None:
    for seed in range(1000, 1000 + cases(15)):
        check(seed, keys=colliding_keys())


def test_any_cut_gives_every_kind_of_aggregate() -> None:
    for seed in range(3000, 3060):
        check(seed, OTHERS, otherwise)


def row(t: int, k: str | None = "a", number: int = 0) -> Row:
    return Row(t, k, number, None, None, NEVER, b"%03d" % number)


def told(rows: pa.Table | None, name: str) -> list[tuple[Any, ...]]:
    assert rows is not None
    return sorted((r["k"], r[TIME], r[name]) for r in rows.to_pylist())


def test_a_window_comes_out_when_its_last_row_is_taken() -> None:
    runner = MemoryRunner(kernel(2, COUNT))
    assert runner.epoch([[table([row(5, number=1), row(9, number=2)])]], [9]).rows.num_rows == 0
    assert told(runner.epoch([[]], [10]).rows, "n") == [("a", 9, 2)]
    assert runner.epoch([[]], [FOREVER]).rows.num_rows == 0


def test_rows_of_one_time_are_counted_by_their_positions() -> None:
    low = Agg("low", "min", "v", pa.int64())
    runner = MemoryRunner(kernel(2, low))
    runner.epoch([[table([row(5, number=n) for n in (4, 1, 3)])]], [5])
    ran = runner.epoch([[table([row(5, number=n) for n in (2, 0)])]], [6])
    assert told(ran.rows, "low") == [("a", 5, 0), ("a", 5, 2)]


def test_windows_that_are_not_full_can_be_looked_at_with_the_rows_that_wait() -> None:
    runner = MemoryRunner(kernel(3, COUNT), buckets=2)
    given = [
        row(1, "a", 1),
        row(2, "a", 2),
        row(1, "b", 3),
        row(8, "a", 4),
        row(9, "a", 5),
        row(1, "c", 6),
        row(1, "c", 7),
        row(1, "c", 8),
    ]
    runner.epoch([[table(given)]], [5])
    assert told(runner.open_rows(), "n") == [("a", 8, 3), ("a", 9, 1), ("b", 1, 1)]


def test_a_key_is_kept_once_with_the_number_of_its_full_windows() -> None:
    runner = MemoryRunner(kernel(2, COUNT), fanout=2)
    for i in range(8):
        runner.epoch([[table([row(i, number=i)])]], [i + 1])
    (run,) = runner.state(0).runs(OPEN, 0)
    assert [(r["k"], r["__number"], r["__rows"]) for r in run.to_pylist()] == [("a", 4, 0)]


def test_zero_and_minus_zero_are_one_key() -> None:
    schema = pa.schema([("k", pa.float64())])
    keys = [-0.0, 0.0, math.nan, math.nan, None, None]
    given = pa.table({"k": pa.array(keys, pa.float64()), TIME: pa.array(range(6), pa.int64()), POSITION: pa.array([b""] * 6)})
    ran = MemoryRunner(kernel(2, COUNT, schema=schema)).epoch([[given]], [FOREVER])
    assert sorted(map(str, ran.rows["k"].to_pylist())) == ["0.0", "None", "nan"]


def test_a_flow_gets_the_kernel_it_describes() -> None:
    total = plan.Aggregate("total", "sum", "v", pa.int64())
    output = pa.schema(
        [
            ("k", pa.string()),
            ("window_start", TIMESTAMP),
            ("window_end", TIMESTAMP),
            ("total", pa.int64()),
            ("revision", pa.int64()),
        ]
    )
    definition = plan.Count(("k",), 2, (total,), "ignore")
    made = kernel_of(definition, [SCHEMA], output)
    ran = MemoryRunner(made).epoch(
        [[table([row(1, number=1), row(2, number=2), row(3, number=3), row(4)._replace(W=5)])]], [FOREVER]
    )
    assert told(ran.rows, "total") == [("a", 2, 3)]
    assert ran.fates == {"on time": 3, "ignored": 1}


def test_runs_are_sorted_by_hash() -> None:
    made = kernel(3, COUNT)
    stepped = made.step(
        MemoryRunner(made).state(0), [made.prepare(0, table([row(i, f"{i % 40}", i) for i in range(90)])).rows], [80]
    )
    assert {name for name, _ in stepped.changes.add} == {OPEN, "waiting0", "waiting1", "waiting2"}
    for run in stepped.changes.add.values():
        hashes = column(run, HASH).to_pylist()
        assert hashes == sorted(hashes)


def test_state_of_rows_that_waited_goes() -> None:
    runner = MemoryRunner(kernel(3, COUNT))
    runner.epoch([[table([row(t, number=t) for t in range(0, 90, 7)])]], [NEVER])
    runner.epoch([[]], [FOREVER])
    assert {name for name, slots in runner.state(0).runs_of.items() if slots} == {OPEN}
