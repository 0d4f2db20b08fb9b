"""Aggregates that keep more than a number, in windows that overlap, are taken apart into panes and put together again."""

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.position import source_positions
from penstock.core.time import FOREVER, NEVER
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.registry import kernel_of
from penstock.plan import Aggregate, Spaced, Window

LONG, DOUBLE, TEXT = pa.int64(), pa.float64(), pa.string()
STAMP = pa.timestamp("us", "UTC")
INPUT = pa.schema([("k", TEXT), ("v", TEXT), ("x", LONG)])
AGGREGATES = (
    Aggregate("all", "collect", "v", pa.list_(TEXT)),
    Aggregate("last", "last", "v", TEXT, (), (True,)),
    Aggregate("top", "top", "v", pa.list_(TEXT), ("x",), (2,)),
    Aggregate("different", "distinct", "v", LONG),
    Aggregate("about", "distinct", "v", LONG, (), (0.02,)),
    Aggregate("median", "quantile", "x", DOUBLE, (), (0.5, 0.001)),
    Aggregate("rate", "rate", None, DOUBLE),
    Aggregate("own", "own", "x", LONG, (), (("x",), LONG, int, lambda s, rows: s + rows.num_rows, lambda a, b: a + b, None)),
)
SIZE, EVERY = 6_000_000, 2_000_000

Row = tuple[str, str, int, int]  # key, value, number, time in seconds


def table(rows: list[Row], first: int) -> pa.Table:
    columns = {f.name: pa.array([r[i] for r in rows], f.type) for i, f in enumerate(INPUT)}
    times = pa.array([r[3] * 1_000_000 for r in rows], LONG)
    positions = source_positions("t", 0, np.arange(first, first + len(rows)))
    return pa.table(columns | {TIME: times, WATERMARK: pa.array([NEVER] * len(rows), LONG), POSITION: positions})


def naive(rows: list[Row]) -> dict[tuple[str, int], dict[str, Any]]:
    windows: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        for start in range(row[3] * 1_000_000 // EVERY * EVERY, row[3] * 1_000_000 - SIZE, -EVERY):
            windows.setdefault((row[0], start), []).append(row)
    return {window: _told(sorted(its, key=lambda r: r[3])) for window, its in windows.items()}


def _told(rows: list[Row]) -> dict[str, Any]:
    numbers = sorted(r[2] for r in rows)
    return {
        "all": [r[1] for r in rows],
        "last": rows[-1][1],
        "top": [r[1] for r in sorted(rows, key=lambda r: -r[2])][:2],
        "different": len({r[1] for r in rows}),
        "about": len({r[1] for r in rows}),
        "median": pytest.approx(numbers[(len(numbers) + 1) // 2 - 1], rel=0.001),
        "rate": pytest.approx(len(rows) / 6),
        "own": len(rows),
    }


ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("uvwxyz"), st.integers(-3, 9), st.integers(-5, 12)), max_size=30)


@pytest.mark.parametrize("emit", ["final", "updates"])
@given(rows=ROWS, cuts=st.lists(st.integers(0, 30), max_size=3))
@settings(max_examples=25)
def test_overlapping_windows_tell_the_same_as_their_rows(emit: Any, rows: list[Row], cuts: list[int]) -> None:
    span = [timedelta(microseconds=us) for us in (SIZE, EVERY)]
    window = Window(("k",), Spaced(*span), AGGREGATES, "divert", timedelta(), emit)
    made = [("window_start", STAMP), ("window_end", STAMP), *((a.name, a.type) for a in AGGREGATES), ("revision", LONG)]
    runner = MemoryRunner(kernel_of(window, [INPUT], pa.schema([("k", TEXT), *made])), buckets=2, fanout=2)
    ends = sorted(min(cut, len(rows)) for cut in cuts)
    changes = []
    for a, b in zip([0, *ends], [*ends, len(rows)], strict=True):
        changes += runner.epoch([[table(rows[a:b], a)]], [NEVER]).rows.to_pylist()
    changes += runner.epoch([[]], [FOREVER]).rows.to_pylist()
    known: dict[tuple[str, int], dict[str, Any]] = {}
    for row in changes:
        key = row["k"], int(row["window_start"].timestamp() * 1_000_000)
        if row.get(OP) in (Op.UPDATE_BEFORE, Op.DELETE):
            known.pop(key)
        else:
            known[key] = {a.name: row[a.name] for a in AGGREGATES}
    assert known == naive(rows)
