"""A run that is stopped while a sink is away, and a driver of an earlier life that wakes up after the flow was reset."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock import Flow, Tumbling, agg
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.run.driver import Driver
from penstock.engine.run.options import RunOptions
from penstock.engine.run.progress import Tally
from penstock.engine.run.service import run_started
from penstock.errors import Replaced, SinkError, SinkUnavailable
from penstock.sinks.port import Delivery
from unit.engine.homes import ORDERS, Home
from unit.engine.test_flow_removing import ROWS, remove, shop
from unlocked import unlocked

MORE = [{"id": n, "amount": 1, "at": f"2024-01-15T11:{n:02d}:00"} for n in (30, 40)]
OWED = "epoch 0 of view.sales will be delivered by the next start: the disk is away"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.send("orders", *ROWS)
    return made


def away(driver: Driver, sink: str, error: Exception) -> None:
    """This sink takes nothing."""

    def deliver(delivery: Delivery) -> None:
        raise error

    lane = next(lane for lane in driver.deliverer.lanes if lane.target.id == sink)
    lane.target.sink.deliver = deliver  # type: ignore[method-assign]


@pytest.mark.parametrize("threaded", [False, True])
def test_a_stop_while_a_sink_is_away_ends_in_order_and_says_what_comes_with_the_next_start(threaded: bool, home: Home) -> None:
    driver = home.driver(shop())
    driver.context.threaded = threaded
    driver.start()
    away(driver, "view.sales", SinkUnavailable("the disk is away"))
    assert driver.epoch()
    assert driver.stop() == [OWED]
    assert home.rows("all")
    again = home.driver(shop())
    again.start()
    assert home.rows("sales")
    assert again.stop() == []


def test_several_epochs_that_a_sink_has_not_taken_are_one_line(home: Home) -> None:
    driver = home.driver(shop())
    driver.context.threaded = True
    driver.start()
    away(driver, "view.sales", SinkUnavailable("the disk is away"))
    assert driver.epoch()
    driver.deliverer.again = lambda: None  # type: ignore[method-assign]  # as if it had failed only now, on its own thread
    home.send("orders", *MORE)
    driver.epoch()
    assert driver.stop() == [OWED.replace("epoch 0", "epochs 0 to 1")]


def test_a_sink_that_failed_for_good_is_told_at_a_stop(home: Home) -> None:
    driver = home.driver(shop())
    driver.start()
    away(driver, "view.sales", SinkError("the view is another's"))
    with pytest.raises(SinkError, match="the view is another's"):
        driver.epoch()
    with pytest.raises(SinkError, match="the view is another's"):
        driver.stop()
    home.run(shop())  # the flow was free again


class Shown:
    def __init__(self, stop: threading.Event) -> None:
        self.stop, self.said, self.closed = stop, list[str](), list[str]()

    def say(self, text: str) -> None:
        self.said.append(text)

    wait = say

    def progress(self, tally: Tally, report: Any) -> None:
        self.stop.set()  # Ctrl-C

    def close(self, tally: Tally) -> None:
        self.closed.append(tally.closing())


@pytest.mark.parametrize("mode", ["run", "catch_up"])
def test_a_run_that_is_interrupted_while_a_sink_is_away_says_so_and_fails_not(mode: str, home: Home) -> None:
    driver, stop = home.driver(shop()), threading.Event()
    driver.start()
    away(driver, "view.sales", SinkUnavailable("the disk is away"))
    show = Shown(stop)
    run_started([driver], RunOptions(mode), 0.0, stop, show)
    driver.release()
    assert f"shop: {OWED}" in show.said
    assert len(show.closed) == 1


def copying() -> Flow:
    """Writes topics alone: nothing but the flow's lock says that it runs."""
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="1 minute")
    orders.to("all")
    orders.window(Tumbling("5 minutes"), by="amount").agg(n=agg.count()).to("sales")
    return flow


@pytest.fixture
def sleeper(home: Home) -> Driver:
    """A driver that has decided an epoch, and then slept; its lock was not shared, and the flow was reset."""
    driver = unlocked(home.driver(copying()))
    driver.start()
    assert driver.epoch()
    remove(home)
    home.send("orders", *MORE)
    return driver


def test_a_driver_of_an_earlier_life_decides_nothing_after_a_reset(home: Home, sleeper: Driver) -> None:
    with pytest.raises(Replaced, match="flow shop was reset or dropped"):
        sleeper.epoch()
    sleeper.release()
    assert (decisions_of(home.path, "shop").epochs(), home.log.topics()) == ([], ["orders"])


@pytest.mark.parametrize("point", ["after_open", "after_run", "before_decide"])
def test_a_driver_of_an_earlier_life_that_sleeps_inside_an_epoch_decides_nothing(point: str, home: Home) -> None:
    driver = unlocked(home.driver(copying()))
    driver.start()
    assert driver.epoch()
    home.send("orders", *MORE)
    begun = list[str]()

    def fail(passed: str) -> None:
        if passed == point:
            begun.append(passed)
            remove(home)

    driver.context.fail = driver.context.fail = fail  # type: ignore[method-assign]
    with pytest.raises(Replaced, match="flow shop was reset or dropped"):
        driver.epoch()
    driver.release()
    assert begun
    assert decisions_of(home.path, "shop").epochs() == []


def test_a_driver_of_an_earlier_life_changes_nothing_of_the_next_one(home: Home, sleeper: Driver) -> None:
    home.run(copying())
    before = home.records("all")
    home.send("orders", {"id": 50, "amount": 1, "at": "2024-01-15T11:50:00"})
    with pytest.raises(Replaced, match="flow shop was reset or dropped"):
        sleeper.epoch()
    sleeper.release()
    assert home.records("all") == before
    home.run(copying())
    assert len(home.records("all")) == len(ROWS) + len(MORE) + 1
    assert decisions_of(home.path, "shop").epochs() == [0, 1]


def test_what_a_driver_of_an_earlier_life_owes_a_sink_is_not_delivered_after_a_reset(home: Home) -> None:
    driver = unlocked(home.driver(copying()))
    driver.start()
    away(driver, "topic.all", SinkUnavailable("the broker is away"))
    assert driver.epoch()
    remove(home)
    driver._looked = time.monotonic()  # it has just looked whether it was replaced
    with pytest.raises(Replaced, match="flow shop was reset or dropped"):
        driver.epoch()
    assert driver.stop() == []
    assert home.log.topics() == ["orders"]
