"""What a flow keeps, of steps of every kind: what is said of it, and its rows by key."""

from typing import Any

import pytest

from penstock import Flow, Tumbling, agg
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.state.rebucket import rebucket_flow
from penstock.engine.state.report import holdings, rows_kept
from penstock.errors import NotFound


def decisions(t: Any) -> Decisions:
    return Decisions(t.driver.context.storage, t.flow.name)


def at(second: int) -> str:
    return f"2024-01-15T10:00:{second:02d}Z"


def readings(flow: Flow) -> Any:
    return flow.stream("readings", "sensor double, site string, value long, at timestamp", time="at", lateness="1 second")


def rows(*keys: tuple[Any, Any]) -> list[dict[str, Any]]:
    return [{"sensor": sensor, "site": site, "value": n, "at": at(n)} for n, (sensor, site) in enumerate(keys)]


KEYS = ((0.0, "a"), (-0.0, "a"), (float("nan"), "a"), (None, "a"), (1.5, None), (1.5, "b"), (2.5, "b"))


def test_a_running_aggregate_has_no_slots_and_is_found_by_any_key() -> None:
    flow = Flow("report")
    readings(flow).group_by("sensor", "site").agg(n=agg.count(), name="per_sensor").view("per_sensor")
    with flow.test(buckets=3) as t:
        for row in rows(*KEYS):
            t.send("readings", row)
            t.epoch()
        held = next(h for h in holdings(decisions(t)) if h.table == "open")
        assert (held.what, held.key, held.oldest) == ("running", ("sensor", "site"), None)
        for sensor, site, count in (("-0.0", "a", 2), ("nan", "a", 1), ("null", "a", 1), ("1.5", "b", 1), ("7", "b", 0)):
            kept = rows_kept(decisions(t), "per_sensor", held.table, {"site": site, "sensor": sensor}, 10)
            assert sum(kept.rows["__rows0_"].to_pylist()) == count, (sensor, site)
            assert kept.rows.num_rows <= 1, "runs of one key are brought together"
            assert kept.together
            assert "slot" not in kept.rows.column_names


def test_clocks_of_devices_are_kept_by_partition_and_stay_so() -> None:
    flow = Flow("devices")
    told = flow.stream("told", "device string, sent timestamp, done timestamp, came timestamp", lateness="1 second")
    fixed = told.clock_fix(happened="done", sent="sent", received="came", by="device", name="fixed")
    fixed.window(Tumbling("1 minute"), by="device").agg(n=agg.count(), name="counts").view("counts")
    with flow.test(buckets=2) as t:
        t.topic("told", partitions=3)
        for n in range(9):
            row = {"device": f"d{n}", "done": at(n), "sent": at(n), "came": at(n + 1)}
            t.send("told", row, partition=n % 3)
        t.catch_up()
        held = {h.step: h for h in holdings(decisions(t))}["fixed"]
        assert (held.what, held.key, held.buckets) == ("clocks", ("device",), 3)
        for n in range(9):
            assert rows_kept(decisions(t), "fixed", held.table, {"device": f"d{n}"}, 10).rows["device"].to_pylist() == [f"d{n}"]
        t.driver.release()
        decided = rebucket_flow(decisions(t), 5, lambda text: None)
        assert {r.bucket for r in decided.state if r.step == "fixed"} == {0, 1, 2}
        t.restart(buckets=5)
        t.end()
        assert sum(row["n"] for row in t.rows("counts")) == 9


def test_runs_of_a_step_with_a_function_of_its_own_are_shown_as_they_are() -> None:
    flow = Flow("own")
    product = agg.own("value", init=lambda: 1, add=lambda state, rows: state * 2, merge=lambda a, b: a * b, type="long")
    readings(flow).window(Tumbling("1 hour"), by="sensor").agg(product=product, name="sites").view("sites")
    with flow.test() as t:
        for row in rows((1.0, "a"), (1.0, "b")):
            t.send("readings", row)
            t.epoch()
        kept = rows_kept(decisions(t), "sites", "open", {"sensor": "1"}, 10)
        assert (kept.together, kept.rows.num_rows) == (False, 2)
        assert [str(slot) for slot in kept.rows["slot"].to_pylist()] == ["2024-01-15 10:00:00+00:00"] * 2


def test_a_flow_that_has_decided_nothing_says_so() -> None:
    flow = Flow("new")
    readings(flow).group_by("site").agg(n=agg.count()).view("out")
    with flow.test() as t, pytest.raises(NotFound, match="flow new has decided nothing yet"):
        holdings(decisions(t))
