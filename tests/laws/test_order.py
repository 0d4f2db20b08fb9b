"""The order of an output topic is a function of the log: as the input has it, or by (time, position), whatever the cut. (G25)"""

import os
from typing import Any

import pytest

from amount import cases
from penstock import Flow, Tumbling, agg
from penstock.plan import Told
from penstock.plan.node import kinds
from penstock.sinks import topic
from penstock.testing.driver import FlowTest

from .law import Broken, hold
from .order import CASES, COLUMNS, INPUT, LAST, NONE, START, TIME, built, held, in_time, numbers_of, places, records, run

FIRST = int(os.environ.get("PENSTOCK_LAW_SEED", "0"))
CUTS = (1, 0)  # rows of a partition an epoch; 0: now these, now those


def order_holds(name: str, seed: int, partitions: int = 1) -> None:
    """Broken if the rows of one epoch and those of other cuts do not stand as they are promised to."""
    promise = CASES[name][0]
    whole, plan = run(built(name), seed, None, partitions)
    key = next(output.key for output in plan.outputs)
    for rows in (whole, *(run(built(name), seed, cut, partitions)[0] for cut in CUTS)):
        for mine, theirs in zip(rows, whole, strict=True):
            if promise == INPUT:
                for place, numbers in numbers_of(mine).items():
                    hold(numbers == sorted(numbers), f"{name}: rows of {place!r} do not stand as in the input", numbers)
            if promise == TIME:
                hold(in_time(mine), f"{name}: not by time and position")
            if promise == TIME or (promise == INPUT and partitions == 1 and name not in TWO_INPUTS):
                hold(places(mine) == places(theirs), f"{name}: another cut, another order", places(mine), places(theirs))
            if promise == LAST:
                hold(held(mine, key) == held(theirs, key), f"{name}: the last of a key is another", mine, theirs)


TWO_INPUTS = ("union", "late rows of a join")  # the rows of each stand in their order; how they meet is the cut's


@pytest.mark.parametrize("name", [name for name, (promise, _) in CASES.items() if promise != NONE])
def test_the_order_of_a_topic_is_as_promised_whatever_the_cut(name: str) -> None:
    order_holds(name, FIRST)
    if CASES[name][0] == INPUT:
        order_holds(name, FIRST + 1, partitions=2)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, (promise, _) in CASES.items() if promise != NONE])
def test_the_order_of_a_topic_is_as_promised_in_many_more_cases(name: str) -> None:
    for seed in range(FIRST + 100, FIRST + 100 + cases(12)):
        order_holds(name, seed, partitions=1 + seed % 3)


def test_every_kind_of_step_has_a_promise() -> None:
    """But for what actions are told, which goes into no topic."""
    tried = {type(step.node) for name in CASES for step in run(built(name), 0, None, rows=0)[1].steps}
    assert tried == {*kinds()} - {Told}, "a new kind of step needs a line in order.py and in docs/time.md"


def test_rows_of_a_key_that_were_in_order_stay_so_where_their_times_are_not() -> None:
    for cut in (None, 1):
        flow = Flow("copy")
        flow.stream("rows", COLUMNS, time="at", lateness="1 minute").to("out", key="k")
        with flow.test() as t:
            at = [START.replace(second=5), START.replace(second=1)]
            t.send("rows", *({"k": "x", "v": v, "p": 0, "at": at[v - 1]} for v in (1, 2)))
            while t.epoch(cut):
                pass
            assert [row["v"] for row in t.rows("out")] == [1, 2]


@pytest.mark.parametrize("cut", [None, 1])
def test_late_and_dead_rows_stand_in_the_flows_own_topics_as_in_the_input(cut: int | None) -> None:
    flow = Flow("own")
    rows = flow.stream("rows", COLUMNS, time="at", lateness="1 second")
    rows.window(Tumbling("1 second"), by="k").agg(n=agg.count()).view("counted")
    with flow.test() as t:
        for n in range(8):
            t.send("rows", {"k": "x", "v": n, "p": 0, "at": START.replace(second=n % 2 * 30 + 8 - n)})
        while t.epoch(cut):
            pass
        late = [row["offset"] for row in t.rows("late")]
        assert late == sorted(late)
        assert len(late) > 2


def chained(t: FlowTest, flow: Flow) -> FlowTest:
    """Another flow over the same log."""
    other = FlowTest(flow)
    other.log, other.clock = t.log, t.clock
    return other


@pytest.mark.parametrize("cut", [None, 1])
@pytest.mark.parametrize("windows", [False, True], ids=["rows", "windows"])
def test_a_flow_over_a_topic_of_another_keeps_the_order_of_that_topic(windows: bool, cut: int | None) -> None:
    """Its rows bring positions along that do not stand in the order of the topic: of windows, and of several input partitions."""
    first, second = Flow("first"), Flow("second")
    rows = first.stream("rows", COLUMNS, time="at", lateness="1 minute")
    counted = rows.window(Tumbling("1 second"), by="k").agg(v=agg.sum("v"))
    (counted if windows else rows).to("middle", key="k")
    second.stream("middle", "k string, v long").where("v >= 0").to("out", key="k")
    with first.test() as t, chained(t, second) as other:
        t.topic("rows", partitions=2)
        for n in range(6):
            row = {"k": "ba"[n % 2], "v": n, "p": 0, "at": START.replace(second=(5 * n) % 7)}
            t.send("rows", row, partition=(n + 1) % 2)
            if not windows:
                t.epoch()
        t.end()
        while other.epoch(cut):
            pass
        kept: list[Any] = [(row["k"], row["v"]) for row in records(other, 0)]
        assert kept == [(row["k"], row["v"]) for row in t.rows("middle")]
        assert len(kept) == 6


WRONG: dict[str, tuple[str, Any]] = {
    "by time": ("a stream as it is", lambda rows: rows.sort_by([("__t", "ascending"), ("__pos", "ascending")])),
    "by position": ("tumbling", lambda rows: rows.sort_by("__pos")),
    "as it comes": ("hopping", lambda rows: rows),
}


@pytest.mark.parametrize("bug", WRONG)
def test_a_wrong_order_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong = WRONG[bug]
    monkeypatch.setattr(topic, "in_order", wrong)
    with pytest.raises(Broken):
        order_holds(name, 0, partitions=2)
