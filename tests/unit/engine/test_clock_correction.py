"""Clock correction from three timestamps: when the device says it happened, when the device says it sent it, when the server
received it. Offset = received - sent; corrected = happened + offset."""

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from faults.engine_shop import SparkFree
from penstock import Flow, FlowTest, Producer, Schema, TopicSpec, Tumbling, View, agg
from penstock.engine.run import loop
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.errors import BadFlow

READINGS = "device string, value long, happened timestamp, sent timestamp, received timestamp"
NOON = datetime(2024, 1, 15, 12, tzinfo=UTC)
Start = Callable[..., FlowTest]


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def plant(received: str = "received", lateness: str = "10 seconds", **fix: Any) -> Flow:
    flow = Flow("plant")
    readings = flow.stream("readings", READINGS, lateness=lateness)
    given = {"happened": "happened", "sent": "sent", "received": received, "by": "device"}
    right = readings.clock_fix(**given, **fix)
    right.view("right")
    right.window(Tumbling("1 minute"), by="device").agg(n=agg.count(), total=agg.sum("value"), name="per_minute").view("per_minute")
    return flow


def reading(device: str, value: int, after: float, off: float = 0, took: float = 0, **other: Any) -> dict[str, Any]:
    """What a device whose clock is `off` says of something that happened so many seconds after noon; it sends after a second."""
    clock = NOON + seconds(after + off)
    row = {"device": device, "value": value, "happened": clock, "sent": clock + seconds(1)}
    return {**row, "received": NOON + seconds(after + 1 + took), **other}


def shown(t: FlowTest) -> list[tuple[str, int, float, float | None]]:
    """(device, value, corrected as seconds after noon, uncertainty)."""
    rows = [(r["device"], r["value"], (r["corrected"] - NOON).total_seconds(), r["uncertainty"]) for r in t.rows("right")]
    return sorted(rows)


def per_minute(t: FlowTest) -> list[tuple[str, int, int]]:
    return sorted((r["device"], (r["window_start"] - NOON) // seconds(60), r["total"]) for r in t.rows("per_minute"))


HOURS = 2 * 3600.0


@pytest.mark.parametrize("off", [-HOURS, HOURS])
def test_a_device_whose_clock_is_two_hours_off_counts_in_the_right_minutes(flow_test: Start, off: float) -> None:
    t = flow_test(plant())
    t.send("readings", reading("wrong", 1, 10, off), reading("right", 2, 12))
    t.send("readings", reading("right", 4, 65), reading("wrong", 8, 66, off))
    t.end()
    assert per_minute(t) == [("right", 0, 2), ("right", 1, 4), ("wrong", 0, 1), ("wrong", 1, 8)]
    assert t.fates("per_minute") == {"in": 4, "on time": 4}, "uncorrected, one device would make the other late"
    assert shown(t) == [("right", 2, 12, 0), ("right", 4, 65, 0), ("wrong", 1, 10, 0), ("wrong", 8, 66, 0)]
    kept = {r["value"]: r["happened"] for r in t.rows("right")}
    assert kept[1] == NOON + seconds(10 + off), "what the device said is kept"


def test_the_append_time_can_stand_for_received(flow_test: Start) -> None:
    t = flow_test(plant("append"))
    t.clock.set(NOON + seconds(11.5))
    t.send("readings", reading("d", 1, 10, HOURS, received=None))
    t.clock.set(NOON + seconds(20))
    t.send("readings", reading("d", 2, 17, HOURS, received=None))
    t.end()
    assert shown(t) == [("d", 1, 10.5, 0), ("d", 2, 17.5, 1.5)]


def test_jitter_of_the_network_reorders_nothing(flow_test: Start) -> None:
    took = [0.2, 9.0, 0.5, 30.0, 0.3]
    t = flow_test(plant())
    t.send("readings", *(reading("d", n, n, HOURS, took=delay) for n, delay in enumerate(took)))
    t.end()
    assert shown(t) == [("d", n, n + 0.2, pytest.approx(delay - 0.2)) for n, delay in enumerate(took)]


def test_a_quick_row_counts_for_a_span_and_no_longer(flow_test: Start) -> None:
    t = flow_test(plant(span="1 minute"))
    t.send("readings", reading("d", 1, 0, took=0), reading("d", 2, 50, took=5), reading("d", 3, 120, took=5))
    t.end()
    assert shown(t) == [("d", 1, 0, 0), ("d", 2, 50, 5), ("d", 3, 125, 0)]


def test_without_sent_a_row_is_moved_as_its_devices_rows_before_it(flow_test: Start) -> None:
    t = flow_test(plant())
    t.send("readings", reading("d", 1, 10, -5), reading("d", 2, 20, -5, sent=None), reading("e", 3, 25, -5, sent=None))
    t.end()
    assert shown(t) == [("d", 1, 10, 0), ("d", 2, 20, None), ("e", 3, 20, None)]


@pytest.mark.parametrize("far", [timedelta(days=2), timedelta(days=-30 * 365)])
def test_a_clock_that_cannot_be_explained_has_its_own_fate_and_moves_nothing(flow_test: Start, far: timedelta) -> None:
    t = flow_test(plant())
    wild = reading("d", 2, 20, sent=None, happened=NOON + far)
    t.send("readings", reading("d", 1, 10), wild, reading("d", 4, 12))
    t.end()
    assert t.fates("readings") == {"in": 3, "dead": 0, "implausible": 1, "passed": 2}
    assert per_minute(t) == [("d", 0, 5)]
    (letter,) = t.rows("dead")
    assert (letter["offset"], letter["step"]) == (1, "readings")
    assert "the clock of its device cannot be explained" in letter["reason"]


def test_how_far_back_is_plausible_can_be_said(flow_test: Start) -> None:
    t = flow_test(plant(past="1 hour"))
    t.send("readings", reading("d", 1, 10), reading("d", 2, 20, sent=None, happened=NOON - timedelta(hours=2)))
    t.end()
    assert t.fates("readings")["implausible"] == 1


def test_without_happened_a_row_is_dead(flow_test: Start) -> None:
    t = flow_test(plant())
    t.send("readings", reading("d", 1, 10), reading("d", 2, 20, happened=None))
    t.end()
    assert t.fates("readings") == {"in": 2, "dead": 1, "implausible": 0, "passed": 1}


def test_columns_that_are_added_can_be_named(flow_test: Start) -> None:
    t = flow_test(plant(corrected="at", uncertainty="spread"))
    t.send("readings", reading("d", 1, 10))
    t.end()
    (row,) = t.rows("right")
    assert (row["at"], row["spread"]) == (NOON + seconds(10), 0)


def test_the_corrected_time_is_what_is_judged(flow_test: Start) -> None:
    t = flow_test(plant(lateness="0 seconds"))
    t.send("readings", reading("d", 1, 130, HOURS), reading("d", 2, 10, HOURS))
    t.end()
    assert per_minute(t) == [("d", 2, 1)]
    assert t.fates("per_minute") == {"in": 2, "on time": 1, "diverted": 1}
    assert [row["offset"] for row in t.rows("late")] == [1]


# any cut, any crash


def history(rows: int = 60, seed: int = 3) -> list[dict[str, Any]]:
    """Devices with clocks of their own, jitter, rows that come late, some without sent, some that cannot be explained."""
    rng = random.Random(seed)
    off = {"a": -HOURS, "b": 3.0, "c": HOURS}
    out = []
    for n in range(rows):
        device = rng.choice("abc")
        row = reading(device, 2**n % 1_000_003, 7 * n - rng.choice((0, 0, 5, 200)), off[device], took=rng.choice((0.1, 2, 40)))
        row["sent"] = None if n % 11 == 5 else row["sent"]
        row["happened"] = NOON - timedelta(days=9_000) if n % 17 == 9 else row["happened"]
        out.append(row)
    return out


def everything(t: FlowTest) -> tuple[Any, ...]:
    late = sorted((r["step"], r["partition"], r["offset"], r["watermark"]) for r in t.rows("late"))
    dead = sorted((r["partition"], r["offset"]) for r in t.rows("dead"))
    return shown(t), per_minute(t), late, dead, t.fates()


def filled(flow_test: Start, partitions: int = 2, **settings: Any) -> FlowTest:
    t = flow_test(plant(span="2 minutes"))
    t.topic("readings", partitions=partitions, **settings)
    rows = history()
    for n in range(0, len(rows), 5):
        t.send("readings", *rows[n : n + 5], partition=n // 5 % partitions)
    return t


@pytest.fixture
def once(flow_test: Start) -> tuple[Any, ...]:
    t = filled(flow_test)
    t.end()
    found = everything(t)
    assert found[2]
    assert found[3]
    return found


@pytest.mark.parametrize("cut", [1, 2, 7])
def test_any_cut_gives_what_one_epoch_gives_and_a_restart_changes_nothing(
    flow_test: Start, once: tuple[Any, ...], cut: int
) -> None:
    t = filled(flow_test)
    while t.epoch(cut):
        t.restart(buckets=1 + len(t.reports) % 3)
    t.end()
    assert everything(t) == once


@pytest.mark.parametrize("point", ["after_run", "before_decide", "after_decide"])
def test_a_crash_teaches_no_clock_twice(flow_test: Start, once: tuple[Any, ...], point: str) -> None:
    t = filled(flow_test)
    for _ in range(4):
        t.crash(point, cut=5)
        t.epoch(cut=3)
    t.end()
    assert everything(t) == once


def test_raw_json_is_corrected_as_well(flow_test: Start, once: tuple[Any, ...]) -> None:
    t = filled(flow_test, schema=None)
    while t.epoch(4):
        pass
    t.end()
    assert everything(t) == once


def test_a_home_with_files_gives_the_same(tmp_path: Path, once: tuple[Any, ...]) -> None:
    runtime = SparkFree(tmp_path)
    topic = runtime.log.create(TopicSpec("readings", 2, Schema.of(READINGS)))
    with Producer(topic, batch_rows=5, linger="1 day") as producer:
        for n, row in enumerate(history()):
            producer.send(row, partition=n // 5 % 2)
    while _started(runtime, lambda driver: driver.epoch(EpochRequest(rows=10))):
        pass
    _started(runtime, lambda driver: loop.drain(driver, threading.Event(), lambda report: None))
    with View(tmp_path / "views", "right") as right, View(tmp_path / "views", "per_minute") as per_minute:
        rows = right.rows().to_pylist()
        totals = sorted((r["device"], (r["window_start"] - NOON) // seconds(60), r["total"]) for r in per_minute.rows().to_pylist())
    assert sorted((r["device"], r["value"], (r["corrected"] - NOON).total_seconds(), r["uncertainty"]) for r in rows) == once[0]
    assert totals == once[1]


def _started(runtime: SparkFree, work: Callable[[Driver], Any]) -> Any:
    """One start of the flow, as a process of its own would make it."""
    driver = runtime.driver(runtime.plan(plant(span="2 minutes")), threaded=False)
    driver.start()
    try:
        return work(driver)
    finally:
        driver.stop()


def test_what_is_remembered_is_merged(flow_test: Start) -> None:
    t = flow_test(plant())
    for n in range(40):
        t.send("readings", reading("abc"[n % 3], n, n, took=n / 10))
        t.epoch()
    last = t.driver.last
    assert last
    runs = [r for r in last.state if r.step == "readings"]
    assert {(r.bucket, r.table) for r in runs} == {(0, "clocks")}
    assert len(runs) < 16
    t.end()
    assert shown(t)[-1] == ("c", 38, 38 + 0.2, pytest.approx(3.6))


# where it is refused


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda s, fix: s.where("value > 1").clock_fix(**fix), "the rows have gone through 'where' already"),
        (lambda s, fix: s.clock_fix(**fix).clock_fix(**fix), "it has been done already"),
        (lambda s, fix: s.clock_fix(**{**fix, "by": ()}), "nothing names a device"),
        (lambda s, fix: s.clock_fix(**{**fix, "sent": "value"}), "by 'value': it is long, not timestamp"),
        (lambda s, fix: s.clock_fix(**{**fix, "sent": "snet"}), "there is no column 'snet'"),
        (lambda s, fix: s.clock_fix(**fix, span="0 s"), "span is empty"),
        (lambda s, fix: s.clock_fix(**fix, corrected="value"), "two columns would be called 'value'"),
    ],
)
def test_what_cannot_be_is_refused(flow_test: Start, make: Callable[..., Any], says: str) -> None:
    flow = Flow("plant")
    stream = flow.stream("readings", READINGS, lateness="1 second")
    fix = {"happened": "happened", "sent": "sent", "by": "device"}
    with pytest.raises(BadFlow, match=says):
        flow_test(make(stream, fix).view("right").flow)


def test_another_time_beside_it_is_refused() -> None:
    stream = Flow("plant").stream("readings", READINGS, time="received", lateness="1 second")
    with pytest.raises(BadFlow, match="read by the time 'received'"):
        stream.clock_fix(happened="happened", sent="sent", by="device")


def test_a_topic_that_a_flow_writes_has_its_time(flow_test: Start) -> None:
    t = flow_test(plant())
    schema = t.plan.step("readings").schema
    t.log.create(TopicSpec("readings", schema=schema, writer="other"))
    with pytest.raises(BadFlow, match="flow other gave its rows their time"):
        t.epoch()
