"""Flows from Kafka into Kafka, killed, replaced and cut off from their broker: exactly once all the same (G8, G9, G10).

The work is done without Spark, so that it is the log that is tested; every case has topics of its own on one broker."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.engine_shop import EPOCH_ROWS, Input, SparkFree, check, drain, fill, last_decision, log_of, make_input, shop
from faults.test_engine_drivers import by_force, stopped_at, woken
from faults.test_engine_kill import POINTS, Killer, killer
from penstock.engine.run import loop
from penstock.engine.run.epoch.open import EpochRequest
from penstock.errors import Mismatch, OffsetGone
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.faults
__all__ = ["killer"]

QUICK = ("topic.appended",)
TIME_OUT = 2  # seconds after which the broker gives up a transaction


@pytest.fixture
def given(tmp_path: Path, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Input:
    url = f"{kafka_broker.url}?prefix={tmp_path.name[-30:]}.&transaction_timeout={TIME_OUT}"
    monkeypatch.setenv("PENSTOCK_LOG", url)
    rows = make_input()
    fill(tmp_path, rows)
    return rows


@pytest.mark.parametrize("point", QUICK)
def test_after_kills_every_row_is_in_kafka_once(point: str, killer: Killer, tmp_path: Path, given: Input) -> None:
    fails = [f"shop/{point}@2", f"shop/{point}@1"]
    assert killer.run(tmp_path, fails) == [-signal.SIGKILL, -signal.SIGKILL, 0]
    check(tmp_path, given)


@pytest.mark.long
@pytest.mark.parametrize("point", [point for point in POINTS if not point.startswith("view.")])
def test_after_kills_at_every_point_every_row_is_in_kafka_once(point: str, killer: Killer, tmp_path: Path, given: Input) -> None:
    *killed, last = killer.run(tmp_path, [f"shop/{point}@{n}" for n in (1, 2, 3, 1)])
    assert -signal.SIGKILL in killed
    assert set(killed) <= {0, -signal.SIGKILL}
    assert last == 0
    check(tmp_path, given)


@pytest.mark.parametrize(
    "point", ["topic.begun@2", *(pytest.param(p, marks=pytest.mark.long) for p in ("after_decide@2", "after_sweep@2"))]
)
def test_a_driver_that_was_paused_beyond_the_time_out_and_replaced_harms_nothing(point: str, tmp_path: Path, given: Input) -> None:
    """Its transaction was given up by the broker, its successor has the id: whatever it still sends is refused."""
    with stopped_at(tmp_path, point) as sleeper:
        by_force(tmp_path)
        decided = last_decision(tmp_path, "shop")
        waited = threading.Event()
        waited.wait(2 * TIME_OUT)
        said = woken(sleeper)
    assert said.startswith("Replaced: flow shop was replaced by process"), said
    assert last_decision(tmp_path, "shop") == decided
    drain(tmp_path)
    check(tmp_path, given)


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory, kafka_broker: KafkaBroker) -> Iterator[KafkaBroker]:
    """One that may be hurt."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def test_a_broker_that_is_killed_in_the_middle_of_an_epoch_and_comes_back_costs_no_row(
    tmp_path: Path, own_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", f"{own_broker.url}?transaction_timeout={TIME_OUT}")
    given = make_input()
    fill(tmp_path, given)
    runtime, stop = SparkFree(tmp_path), threading.Event()
    driver = runtime.driver(runtime.plan(shop()), threaded=False)
    passed: list[str] = []

    def fail(point: str) -> None:
        passed.append(point)
        if passed.count(point) == 2 and point in ("after_open", "topic.begun"):
            own_broker.kill()
            threading.Thread(target=own_broker.start).start()

    driver.context.fail = fail
    driver.start()
    driver.context.fail = fail
    loop.catch_up(driver, stop, lambda report: None, EPOCH_ROWS)
    driver.stop()
    assert passed.count("after_open") >= 2
    drain(tmp_path)
    check(tmp_path, given)


def test_a_topic_that_was_deleted_or_made_again_stops_the_flow_and_so_do_offsets_that_are_gone(
    tmp_path: Path, given: Input
) -> None:
    runtime = SparkFree(tmp_path)
    driver = runtime.driver(runtime.plan(shop()))
    driver.start()
    loop.catch_up(driver, threading.Event(), lambda report: None, EPOCH_ROWS)
    decided = last_decision(tmp_path, "shop").epoch
    log = log_of(tmp_path)
    spec = log.topic("payments").spec
    log.delete("payments")
    with pytest.raises(Mismatch, match="topic payments is gone"):
        driver.epoch()
    log.create(spec)
    with pytest.raises(Mismatch, match="deleted and made again"):
        driver.epoch()
    driver.release()
    assert last_decision(tmp_path, "shop").epoch == decided


def test_records_that_the_broker_removed_before_they_were_read_are_a_loud_stop(tmp_path: Path, given: Input) -> None:
    from confluent_kafka import TopicPartition

    from penstock.log.kafka.client import admin

    runtime = SparkFree(tmp_path)
    driver = runtime.driver(runtime.plan(shop()))
    driver.start()
    driver.epoch(EpochRequest(rows=9))
    driver.release()
    reached = last_decision(tmp_path, "shop").sources["orders"].partitions[0].next
    settings = log_of(tmp_path).settings
    gone = TopicPartition(settings.prefix + "orders", 0, reached + 3)
    admin(settings).delete_records([gone])[gone].result(30)
    again = runtime.driver(runtime.plan(shop()))
    again.start()
    try:
        with pytest.raises(OffsetGone, match=rf"offsets {reached} to {reached + 2} of orders/0 were removed"):
            again.epoch()
    finally:
        again.release()


def test_how_far_a_flow_has_read_is_seen_by_kafkas_own_tools(tmp_path: Path, given: Input) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions

    from penstock.log.kafka.client import admin

    drain(tmp_path)
    settings = log_of(tmp_path).settings
    decided = last_decision(tmp_path, "shop").sources["orders"].partitions
    name = f"{settings.prefix}flow.shop"
    [told] = admin(settings).list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]).values()
    seen = {(p.topic, p.partition): p.offset for p in told.result(30).topic_partitions}
    assert {n: seen[f"{settings.prefix}orders", n] for n in decided} == {n: p.next for n, p in decided.items()}
    held = [h for h in log_of(tmp_path).groups().positions("orders") if h.reader == "flow.shop"]
    assert {h.partition: h.offset for h in held} == {n: p.next for n, p in decided.items()}
