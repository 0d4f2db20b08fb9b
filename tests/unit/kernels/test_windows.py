"""Tumbling windows: what comes out, when, and of which type."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.time import FOREVER, NEVER
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import State
from penstock.kernels.windows.final import WindowKernel
from penstock.kernels.windows.panes import PaneKernel
from penstock.plan import Aggregate as Agg
from penstock.plan.layouts import Spaced

TIMESTAMP = pa.timestamp("us", tz="UTC")
TEN = timedelta(microseconds=10)


def kernel(
    columns: list[tuple[str, pa.DataType]], *aggregates: Agg, by: tuple[str, ...] = ("k",), late: Any = "divert"
) -> WindowKernel:
    schema = pa.schema(columns)
    keys = [(name, schema.field(name).type) for name in by]
    times = [("window_start", TIMESTAMP), ("window_end", TIMESTAMP)]
    output = pa.schema([*keys, *times, *((a.name, a.type) for a in aggregates), ("revision", pa.int64())])
    return WindowKernel(by, Spaced(TEN, TEN), aggregates, late, schema, output)


def table(schema: list[tuple[str, pa.DataType]], *rows: tuple[Any, ...], times: list[int] | None = None) -> pa.Table:
    columns = {name: pa.array([r[i] for r in rows], t) for i, (name, t) in enumerate(schema)}
    at = times or [1] * len(rows)
    return pa.table(columns | {TIME: pa.array(at, pa.int64()), WATERMARK: pa.array([NEVER] * len(rows), pa.int64())})


def aggregated(t: pa.DataType, values: list[Any], function: str, result: pa.DataType) -> Any:
    """One aggregate over one group, cut into three epochs."""
    columns = [("k", pa.string()), ("v", t)]
    runner = MemoryRunner(kernel(columns, Agg("a", function, "v", result)), fanout=2)
    for v in values:
        runner.epoch([[table(columns, ("x", v))]], [NEVER])
    (row,) = runner.epoch([[]], [FOREVER]).rows.to_pylist()
    return row["a"]


@pytest.mark.parametrize(
    ("t", "values", "function", "result", "expected"),
    [
        (pa.int64(), [2**62, 2**62, -(2**62)], "sum", pa.int64(), 2**62),
        (pa.int32(), [2**31 - 1, 2**31 - 1], "sum", pa.int64(), 2**32 - 2),
        (pa.int8(), [100, 100, None], "sum", pa.int64(), 200),
        (pa.int64(), [None, None], "sum", pa.int64(), None),
        (pa.int64(), [1, 2, None], "avg", pa.float64(), 1.5),
        (pa.int64(), [2**62 + 1, 2**62 + 1, 2**62 + 1], "avg", pa.float64(), float(2**62 + 1)),
        (pa.int64(), [None], "avg", pa.float64(), None),
        (pa.int64(), [None, 3, None], "count", pa.int64(), 1),
        (pa.float32(), [0.5, 0.25], "sum", pa.float64(), 0.75),
        (pa.float64(), [math.inf, 1.0], "max", pa.float64(), math.inf),
        (pa.float64(), [-0.0], "min", pa.float64(), 0.0),
        (pa.decimal128(10, 2), [Decimal("1.10"), None, Decimal("2.25")], "sum", pa.decimal128(20, 2), Decimal("3.35")),
        (
            pa.decimal128(10, 2),
            [Decimal("1.00"), Decimal("0.00"), Decimal("0.00")],
            "avg",
            pa.decimal128(14, 6),
            Decimal("0.333333"),
        ),
        (pa.decimal128(10, 2), [Decimal("0.01"), Decimal("0.02")], "avg", pa.decimal128(10, 2), Decimal("0.02")),
        (pa.decimal128(30, 2), [Decimal("-7.00"), Decimal("2.25")], "min", pa.decimal128(30, 2), Decimal("-7.00")),
        (pa.string(), ["é", "z", None], "max", pa.string(), "é"),
        (pa.string(), [None], "min", pa.string(), None),
        (pa.bool_(), [True, False], "min", pa.bool_(), False),
        (pa.date32(), [date(1969, 1, 1), date(2024, 1, 1)], "min", pa.date32(), date(1969, 1, 1)),
        (TIMESTAMP, [datetime(2024, 1, 1, tzinfo=UTC), None], "max", TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_aggregates_are_those_of_sql(t: pa.DataType, values: list[Any], function: str, result: pa.DataType, expected: Any) -> None:
    assert aggregated(t, values, function, result) == expected


def test_nan_is_the_greatest_number() -> None:
    assert math.isnan(aggregated(pa.float64(), [math.nan, 1.0], "max", pa.float64()))
    assert aggregated(pa.float64(), [math.nan, 1.0], "min", pa.float64()) == 1.0
    assert math.isnan(aggregated(pa.float64(), [math.nan], "min", pa.float64()))
    assert math.isnan(aggregated(pa.float64(), [math.nan, 1.0], "sum", pa.float64()))


def test_a_sum_beyond_a_long_is_null_and_not_a_wrong_number() -> None:
    assert aggregated(pa.int64(), [2**62, 2**62], "sum", pa.int64()) is None


COUNT = Agg("n", "count", None, pa.int64())
KEYED = [("k", pa.string())]


def test_a_window_comes_out_once_the_frontier_reaches_its_end() -> None:
    runner = MemoryRunner(kernel(KEYED, COUNT))
    assert runner.epoch([[table(KEYED, ("a",), ("a",), times=[3, 9])]], [9]).rows.num_rows == 0
    (row,) = runner.epoch([[]], [10]).rows.to_pylist()
    assert (row["k"], row["n"], row["revision"], row[TIME], row[WATERMARK]) == ("a", 2, 0, 9, NEVER)
    assert (row["window_start"], row["window_end"]) == (
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, microsecond=10, tzinfo=UTC),
    )
    assert runner.epoch([[]], [FOREVER]).rows.num_rows == 0
    assert not runner.state(0).slots("open")


def test_windows_not_yet_complete_can_be_looked_at() -> None:
    runner = MemoryRunner(kernel(KEYED, COUNT), buckets=3)
    runner.epoch([[table(KEYED, ("a",), ("b",), times=[-3, 9])]], [NEVER])
    runner.epoch([[table(KEYED, ("a",), times=[-4])]], [NEVER])
    opened = runner.open_rows()
    assert opened is not None
    assert sorted((r["k"], r["n"], r[TIME]) for r in opened.to_pylist()) == [("a", 2, -1), ("b", 1, 9)]


def test_without_keys_there_is_one_group() -> None:
    runner = MemoryRunner(kernel(KEYED, COUNT, by=()), buckets=2)
    ran = runner.epoch([[table(KEYED, ("a",), ("b",))]], [FOREVER])
    assert ran.rows["n"].to_pylist() == [2]


def test_null_and_zero_are_keys_like_any_other() -> None:
    columns = [("k", pa.float64())]
    ran = MemoryRunner(kernel(columns, COUNT)).epoch(
        [[table(columns, (None,), (0.0,), (-0.0,), (math.nan,), (math.nan,))]], [FOREVER]
    )
    counts = {str(r["k"]): r["n"] for r in ran.rows.to_pylist()}
    assert counts == {"None": 1, "0.0": 2, "nan": 2}


def late_table() -> pa.Table:
    rows = table(KEYED, ("a",), ("b",), times=[5, 15])
    rows = rows.set_column(rows.column_names.index(WATERMARK), WATERMARK, pa.array([10, 12]))
    return rows.append_column(POSITION, pa.array([b"1", b"2"], pa.binary()))


def test_late_rows_are_diverted_as_they_came() -> None:
    prepared = kernel(KEYED, COUNT).prepare(0, late_table())
    assert prepared.late is not None
    assert prepared.late.to_pylist() == [{"k": "a", TIME: 5, WATERMARK: 10, POSITION: b"1"}]
    assert prepared.fates == {"on time": 1, "diverted": 1}
    assert prepared.rows.num_rows == 1


def test_ignored_rows_are_counted() -> None:
    prepared = kernel(KEYED, COUNT, late="ignore").prepare(0, late_table())
    assert prepared.late is None
    assert prepared.fates == {"on time": 1, "ignored": 1}


def test_an_epoch_adds_one_sorted_run_to_each_window_it_touched() -> None:
    k = kernel(KEYED, COUNT)
    prepared = k.prepare(0, table(KEYED, *((str(i),) for i in range(50)), times=[i % 30 for i in range(50)]))
    stepped = k.step(State(), [prepared.rows], [10])
    assert set(stepped.changes.add) == {("open", 10), ("open", 20)}
    for run in stepped.changes.add.values():
        hashes = run[HASH].to_pylist()
        assert hashes == sorted(hashes)
    assert stepped.rows.num_rows == 20


@pytest.mark.parametrize("overlap", [1, 2, 6, 60])
def test_however_much_windows_overlap_a_row_is_added_up_once(overlap: int) -> None:
    rows = pa.table({"k": ["a", "b"] * 300, TIME: pa.array(range(600), pa.int64())})
    output = pa.schema([("k", pa.string()), ("window_start", TIMESTAMP), ("window_end", TIMESTAMP), ("n", pa.int64())])
    layout = Spaced(overlap * TEN, TEN)
    made = PaneKernel(["k"], layout, [Agg("n", "count", None, pa.int64())], "ignore", rows.schema, output)
    partials = made.prepare(0, rows).rows
    assert partials.num_rows == 2 * 60, "one partial result for each key and pane"
