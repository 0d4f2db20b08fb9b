"""The user's own aggregates: what they are given, what is kept, what is said when they fail."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.columns import FAILED
from penstock.errors import BadRow
from penstock.kernels.aggregates.partials import Aggregation
from penstock.plan import Aggregate

LONG, DOUBLE = pa.int64(), pa.float64()
PAIR = pa.struct([("weight", DOUBLE), ("total", DOUBLE)])
SCHEMA = pa.schema([("k", pa.string()), ("__in_w", DOUBLE), ("v", DOUBLE)])


def add(state: dict[str, float], rows: pa.Table) -> dict[str, float]:
    assert rows.column_names == ["w + 1", "v"]
    assert rows.num_rows
    weighted = pc.sum(pc.multiply(rows["w + 1"], rows["v"])).as_py()
    return {"weight": state["weight"] + pc.sum(rows["w + 1"]).as_py(), "total": state["total"] + weighted}


def merge(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {name: one[name] + other[name] for name in one}


def weighted_mean(**other: Any) -> Aggregate:
    its = {
        "names": ("w + 1", "v"),
        "state": PAIR,
        "init": lambda: {"weight": 0.0, "total": 0.0},
        "add": add,
        "merge": merge,
        "result": lambda state: state["total"] / state["weight"] if state["weight"] else None,
    }
    return Aggregate("mean", "own", "__in_w", DOUBLE, ("v",), tuple((its | other).values()))


def told(aggregate: Aggregate, *pieces: list[tuple[str, float, float]]) -> dict[str, Any]:
    aggregation = Aggregation([aggregate], SCHEMA)
    tables = [pa.table([pa.array(c, f.type) for c, f in zip(zip(*p, strict=True), SCHEMA, strict=True)], SCHEMA) for p in pieces]
    together = pa.concat_tables([aggregation.partial(t, ["k"], {}) for t in tables])
    folded = aggregation.fold(together, ["k"])
    return dict(zip(folded["k"].to_pylist(), aggregation.results(folded)["mean"].to_pylist(), strict=True))


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9).map(float), st.integers(-9, 9).map(float)), min_size=1)


@given(ROWS, st.integers(0, 20))
def test_it_is_its_definition_over_all_rows_for_any_cut(rows: list[tuple[str, float, float]], cut: int) -> None:
    groups = {k: [(w, v) for k2, w, v in rows if k2 == k] for k, _, _ in rows}
    expected = {k: sum(w * v for w, v in g) / sum(w for w, _ in g) if sum(w for w, _ in g) else None for k, g in groups.items()}
    assert told(weighted_mean(), *(piece for piece in (rows[cut:], rows[:cut]) if piece)) == pytest.approx(expected)


def test_without_a_result_the_state_is_the_answer_and_may_be_an_arrow_value() -> None:
    greatest = weighted_mean(
        state=DOUBLE, init=lambda: 0.0, add=lambda s, rows: pc.max(rows["v"]), merge=max, result=None, names=("w", "v")
    )
    assert told(greatest, [("a", 1.0, 2.0), ("a", 1.0, 7.0)], [("a", 1.0, 5.0)]) == {"a": 7.0}


def test_a_function_that_fails_is_named() -> None:
    with pytest.raises(BadRow, match="aggregate mean: merge failed") as caught:
        told(weighted_mean(merge=lambda a, b: a["no"]), [("a", 1.0, 2.0)], [("a", 1.0, 2.0)])
    assert caught.value.detail == ("KeyError: 'no'", "group k='a'")
    assert "result refuse what is wrong" in (caught.value.hint or "")


def test_a_state_of_another_type_is_refused() -> None:
    with pytest.raises(BadRow, match="aggregate mean: add or merge gave a value that is no struct"):
        told(weighted_mean(add=lambda state, rows: 3), [("a", 1.0, 2.0)])


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        (lambda state: "much", "aggregate mean: result gave a value that is no double; Could not convert 'much'"),
        (lambda state: 1 / (state["total"] - 2.0), "aggregate mean: result failed; ZeroDivisionError: "),
    ],
)
def test_a_group_without_a_result_is_marked_and_the_others_have_theirs(result: Any, cause: str) -> None:
    def some(state: dict[str, float]) -> Any:
        return result(state) if state["total"] == 2.0 else state["total"]

    aggregation = Aggregation([weighted_mean(result=some)], SCHEMA)
    rows = pa.table([["a", "b"], [1.0, 1.0], [2.0, 5.0]], SCHEMA)
    partials = aggregation.partial(rows, ["k"], {})
    results = aggregation.results(partials)
    made = dict(zip(partials["k"].to_pylist(), results["mean"].to_pylist(), strict=True))
    failed = dict(zip(partials["k"].to_pylist(), results[FAILED].to_pylist(), strict=True))
    assert made == {"a": None, "b": 5.0}
    assert failed["b"] is None
    assert failed["a"]["expression"] == "agg.own mean"
    assert failed["a"]["cause"].startswith(cause)
