"""Actions in a flow: sent behind its epochs, refused where rows change, dead letters that can be redriven."""

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import Flow, Tumbling, agg
from penstock.engine.flows.dead import dead_letters_of
from penstock.engine.flows.redriving import Redriving
from penstock.engine.run.epoch.decision import Decisions
from penstock.errors import BadFlow, BadInput
from penstock.sinks import Refused, call, webhook
from penstock.storage.local import LocalStorage
from penstock.testing.receiver import LOST, Receiver, Reply
from waiting import until

ORDERS = "order_id string, user string, amount long, at timestamp"


def order(n: int, amount: int = 500) -> dict[str, Any]:
    return {"order_id": f"o{n}", "user": f"u{n % 2}", "amount": amount, "at": f"2024-01-15T10:00:{n:02}Z"}


def flow_to(*sinks: Any, windows: bool = False) -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="5 seconds")
    large = orders.where("amount > 100")
    if windows:
        large = orders.window(Tumbling("10 seconds"), by="user").agg(total=agg.sum("amount"), name="totals")
    for number, sink in enumerate(sinks):
        large.sink(sink, name=f"alerts{number or ''}")
    return flow


class Pager:
    """Remembers what it was called with; refuses as long as it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.refuses, self.guard = False, threading.Lock()

    def __call__(self, row: dict[str, Any], key: str) -> None:
        with self.guard:
            self.calls.append((key, row))
        if self.refuses:
            raise Refused("nobody is on duty")


def test_rows_are_sent_when_the_flow_stops_at_the_latest_and_once() -> None:
    pager = Pager()
    with flow_to(call(pager)).test() as t:
        for n in range(6):
            t.send("orders", order(n, 500 if n % 3 else 50))
            t.epoch()
        t.restart()
        t.stop()
        assert sorted(row["order_id"] for _, row in pager.calls) == ["o1", "o2", "o4", "o5"]
        outcomes = [(row["outcome"], row["tries"]) for row in t.rows("shop.alerts.outcomes")]
    assert outcomes == [("done", 1)] * 4


def test_keys_do_not_depend_on_how_the_input_is_cut() -> None:
    """Windows too: their position is their key and their start."""
    keys = []
    for cut in (1, 3, 30):
        pager = Pager()
        with flow_to(call(pager), windows=True).test() as t:
            for n in range(30):
                t.send("orders", order(n))
                if n % cut == cut - 1:
                    t.epoch()
            t.end()
        keys.append({(key, row["user"], row["window_start"], row["total"]) for key, row in pager.calls})
        assert len(pager.calls) == 6
    assert keys[0] == keys[1] == keys[2]


def test_a_dead_letter_can_be_redriven_and_is_sent_with_the_same_key() -> None:
    pager = Pager()
    pager.refuses = True
    with flow_to(call(pager), windows=True).test() as t:
        t.send("orders", *map(order, range(12)))
        t.end()
        t.stop()
        letters = list(dead_letters_of(t.log, "shop"))
        assert {(letter.step, letter.expression, letter.reason) for letter in letters} == {
            ("alerts", "call Pager", "nobody is on duty")
        }
        pager.refuses = False
        refused = dict(pager.calls)
        pager.calls.clear()
        redriving = Redriving(t.log, Decisions(LocalStorage(str(t.directory / "flow"), sync=False), "shop"))
        assert redriving.send(redriving.intended(letters)) == len(refused) == 4
        assert [one.what for one in redriving.intended(letters)] == ["redriven before"] * 4
        t.restart()
        t.stop()
        assert dict(pager.calls) == refused
        t.restart()
        t.stop()
        assert len(pager.calls) == 4


def test_a_running_sender_notices_what_was_redriven() -> None:
    pager = Pager()
    pager.refuses = True
    with flow_to(call(pager)).test() as t:
        t.send("orders", order(1))
        t.epoch()
        t.restart()
        letters = list(dead_letters_of(t.log, "shop"))
        pager.refuses = False
        redriving = Redriving(t.log, Decisions(LocalStorage(str(t.directory / "flow"), sync=False), "shop"))
        assert redriving.send(redriving.intended(letters)) == 1
        assert until(lambda: len(pager.calls) == 2)


def test_a_webhook_gets_each_row_once_by_its_key_through_crashes() -> None:
    with Receiver() as at, flow_to(webhook(at.url, hosts=["127.0.0.1"], backoff="1 ms")).test() as t:
        at.answer(LOST, Reply(500), Reply(503), LOST)
        for n, point in enumerate(
            ["after_decide", "topic.begun", "topic.appended", "topic.delivered", "after_deliver:webhook.alerts"]
        ):
            t.send("orders", order(n))
            t.crash(point)
        t.restart()
        t.stop()
        assert sorted(m.json()["order_id"] for m in at.messages.values()) == ["o0", "o1", "o2", "o3", "o4"]


def test_rows_that_change_are_refused() -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="5 seconds")
    orders.group_by("user").agg(n=agg.count()).sink(call(print))
    with pytest.raises(BadFlow, match="its rows change"):
        flow.test()


@pytest.mark.parametrize(
    "wrong", [webhook("https://a.example/", template="{user} {nobody}"), webhook("https://a.example/", in_order_by="nobody")]
)
def test_a_column_that_is_not_there_is_refused_at_the_start(wrong: Any, tmp_path: Path) -> None:
    with flow_to(wrong).test() as t, pytest.raises(BadInput, match="nobody"):
        t.epoch()
