"""How far a flow has read is told to the log, for retention and for people; gaps that are accepted stand in the books."""

from dataclasses import replace
from typing import Any

import pytest

from penstock import Flow
from penstock.engine.run.epoch.decision import Decision
from penstock.engine.run.offsets import OffsetPublisher
from penstock.engine.run.progress import balance
from penstock.errors import OffsetGone, StorageError
from penstock.log.port import End

COLUMNS = "n long, at timestamp"


def flow() -> Flow:
    shop = Flow("shop")
    rows = shop.stream("orders", COLUMNS, time="at", lateness="1 second")
    rows.where("n > 0").view("some")
    rows.where("n > 1").view("others")
    return shop


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"n": n, "at": "2024-01-15T10:00:00Z"} for n in numbers]


def test_the_log_knows_how_far_a_flow_has_read_once_it_is_decided() -> None:
    with flow().test() as t:
        t.topic("orders", partitions=2)
        positions = OffsetPublisher(t.log, "shop", every=0.0)
        t.driver.context.publish_offsets = positions.publish
        t.send("orders", *rows(1, 2), partition=0)
        t.send("orders", *rows(3), partition=1)
        t.epoch()
        positions.settle()
        held = t.log.groups().positions("orders")
        assert [(h.reader, h.partition, h.offset) for h in held] == [("flow.shop", 0, 2), ("flow.shop", 1, 1)]


def test_notes_are_made_now_and_then_and_at_the_end() -> None:
    with flow().test() as t:
        positions = OffsetPublisher(t.log, "shop", every=3600.0)
        t.driver.context.publish_offsets = positions.publish
        for n in (1, 2, 3):
            t.send("orders", *rows(n))
            t.epoch()
        positions.settle()
        assert [h.offset for h in t.log.groups().positions("orders")] == [1], "the first, and none since"
        t.driver.release()
        assert [h.offset for h in t.log.groups().positions("orders")] == [3]


def test_a_note_that_cannot_be_made_does_not_stop_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    with flow().test() as t:
        positions = OffsetPublisher(t.log, "shop", every=0.0)
        t.driver.context.publish_offsets = positions.publish
        groups = t.log.groups()
        put = type(groups).put

        def broken(*_: Any) -> None:
            raise StorageError("no disk")

        monkeypatch.setattr(type(groups), "put", broken)
        t.send("orders", *rows(1))
        t.epoch()
        positions.settle()
        monkeypatch.setattr(type(groups), "put", put)
        t.send("orders", *rows(2))
        t.epoch()
        positions.settle()
        assert [h.offset for h in groups.positions("orders")] == [2]


def test_what_was_removed_unread_stops_a_flow_and_is_booked_once_it_is_accepted() -> None:
    with flow().test() as t:
        topic = t.topic("orders")
        t.send("orders", *rows(1))
        t.epoch()
        t.send("orders", *rows(2, 3))
        t.send("orders", *rows(4))
        whole = type(topic).ends

        def shortened() -> dict[int, End]:
            return {p: end._replace(first=3) for p, end in whole(topic).items()}

        topic.ends = shortened  # type: ignore[method-assign]
        with pytest.raises(OffsetGone, match="offsets 1 to 2 of orders/0 were removed"):
            t.epoch()
        t.driver.context = replace(t.driver.context, accept_gap=True)
        t.epoch()
        decision: Decision | None = t.driver.last
        assert decision
        assert (decision.rows, decision.fates["orders"]["gone"], decision.fates["orders"]["in"]) == (1, 2, 2)
        assert all(given == known for _, given, known in balance(decision.fates))
        assert [row["n"] for row in t.rows("some")] == [1, 4]
