"""Sliding per event: for each row the rows of its key in (t - size, t], whatever the cut."""

import math
import random
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from amount import cases
from colliding import colliding
from penstock import plan
from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.time import FOREVER, NEVER, moment
from penstock.kernels.aggregates import members, ranges
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import State
from penstock.kernels.registry import kernel_of
from penstock.kernels.waiting_rows import WaitingRows
from penstock.kernels.windows.sliding import MEMORY, SlidingKernel
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

COUNT, SUM = AGGREGATES[0], Agg("total", "sum", "v", pa.int64())


def kernel(
    size: int = 10,
    *aggregates: Agg,
    by: tuple[str, ...] = ("k",),
    late: Any = "divert",
    slots: tuple[int, int, int] = (2, 2, 2),
    schema: pa.Schema = SCHEMA,
) -> SlidingKernel:
    """slots: width of the slots of memory; width and factor of those of the rows that wait."""
    made = [("window_start", TIMESTAMP), ("window_end", TIMESTAMP), *((a.name, a.type) for a in aggregates)]
    output = pa.schema([*schema, *made, ("revision", pa.int64())])
    waiting = WaitingRows("waiting", 0, slots[1], slots[2])
    return SlidingKernel(by, size, aggregates, late, schema, output, waiting=waiting, slot_us=slots[0])


def specified(log: Log, size: int, frontier: int, by: tuple[str, ...], tell: Tell) -> list[dict[str, Any]]:
    rows = [r for r in log.rows if r.on_time]
    spans = [(r, [m for m in rows if _same(m, r, by) and r.t - size < m.t <= r.t]) for r in rows if frontier > r.t]
    return [_shown(r, size) | tell(span) for r, span in spans]


def _same(a: Row, b: Row, by: tuple[str, ...]) -> bool:
    return all(getattr(a, name) == getattr(b, name) for name in by)


def _shown(r: Row, size: int) -> dict[str, Any]:
    shown = {"k": r.k, "v": r.v, "x": r.x, "s": r.s, "window_start": moment(r.t - size), "window_end": moment(r.t)}
    return shown | {"revision": 0, TIME: r.t, WATERMARK: NEVER, POSITION: r.position}


def check(
    seed: int, aggregates: tuple[Agg, ...] = AGGREGATES, tell: Tell = aggregated, keys: tuple[str | None, ...] = KEYS
) -> None:
    rng = random.Random(seed)
    log, size, drain, late = a_log(rng, keys), rng.choice((1, 2, 5, 40)), rng.random() < 0.3, rng.choice(("divert", "ignore"))
    by: tuple[str, ...] = rng.choice((("k",), ("k",), (), ("k", "s")))
    slots = rng.choice((1, 2, 7)), rng.choice((1, 2, 7)), rng.choice((2, 3))
    made = kernel(size, *aggregates, by=by, late=late, slots=slots)
    expected = counted(specified(log, size, FOREVER if drain else log.frontier([len(p) for p in log.partitions]), by, tell))
    for out in (run_anyhow(made, log, rng, drain=drain), in_one_epoch(made, log, drain=drain)):
        assert counted(out.rows) == expected, seed
        assert out.fates == fates_of(log, late), seed
        assert diverted(log, late) == Counter(out.late), seed


@pytest.mark.parametrize("block", blocks(10))
def test_any_cut_gives_each_row_what_lies_behind_it(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        check(seed)


def test_keys_that_share_a_hash_stay_apart() -> None:
    for seed in range(1000, 1000 + cases(15)):
        check(seed, keys=colliding_keys())


def test_any_aggregate_is_put_together_from_few_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "_TOGETHER", 2)
    monkeypatch.setattr(members, "_BLOCK", 3)
    monkeypatch.setattr(ranges, "_SHORT", 0)
    for seed in range(2000, 2060):
        check(seed)


def test_any_cut_gives_every_kind_of_aggregate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "_TOGETHER", 3)
    for seed in range(3000, 3060):
        check(seed, OTHERS, otherwise)


def row(t: int, k: str | None = "a", v: int | None = 1, x: float | None = None, number: int = 0) -> Row:
    return Row(t, k, v, x, None, NEVER, b"%03d" % number)


def told(rows: pa.Table, name: str) -> list[tuple[int, Any]]:
    return sorted(zip(rows[TIME].to_pylist(), rows[name].to_pylist(), strict=True))


def test_a_row_comes_out_once_the_frontier_is_beyond_its_time() -> None:
    runner = MemoryRunner(kernel(10, COUNT))
    assert told(runner.epoch([[table([row(5), row(9)])]], [5]).rows, "n") == []
    assert told(runner.epoch([[]], [6]).rows, "n") == [(5, 1)]
    assert told(runner.epoch([[]], [9]).rows, "n") == []
    assert told(runner.epoch([[]], [10]).rows, "n") == [(9, 2)]
    assert told(runner.epoch([[]], [FOREVER]).rows, "n") == []


def test_peers_count_for_each_other_and_the_far_end_does_not() -> None:
    given = table([row(0, v=1), row(1, v=2), row(10, v=4), row(10, v=8), row(10, "b", v=16)])
    ran = MemoryRunner(kernel(10, SUM)).epoch([[given]], [FOREVER])
    assert told(ran.rows, "total") == [(0, 1), (1, 3), (10, 14), (10, 14), (10, 16)]


@pytest.mark.parametrize(("first", "second"), [colliding(2), colliding(2)[::-1]])
def test_a_key_does_not_see_another_of_its_hash_behind_its_own_rows(first: str, second: str) -> None:
    runner = MemoryRunner(kernel(10, COUNT))
    runner.epoch([[table([row(2, first), row(3, second)])]], [4])  # in one slot
    assert told(runner.epoch([[table([row(4, first)])]], [5]).rows, "n") == [(4, 2)]
    assert told(runner.epoch([[table([row(5, second)])]], [6]).rows, "n") == [(5, 2)]


def test_rows_that_wait_can_be_looked_at() -> None:
    runner = MemoryRunner(kernel(10, COUNT), buckets=2)
    runner.epoch([[table([row(1), row(5), row(7, "b")])]], [3])
    opened = runner.open_rows()
    assert opened is not None
    assert told(opened, "n") == [(5, 2), (7, 1)]


def test_nan_and_zero_are_keys_like_any_other() -> None:
    schema = pa.schema([("k", pa.float64())])
    keys = [0.0, -0.0, math.nan, math.nan, None]
    given = pa.table({"k": pa.array(keys, pa.float64()), TIME: pa.array(range(5), pa.int64()), POSITION: pa.array([b""] * 5)})
    ran = MemoryRunner(kernel(10, COUNT, schema=schema)).epoch([[given]], [FOREVER])
    assert told(ran.rows, "n") == [(0, 1), (1, 2), (2, 1), (3, 2), (4, 1)]
    assert [math.copysign(1, k) for k in ran.rows["k"].to_pylist()[:2]] == [1, -1]  # the row itself stays as it is


def test_a_great_double_leaves_no_trace_in_the_sums_after_it() -> None:
    values = [1e300, 0.1, 0.2, math.inf, 0.3, math.nan, 0.4, -math.inf, 0.5]
    given = table([row(10 * i, x=x) for i, x in enumerate(values)])
    ran = MemoryRunner(kernel(1, Agg("xs", "sum", "x", pa.float64()))).epoch([[given]], [FOREVER])
    assert str([x for _, x in told(ran.rows, "xs")]) == str(values)


@pytest.mark.parametrize(
    ("t", "values"),
    [
        (TIMESTAMP, [moment(5), None, moment(-7), moment(0)]),
        (pa.date32(), [date(2024, 1, 2), None, date(1969, 1, 1), date(2024, 1, 1)]),
        (pa.int8(), [3, None, -128, 127]),
        (pa.float32(), [0.5, None, math.inf, -0.25]),
        (pa.decimal128(30, 2), [Decimal("0.50"), None, Decimal("-7.00"), Decimal("0.10")]),
        (pa.string(), ["b", None, "", "c"]),
        (pa.bool_(), [True, None, False, True]),
    ],
)
def test_the_least_and_the_greatest_of_any_type(t: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("k", pa.string()), ("v", t)])
    columns = {"k": pa.array(["a"] * 4), "v": pa.array(values, t), TIME: pa.array(range(4)), POSITION: pa.array([b""] * 4)}
    made = kernel(2, Agg("low", "min", "v", t), Agg("high", "max", "v", t), schema=schema)
    ran = MemoryRunner(made).epoch([[pa.table(columns)]], [FOREVER])
    a, _, c, d = values
    assert told(ran.rows, "low") == [(0, a), (1, a), (2, c), (3, min(c, d))]
    assert told(ran.rows, "high") == [(0, a), (1, a), (2, c), (3, max(c, d))]


def test_times_centuries_apart_are_told_apart_to_the_microsecond() -> None:
    century = 100 * 365 * 86_400_000_000
    times = [i * century - 15 * century + j for i in range(60) for j in (0, 1, 10, 11)]
    rows = [row(t, key, number=i) for i, t in enumerate(times) for key in ("a", "b", "c")]
    ran = MemoryRunner(kernel(10, COUNT, slots=(century, century, 2))).epoch([[table(rows)]], [FOREVER])
    assert [n for _, n in told(ran.rows, "n")] == [n for _ in range(60) for n in (1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2)]


def test_a_flow_gets_the_kernel_it_describes() -> None:
    total = plan.Aggregate("total", "sum", "v", pa.int64())
    output = pa.schema(
        [*SCHEMA, ("window_start", TIMESTAMP), ("window_end", TIMESTAMP), ("total", pa.int64()), ("revision", pa.int64())]
    )
    definition = plan.Sliding(("k",), timedelta(seconds=2), (total,), "ignore")
    made = kernel_of(definition, [SCHEMA], output)
    ran = MemoryRunner(made).epoch([[table([row(0), row(2_000_000), row(2_000_001, v=5), row(0)._replace(W=1)])]], [FOREVER])
    assert told(ran.rows, "total") == [(0, 1), (2_000_000, 1), (2_000_001, 6)]
    assert ran.fates == {"on time": 3, "ignored": 1}


def test_memory_goes_when_nobody_can_look_back_upon_it() -> None:
    runner = MemoryRunner(kernel(10, COUNT, slots=(4, 4, 4)))
    runner.epoch([[table([row(t) for t in range(-8, 12)])]], [12])
    assert runner.state(0).slots(MEMORY) == [0, 4, 8]  # of the slot from 0 on two rows are still seen
    runner.epoch([[]], [14])
    assert runner.state(0).slots(MEMORY) == [4, 8]
    runner.epoch([[]], [FOREVER])
    assert all(not slots for slots in runner.state(0).runs_of.values())


def test_runs_are_sorted_by_hash_and_memory_holds_what_is_looked_at_alone() -> None:
    made = kernel(1000, COUNT, SUM, slots=(100, 100, 2))
    given = table([row(i * 31 % 900, f"key{i % 7}", number=i) for i in range(200)])
    changes = made.step(State(), [made.prepare(0, given).rows], [450]).changes
    assert {name for name, _ in changes.add} >= {"memory", "waiting0"}
    for (name, slot), run in changes.add.items():
        hashes = run[HASH].to_numpy()
        assert np.all(hashes[1:] >= hashes[:-1])
        if name == MEMORY:
            assert set(run.column_names) == {"k", "v", TIME, HASH}
            assert all(slot <= t < slot + 100 for t in run[TIME].to_pylist())


def test_late_rows_are_diverted_as_they_came_or_ignored() -> None:
    given = table([row(5)._replace(W=6), row(6)._replace(W=6)])
    diverting, ignoring = kernel().prepare(0, given), kernel(late="ignore").prepare(0, given)
    assert diverting.late is not None
    assert diverting.late.to_pylist() == given.slice(0, 1).to_pylist()
    assert diverting.fates == {"on time": 1, "diverted": 1}
    assert ignoring.late is None
    assert ignoring.fates == {"on time": 1, "ignored": 1}


@pytest.mark.parametrize("short", [0, 10**9])
@pytest.mark.parametrize("fold", [np.add, np.minimum, np.maximum])
def test_ranges_are_folded_whatever_blocks_they_cross(fold: Any, short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_SHORT", short)
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 17, 64, 65):
        values = rng.integers(-9, 9, n)
        begin = np.sort(rng.integers(0, n, 200))
        end = begin + 1 + rng.integers(0, n - begin)
        nothing = {np.add: 0, np.minimum: 99, np.maximum: -99}[fold]
        found = ranges.folded(values, begin, end, fold, nothing)
        assert found.tolist() == [fold.reduce(values[a:b]) for a, b in zip(begin, end, strict=True)]
