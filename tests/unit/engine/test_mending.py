"""A flow that has decided nothing owns nothing: what its first version left is no obstacle to the mended one."""

from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Flow, agg
from penstock.engine.run.epoch.decision import GENERATIONS, Decisions
from penstock.errors import Mismatch
from penstock.storage.memory import MemoryStorage
from unit.engine.homes import ORDERS, Home
from unlocked import unlocked

ROW = {"id": 1, "amount": 5, "at": "2024-01-15T10:30:00"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.send("orders", ROW)
    return made


def first(fails: bool = True) -> Flow:
    """Its map fails on every row; it writes a view by id and a topic with the column `twice`."""

    def broken(rows: pa.Table) -> pa.Table:
        raise ValueError("a slip of the pen")

    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="1 minute")
    made = orders.map_arrow(broken, ORDERS, on_error="stop") if fails else orders
    made.view("seen", key="id")
    made.to("copied")
    return flow


def mended() -> Flow:
    """Another key, other columns, more partitions, and rows that change where they stayed before."""
    flow = Flow("shop")
    totals = flow.stream("orders", ORDERS, time="at", lateness="1 minute").group_by("amount").agg(n=agg.count())
    totals.view("seen")
    totals.to("copied", partitions=3)
    return flow


def test_a_mended_flow_takes_over_what_a_version_left_that_never_decided(home: Home) -> None:
    with pytest.raises(Exception, match="a slip of the pen"):
        home.run(first())
    home.run(mended())
    assert home.rows("seen") == [{"amount": 5, "n": 1}]
    assert [row["n"] for row in home.records("copied")] == [1]
    assert home.log.topic("copied").spec.partitions == 3


def test_so_does_one_whose_directory_was_moved_away(home: Home) -> None:
    with pytest.raises(Exception, match="a slip of the pen"):
        home.run(first())
    (home.path / "flows" / "shop").rename(home.path / "old")
    home.run(mended())
    assert home.rows("seen") == [{"amount": 5, "n": 1}]


def test_what_was_delivered_is_not_taken_over(home: Home) -> None:
    home.run(first(fails=False))
    (home.path / "flows" / "shop").rename(home.path / "old")
    with pytest.raises(Mismatch, match="'seen'"):
        home.run(mended())
    assert [row["id"] for row in home.rows("seen")] == [1]
    assert len(home.records("copied")) == 1


def test_a_start_that_was_replaced_does_not_make_anew_what_its_successor_has_opened(home: Home) -> None:
    old, new = unlocked(home.driver(first())), home.driver(mended())
    with pytest.raises(Exception, match="a slip of the pen"):
        home.run(first())
    old.start()
    new.start()
    for lane in old.deliverer.lanes[:2]:
        with pytest.raises(Mismatch):
            lane.target.sink.open(old.incarnation, old.generation)
    new.release()


def test_old_starts_are_swept_and_the_newest_stays() -> None:
    decisions = Decisions(MemoryStorage(), "shop")
    taken = [decisions.generation({"pid": n}) for n in range(3 * GENERATIONS)]
    assert taken == list(range(1, 3 * GENERATIONS + 1))
    assert len(decisions.storage.list("generations")) == GENERATIONS
    assert decisions.owner() == {"pid": 3 * GENERATIONS - 1}
