"""A flow whose own files are damaged recovers exactly or refuses; it never starts anew by itself. And it has one driver."""

from pathlib import Path

import pytest

from penstock import Flow, FlowTest, Tumbling, agg
from penstock.errors import Held, PenstockError, Replaced
from unlocked import unlocked

pytestmark = pytest.mark.faults

FIRST = [{"user": n % 3, "amount": n, "at": f"2024-01-15T10:00:{n:02d}Z"} for n in range(20)]
SECOND = [{"user": n % 3, "amount": n, "at": f"2024-01-15T10:01:{n:02d}Z"} for n in range(20)]


def shop() -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", "user long, amount long, at timestamp", time="at", lateness="1 second")
    orders.window(Tumbling("1 minute"), by="user").agg(total=agg.sum("amount"), name="sales").view("sales")
    return flow


def totals(t: FlowTest) -> list[tuple[int, int]]:
    return sorted((row["user"], row["total"]) for row in t.rows("sales"))


def whole_run() -> list[tuple[int, int]]:
    with shop().test() as t:
        t.send("orders", *FIRST, *SECOND)
        t.end()
        return totals(t)


def two_epochs(t: FlowTest) -> Path:
    """The flow's directory after two epochs with open windows."""
    t.send("orders", *FIRST)
    t.epoch()
    t.send("orders", *SECOND[:5])
    t.epoch()
    t.stop()
    return t.directory / "flow"


def goes_on(t: FlowTest) -> PenstockError | None:
    """Starts again and reads the rest; the error if that is refused."""
    try:
        t.restart()
        t.send("orders", *SECOND[5:])
        t.end()
    except PenstockError as error:
        return error
    return None


def test_a_flipped_bit_in_the_newest_decision_is_refused_and_the_flow_goes_on_once_it_is_put_right() -> None:
    with shop().test() as t:
        path = sorted(two_epochs(t).glob("epochs/*"))[-1]
        whole = path.read_bytes()
        for at in range(0, 100, 7):
            content = bytearray(whole)
            content[at * len(content) // 100] ^= 1
            path.write_bytes(content)
            with pytest.raises(PenstockError, match=path.name):
                t.restart()
        path.write_bytes(whole)
        assert goes_on(t) is None
        assert totals(t) == whole_run()


def test_a_second_driver_stops_and_says_who_holds_the_flow() -> None:
    with shop().test() as t:
        t.send("orders", *FIRST)
        t.epoch()
        second = type(t.driver)(t.plan, t.driver.context)
        with pytest.raises(Held, match="already running") as refused:
            second.start()
        assert "held by process" in str(refused.value)
        t.end()


def test_of_two_drivers_that_both_believe_they_hold_the_flow_one_decides() -> None:
    with shop().test() as t:
        t.send("orders", *FIRST)
        t.epoch()
        sleeper = t.driver
        second = unlocked(sleeper)  # as if the first were stopped, and its lock taken from it
        second.start()
        t.send("orders", *SECOND)
        assert second.epoch()
        with pytest.raises(Replaced, match="flow shop was replaced by process"):
            sleeper.epoch()
        second.release()
        t.restart()
        t.end()
        assert totals(t) == whole_run()
