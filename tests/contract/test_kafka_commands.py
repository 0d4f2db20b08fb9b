"""`penstock flow`, `dead` and `topic list` where the log is Kafka, as a user calls them."""

import threading
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from faults.engine_shop import SparkFree, view
from penstock import Flow, Producer, Schema, TopicSpec, Tumbling, agg
from penstock.engine.run import loop
from penstock.log.kafka.log import KafkaLog
from penstock.testing.servers.kafka_broker import KafkaBroker
from unit.cli.calling import Answer, calls_of

pytestmark = pytest.mark.timeout(120)
ORDERS = "user string, amount long, at timestamp"


def shares(rows: pa.Table) -> pa.Table:
    return pa.table({"user": rows["user"], "share": pc.divide(pa.scalar(100, pa.int64()), rows["amount"])})


def shop() -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="1 minute", idle="1 hour")
    orders.map_arrow(shares, "user string, share long", name="shares").to("shares")
    orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), name="sales").view("sales")
    return flow


class Shop:
    """A home whose log is a name space of its own on the broker."""

    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url
        self.runtime = SparkFree(home, url=url)
        self.log = KafkaLog(self.runtime.log.settings)  # type: ignore[attr-defined]

    def call(self, *words: str) -> Answer:
        return calls_of(*words)("--log", self.url)

    def send(self, *amounts: int, minute: int = 0) -> None:
        with Producer(self.log.topic("orders")) as producer:
            for second, amount in enumerate(amounts):
                producer.send({"user": "a", "amount": amount, "at": f"2024-01-15T10:{minute:02d}:{second:02d}Z"})

    def run(self, *, drain: bool = False) -> None:
        driver = self.runtime.driver(self.runtime.plan(shop()))
        driver.start()
        (loop.drain if drain else loop.catch_up)(driver, threading.Event(), lambda report: None)
        driver.stop()


@pytest.fixture
def kafka_shop(kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_LOG", "")  # --log sets it for the process
    return Shop(tmp_path, f"{kafka_broker.url}?prefix=c{uuid.uuid4().hex[:12]}.")


def test_an_empty_kafka_is_named_by_its_broker(kafka_shop: Shop, kafka_broker: KafkaBroker) -> None:
    answer = kafka_shop.call("topic", "list")
    assert (answer.code, answer.out) == (0, "")
    assert f"no topics in kafka://{kafka_broker.address}?prefix=" in answer.err
    assert str(kafka_shop.home) not in answer.err


def test_a_flow_over_kafka_is_listed_described_reset_reopened_and_dropped(kafka_shop: Shop) -> None:
    kafka_shop.log.create(TopicSpec("orders", 1, Schema.of(ORDERS), "at"))
    kafka_shop.send(4, 5)
    kafka_shop.run()
    [line] = kafka_shop.call("flow", "list").rows
    assert (line["flow"], line["state"], line["outputs"]) == ("shop", "stopped", "topic shares, view sales")
    found = kafka_shop.call("flow", "describe", "shop").rows
    assert next(line["log"] for line in found if line["about"] == "flow") == str(kafka_shop.log.settings)
    [read] = [line for line in found if line["about"] == "input"]
    assert (read["topic"], read["behind"]) == ("orders", 0)
    assert all(line["balances"] for line in found if line["about"] == "book")

    asked = kafka_shop.call("flow", "reset", "shop")
    goes = {("state", "flows/shop"), ("view", "sales"), ("topic", "shares"), ("group", "flow.shop")}
    assert {(line["kind"], line["name"]) for line in asked.rows if line["goes"]} == goes
    assert "nothing changed" in asked.err
    assert kafka_shop.call("flow", "reset", "shop", "--yes").code == 0
    assert kafka_shop.log.topics() == ["orders"]
    assert kafka_shop.call("flow", "list").rows[0]["state"] == "never decided"

    kafka_shop.run(drain=True)
    assert [row["n"] for row in view(kafka_shop.home, "sales")] == [2]
    assert kafka_shop.call("flow", "list").rows[0]["state"] == "ended"
    assert kafka_shop.call("flow", "reopen", "shop", "--yes", "--force").code == 0
    kafka_shop.send(6, minute=20)
    kafka_shop.run(drain=True)
    assert sorted(row["n"] for row in view(kafka_shop.home, "sales")) == [1, 2]

    dropped = kafka_shop.call("flow", "drop", "shop", "--topics", "--yes")
    assert dropped.code == 0, dropped.err
    assert kafka_shop.log.topics() == ["orders"]
    assert kafka_shop.call("flow", "describe", "shop").code == 3


def test_a_flow_is_not_reset_where_its_topics_are_not(kafka_shop: Shop) -> None:
    kafka_shop.log.create(TopicSpec("orders", 1, Schema.of(ORDERS), "at"))
    kafka_shop.send(4)
    kafka_shop.run()
    refused = calls_of("flow", "reset", "shop", "--yes")()
    assert refused.code != 0
    assert "kafka://" in refused.err
    assert "shares" in kafka_shop.log.topics()


def test_dead_letters_over_kafka_are_listed_and_their_records_sent_back_once(kafka_shop: Shop) -> None:
    kafka_shop.log.create(TopicSpec("orders", 1, Schema.of(ORDERS), "at"))
    kafka_shop.send(4, 0, 5)
    kafka_shop.run()
    [line] = kafka_shop.call("dead", "list").rows
    assert (line["flow"], line["step"], line["cause"], line["rows"]) == ("shop", "shares", "ArrowInvalid", 1)
    dry = kafka_shop.call("dead", "redrive", "shop", "--dry-run")
    assert dry.code == 0, dry.err
    first, second = (kafka_shop.call("dead", "redrive", "shop") for _ in range(2))
    assert (first.code, second.code) == (0, 0), (first.err, second.err)
    amounts = [row["amount"] for chunk in kafka_shop.log.topic("orders").read(0) for row in chunk.rows.to_pylist()]
    assert amounts == [4, 0, 5, 0]
