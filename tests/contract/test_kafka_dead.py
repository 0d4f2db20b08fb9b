"""Rows that fail where the log is Kafka: dead letters there, and records sent back once."""

import secrets
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from faults.engine_shop import SparkFree
from penstock import Flow, Producer, Schema, TopicSpec
from penstock.core.columns import HEADERS, KEY
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.execute.program import late_schema
from penstock.engine.flows.dead import dead_letters_of
from penstock.engine.flows.redriving import Redriving
from penstock.engine.run import loop
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.timeout(120)


def shares(rows: pa.Table) -> pa.Table:
    return pa.table({"user": rows["user"], "share": pc.divide(pa.scalar(100, pa.int64()), rows["amount"])})


def flow() -> Flow:
    made = Flow("shop")
    orders = made.stream("orders", "user string, amount long, at timestamp", time="at")
    orders.map_arrow(shares, "user string, share long", name="shares").to("shares")
    return made


def test_letters_are_written_to_kafka_and_their_records_sent_back_once(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    runtime = SparkFree(tmp_path, url=f"{kafka_broker.url}?prefix=t{secrets.token_hex(4)}.")
    topic = runtime.log.create(TopicSpec("orders", 2, Schema.of("user string, amount long, at timestamp"), "at", key="user"))
    runtime.log.create(TopicSpec("shop.dead", 1, late_schema(), writer="shop"))  # as an earlier version made it
    with Producer(topic) as producer:
        for i, amount in enumerate([4, 0, 5]):
            producer.send({"user": "a", "amount": amount, "at": f"2024-01-15T10:00:{i:02d}Z"}, partition=1)

    def run() -> list[Any]:
        driver = runtime.driver(runtime.plan(flow()), 2)
        driver.start()
        loop.catch_up(driver, threading.Event(), lambda report: None)
        driver.stop()
        return list(dead_letters_of(runtime.log, "shop"))

    (letter,) = run()
    assert (str(letter.record), letter.expression, letter.cause) == ("orders/1@1", "shares", "ArrowInvalid")

    def redrive() -> int:
        redriving = Redriving(runtime.log, decisions_of(tmp_path, "shop"))
        return redriving.send(redriving.intended([letter]))

    assert (redrive(), redrive()) == (1, 0)
    rows = [row for chunk in runtime.log.topic("orders").read(1) for row in chunk.rows.to_pylist()]
    assert [row["amount"] for row in rows] == [4, 0, 5, 0]
    assert (rows[-1][KEY], dict(rows[-1][HEADERS])["redrive-of"]) == (b"a", b"orders/1@1")
    assert len(run()) == 2
