"""One row an epoch tells what all rows in one tell, of NaN, infinities, -0.0 and the greatest numbers, for every aggregate. (G5)"""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amount import cases
from penstock.kernels.aggregates import exact, partials
from penstock.kernels.aggregates.functions import FUNCTIONS
from penstock.kernels.aggregates.sums import Variance
from penstock.testing.driver import FlowTest

from .extremes import AGGREGATES, NUMBERS, STEPS, comparable, expected, rows_of, run, told
from .law import Broken, hold

FIRST = int(os.environ.get("PENSTOCK_LAW_SEED", "0"))
ALIKE = ("hopping", "running for a while", "over the last rows")  # as others aggregate; the long run tries them too
PARTS_OF_GROUPS = ("hopping", "sliding", "count")  # what they tell is not of all rows of a group


def law_holds(step: str, seed: int, groups: int = 20, most: int = 4) -> None:
    """Broken if the cut changes what a step tells, or if it does not tell what the definition says."""
    rows = rows_of(seed, groups, most)
    whole = told(run(step, [rows]))
    hold(bool(whole), f"{step} tells nothing")
    sizes = Counter(row["g"] for row in rows)
    few = {0, *(g for g, size in sizes.items() if size == 1)}  # these groups are read a row at a time, all others a row of each
    alone = [[row] for row in rows if row["g"] in few]
    by_round = [[row for row in rows if row["g"] not in few and row["id"] % most == n] for n in range(most)]
    for key, row in told(run(step, [*alone, *by_round])).items():
        differs = {n: (v, whole[key][n]) for n, v in row.items() if v != whole[key][n]}
        hold(not differs, f"{step} of {key}: the cut changes", differs, _group(rows, key))
    for key, row in whole.items() if step not in PARTS_OF_GROUPS else ():
        mine = [r for r in rows if r["g"] == key[0]]
        wrong = {n: (row[n], v) for n, v in expected(mine) if n in row and row[n] != comparable(n, v)}
        hold(not wrong, f"{step} of {key}: not what it should be", wrong, _group(rows, key))


def _group(rows: list[dict[str, Any]], key: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [{n: v for n, v in row.items() if n in NUMBERS} for row in rows if row["g"] == key[0]]


@pytest.mark.parametrize("step", [step for step in STEPS if step not in ALIKE])
def test_the_cut_changes_no_aggregate_of_extreme_values(step: str) -> None:
    law_holds(step, FIRST)


@pytest.mark.parametrize("step", ["tumbling", "over a table"])
def test_many_rows_are_aggregated_as_few_are(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows are grouped by a planned query, few at once: here all of them by a plan."""
    monkeypatch.setattr(partials, "_FEW", 0)
    law_holds(step, FIRST)


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_the_cut_changes_no_aggregate_of_many_more_extreme_values(step: str) -> None:
    for seed in range(FIRST + 100, FIRST + 100 + cases(12)):
        law_holds(step, seed, groups=60, most=5)


def test_every_aggregate_is_tried() -> None:
    assert set(AGGREGATES) == set(FUNCTIONS), "a new aggregate needs a line in extremes.py"


def test_a_sum_that_went_beyond_a_long_on_its_way_is_right_in_the_end(flow_test: Callable[..., FlowTest]) -> None:
    from penstock import Flow, agg

    flow = Flow("sums")
    flow.stream("rows", "v long").group_by().agg(total=agg.sum("v")).view("total")
    t = flow_test(flow)
    for v in (2**63 - 1, 2**62, -(2**62)):
        t.send("rows", {"v": v})
        t.epoch()
        assert [row["total"] for row in t.rows("total")] == [None if v == 2**62 else 2**63 - 1]


def wraps(limbs: Any) -> Any:
    import pyarrow as pa

    low, high = exact.carried(limbs)
    return pa.array((high << np.int64(32)) | low)


def distance_of_one_value_is_none(self: Variance, mean: Any, apart: Any, counts: Any) -> Any:
    return np.where(counts == 1, 0.0, apart) / np.maximum(counts - self.off, 1)


BUGS: dict[str, tuple[str, Any]] = {
    "a sum wraps": ("sums over a table", lambda patch: patch.setattr(exact, "longs", wraps)),
    "infinities and NaN lie at no distance from themselves": (
        "over a table",
        lambda patch: patch.setattr(Variance, "spread", distance_of_one_value_is_none),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_wrong_aggregate_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step, plant = BUGS[bug]
    plant(monkeypatch)
    with pytest.raises(Broken):
        law_holds(step, 0)
