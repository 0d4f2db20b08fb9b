"""Alerts over rows that change: the table says what holds, an action is told when that begins and ends, and once."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Flow, Tumbling, agg
from penstock.errors import BadFlow
from penstock.sinks import call, sqlite, webhook
from penstock.testing.driver import CRASH_POINTS, FlowTest

REQUESTS = "service string, failed long, at timestamp"


def at(second: int) -> str:
    return f"2024-01-15T10:{second // 60:02}:{second % 60:02}Z"


def request(second: int, failed: int, service: str = "api") -> dict[str, Any]:
    return {"service": service, "failed": failed, "at": at(second)}


class Pager:
    """Remembers what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.guard = threading.Lock()

    def __call__(self, row: dict[str, Any], key: str) -> None:
        with self.guard:
            self.calls.append((key, row))

    @property
    def told(self) -> list[tuple[str, str, int]]:
        return [(row["service"], row["alert"], row["errors"]) for _, row in self.calls]

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.calls]


def errors(flow: Flow, **how: Any) -> Any:
    """Failed requests of each service, as they come; or by minute."""
    requests = flow.stream("requests", REQUESTS, time="at", lateness="5 seconds")
    if how:
        return requests.window(Tumbling("1 minute"), by="service", **how).agg(errors=agg.sum("failed"), name="errors")
    return requests.group_by("service").agg(errors=agg.sum("failed"), name="errors")


def paged(pager: Pager, windows: dict[str, Any] | None = None, **alert: Any) -> Flow:
    flow = Flow("ops")
    alerts = errors(flow, **(windows or {})).alert(by="service", name="alerts", **alert)
    alerts.view("alerts")
    alerts.sink(call(pager, in_order_by="service"), name="page")
    return flow


def shown(t: FlowTest) -> dict[str, str | None]:
    return {row["service"]: row["alert"] for row in t.rows("alerts")}


def test_a_total_that_rises_and_falls_is_told_when_it_begins_and_ends() -> None:
    pager = Pager()
    with paged(pager, when="errors > 3", resolve="errors < 2").test() as t:
        for second, failed in enumerate([1, 2, 2, 1, -3, 0, -2, 3]):
            t.send("requests", request(second, failed))
            t.epoch()
        assert shown(t) == {"api": "fired"}
        t.stop()
    assert pager.told == [("api", "fired", 5), ("api", "resolved", 1), ("api", "fired", 4)]
    since = [row["since"] for _, row in pager.calls]
    assert since[0] == since[1], "the end names the beginning that was told"
    assert len(set(pager.keys)) == 3


def test_restarts_and_crashes_tell_nothing_again_and_lose_nothing() -> None:
    for point in CRASH_POINTS:
        pager = Pager()
        with paged(pager, when="errors > 3").test() as t:
            for second, failed in enumerate([4, 1, -3, 4]):
                t.send("requests", request(second, failed))
                if second == 2:
                    t.crash(point)
                t.restart()
                t.catch_up()
            t.stop()
        by_key = dict(pager.calls)
        assert [(row["alert"], row["errors"]) for row in by_key.values()] == [("fired", 4), ("resolved", 2), ("fired", 6)], point


def test_a_message_has_the_same_key_in_another_life_of_the_flow() -> None:
    keys = []
    for cut in (1, 2):
        pager = Pager()
        with paged(pager, when="errors > 3").test() as t:
            for second, failed in enumerate([0, 4, 1, -5]):
                t.send("requests", request(second, failed))
                if second % cut == cut - 1:
                    t.epoch()
            t.catch_up()
            t.stop()
        keys.append(pager.keys)
    assert keys[0][0] == keys[1][0], "the beginning: decided by the same row"
    assert len(keys[0]) == len(keys[1]) == 2


def test_what_begins_and_ends_within_one_epoch_is_not_told() -> None:
    pager = Pager()
    with paged(pager, when="errors > 3").test() as t:
        t.send("requests", request(0, 1))
        t.epoch()
        t.send("requests", request(1, 5), request(2, -5))
        t.epoch()
        assert shown(t) == {"api": "resolved"}
        t.stop()
    assert pager.told == []


def test_a_row_that_goes_ends_what_it_began() -> None:
    pager, flow = Pager(), Flow("ops")
    hosts = flow.table("hosts", "service string, errors long, at timestamp", key="service", time="at")
    hosts.alert(when="errors > 3", by="service", name="alerts").sink(call(pager), name="page")
    with flow.test() as t:
        t.send("hosts", {"service": "api", "errors": 9, "at": at(0)})
        t.epoch()
        t.delete("hosts", {"service": "api"}, at=at(1))
        t.epoch()
        t.stop()
    assert pager.told == [("api", "fired", 9), ("api", "resolved", 9)]


@pytest.mark.parametrize("cut", [1, 3, 100])
def test_corrected_windows_say_in_the_order_of_their_time_what_holds(cut: int) -> None:
    """However they were cut: minute 0 fires, minute 1 does neither, minute 2 resolves; then minute 2 is corrected."""
    pager, rows = Pager(), [request(1, 5), request(61, 1), request(121, 0), request(190, 0)]
    windows = {"late": "correct", "allowed": "10 minutes", "emit": "updates"}
    with paged(pager, windows, when="errors > 3", resolve="errors < 1").test() as t:
        for n, row in enumerate(rows):
            t.send("requests", row)
            if n % cut == cut - 1:
                t.epoch()
        t.catch_up()
        (row,) = t.rows("alerts")
        assert (row["alert"], f"{row['since']:%H:%M:%S}", f"{row['window_start']:%M}") == ("resolved", "10:00:59", "03")
        t.send("requests", request(122, 2))  # late, and corrected: minute 2 resolves nothing any more, minute 3 does
        t.send("requests", request(191, 1))
        t.catch_up()
        (row,) = t.rows("alerts")
        assert (row["alert"], f"{row['window_start']:%M}") == ("fired", "03")
        t.stop()
    assert pager.told[-1][1] == "fired"


def test_what_still_fires_is_told_again_so_often() -> None:
    pager = Pager()
    with paged(pager, when="errors > 3", every="1 minute").test() as t:
        for second in (0, 30, 59, 60, 100, 130):
            t.send("requests", request(second, 4))
            t.epoch()
        t.stop()
    assert [row["since"].minute * 60 + row["since"].second for _, row in pager.calls] == [0, 0, 0]
    assert [row["errors"] for _, row in pager.calls] == [4, 16, 24]


def test_alerts_over_all_rows_together_are_one_row() -> None:
    pager, flow = Pager(), Flow("ops")
    alerts = errors(flow).alert(when="errors > 3", name="alerts")
    alerts.view("alerts")
    alerts.sink(call(pager), name="page")
    with flow.test() as t:
        t.send("requests", request(0, 5), request(1, 1, "web"))
        t.epoch()
        assert [(row["service"], row["alert"]) for row in t.rows("alerts")] == [("web", "resolved")], "it was the last to change"
        t.send("requests", request(2, 5, "web"))
        t.epoch()
        assert [(row["service"], row["alert"]) for row in t.rows("alerts")] == [("web", "fired")]
        t.stop()
    assert pager.told == [("web", "fired", 6)]


def test_several_actions_and_stores_take_the_same_alerts(tmp_path: Path) -> None:
    one, other, flow = Pager(), Pager(), Flow("ops")
    alerts = errors(flow).alert(when="errors > 3", by="service", name="alerts")
    alerts.sink(call(one), name="one")
    alerts.sink(call(other), name="other")
    alerts.where("alert = 'fired'").sink(sqlite(tmp_path / "ops.db", "firing"))
    with flow.test() as t:
        t.send("requests", request(0, 5))
        t.epoch()
        t.stop()
    assert one.told == other.told == [("api", "fired", 5)]
    assert one.keys != other.keys


def test_no_time_is_asked_of_a_stream_whose_totals_are_looked_at() -> None:
    pager, flow = Pager(), Flow("ops")
    totals = flow.stream("requests", "service string, failed long").group_by("service").agg(errors=agg.sum("failed"))
    totals.alert(when="errors > 3", by="service").sink(call(pager), name="page")
    with flow.test() as t:
        t.clock.advance(timedelta(seconds=1))
        t.send("requests", {"service": "api", "failed": 5})
        t.epoch()
        t.stop()
    assert pager.told == [("api", "fired", 5)]


def test_actions_take_no_other_rows_that_change() -> None:
    flow = Flow("ops")
    errors(flow).sink(webhook("https://hooks.example.com/x"), name="page")
    with pytest.raises(BadFlow, match="its rows change") as refused:
        flow.test()
    assert ".alert(" in str(refused.value.hint)


def test_a_step_between_the_alert_and_its_action_is_refused() -> None:
    flow = Flow("ops")
    alerts = errors(flow).alert(when="errors > 3", by="service", name="alerts")
    alerts.where("alert = 'fired'").sink(call(Pager()), name="page")
    with pytest.raises(BadFlow, match="its rows change") as refused:
        flow.test()
    assert "before alert()" in str(refused.value.hint)


def test_alerts_over_rows_that_change_call_none_late() -> None:
    flow = Flow("ops")
    errors(flow).alert(when="errors > 3", by="service", name="alerts").late.to("late")
    with pytest.raises(BadFlow, match="it calls none late"):
        flow.test()
