"""How long a run waits for what may pass by itself, and what it says meanwhile."""

import threading
from typing import Any

import pytest

from penstock import Flow
from penstock.engine.run import loop, waiting
from penstock.engine.run.waiting import MOST, Waiting, WaitMessages
from penstock.errors import DiskFull, Unreachable


class Noted(threading.Event):
    """An event that notes how long it would have been waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return self.is_set()


def test_each_wait_is_about_twice_the_one_before_and_none_is_longer_than_the_longest() -> None:
    stop = Noted()
    waits = Waiting("shop", stop, limit=None)
    for _ in range(40):
        waits.over(DiskFull("no space left"))
    assert all(waiting.FIRST * 2**n / 2 <= wait <= waiting.FIRST * 2**n for n, wait in enumerate(stop.waits[:6]))
    assert all(MOST / 2 <= wait <= MOST for wait in stop.waits[7:])
    waits.ended()
    waits.over(DiskFull("no space left"))
    assert stop.waits[-1] <= waiting.FIRST


def test_the_beginning_another_cause_and_the_end_of_a_wait_are_said_and_each_try_is_on_the_line() -> None:
    said, line = list[str](), list[str]()
    waits = Waiting("shop", Noted(), WaitMessages(said.append, line.append), limit=None)
    for error in (DiskFull("no space left"), DiskFull("no space left"), Unreachable("nobody there")):
        waits.over(error)
    waits.ended()
    waits.ended()
    assert [text.partition(" since ")[0] for text in said] == ["shop waits", "shop waits", "shop goes on after 0 s"]
    assert said[0].endswith("and tries again: no space left")
    assert said[1].endswith("and tries again: nobody there")
    assert len(line) == 1
    assert line[0].startswith("shop · waiting since ")
    assert line[0].endswith("(0 s, 1 tries) · no space left")


def test_a_run_to_the_end_waits_also_for_where_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST", 0.001)
    flow = Flow("copy")
    flow.stream("orders", "id long").view("copy")
    ends, asked = loop.ends, list[int]()

    def at_first_away(driver: Any) -> Any:
        asked.append(1)
        if len(asked) < 3:
            raise Unreachable("nobody there")
        return ends(driver)

    with flow.test() as t:
        t.send("orders", {"id": 1})
        monkeypatch.setattr(loop, "ends", at_first_away)
        loop.catch_up(t.driver, threading.Event(), lambda report: None)
        assert len(t.rows("copy")) == 1
