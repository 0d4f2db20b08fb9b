"""Records through a filter, from one Kafka topic into another: Spark's real-time mode and Penstock, one record at a time.

Real-time mode keeps its tasks, too, for queries without state. It writes at least once, and commits where it has read every few
minutes; Penstock writes exactly once, a transaction for each epoch. The floor is what Kafka itself takes for a transaction: a loop
over its client that reads a record, writes it and commits both together, without a check, a decision or a state.
"""

import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connector import connector
from flows import Bench
from measuring import Meter, median, percentile
from report import Table, milliseconds, options, parsed, percent, publish
from sides import apart, is_side, run_side

from penstock import Flow
from penstock.engine.run import loop
from penstock.log.open import open_log
from penstock.log.port import TopicSpec
from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.kafka_broker import KafkaBroker

_BETWEEN = 0.1  # seconds, on average, between two records
_PATIENCE = 60.0


def latencies(address: str, into: str, out_of: str, wish: dict[str, Any]) -> list[float]:
    """Seconds from before a record is sent until it is read from the other topic, committed."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "isolation.level": "read_committed", "fetch.wait.max.ms": 500}
    )
    consumer.assign([TopicPartition(out_of, 0, 0)])
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "all"})
    pause, seconds = random.Random(7), []
    for number in range(wish["sends"]):
        time.sleep(pause.uniform(0, 2 * _BETWEEN))
        started = time.perf_counter()
        producer.produce(into, b'{"id": %d, "v": %d}' % (number, 1 + number % 2), partition=0)
        producer.flush()
        while (message := consumer.poll(_PATIENCE)) is None or message.error():
            if time.perf_counter() - started > _PATIENCE:
                raise SystemExit("records do not come through")
        seconds.append(time.perf_counter() - started)
    consumer.close()
    return seconds


def measured(address: str, into: str, out_of: str, wish: dict[str, Any]) -> dict[str, Any]:
    with Meter() as meter:
        seconds = latencies(address, into, out_of, wish)
    return {"seconds": seconds[wish["skip"] :], "foreign": meter.foreign}


def penstock(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    bench = Bench(directory / "home", f"kafka://{wish['address']}?prefix=penstock.")
    bench.runtime.log.create(TopicSpec("in", 1))
    driver = bench.started(lambda flow: _filtered(flow))
    stop = threading.Event()
    thread = threading.Thread(target=loop.run, args=(driver, stop, lambda report: None))
    thread.start()
    try:
        return measured(wish["address"], "penstock.in", "penstock.out", wish)
    finally:
        stop.set()
        thread.join()
        driver.stop()


def _filtered(flow: Flow) -> None:
    flow.stream("in", "id long, v long").where("v > 0").to("out", partitions=1)


def spark(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("real-time mode")
    settings = {
        "spark.jars": ",".join(map(str, sorted(connector().glob("*.jar")))),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    log = open_log(directory, f"kafka://{wish['address']}?prefix=spark.")
    for topic in ("in", "out"):
        log.create(TopicSpec(topic, 1))
    options = {"kafka.bootstrap.servers": wish["address"]}
    rows = session.readStream.format("kafka").options(**options, subscribe="spark.in", startingOffsets="earliest").load()
    parsed_rows = rows.selectExpr("cast(value as string) value", "from_json(cast(value as string), 'id long, v long') r")
    query = (
        parsed_rows.where("r.v > 0")
        .select("value")
        .writeStream.format("kafka")
        .options(**options, topic="spark.out", checkpointLocation=str(directory / "checkpoint"))
        .outputMode("update")
        .trigger(realTime="5 minutes")
        .start()
    )
    try:
        return measured(wish["address"], "spark.in", "spark.out", wish)
    finally:
        query.stop()


def floor(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    """A transaction a record, by Kafka's client alone."""
    log = open_log(directory, f"kafka://{wish['address']}?prefix=floor.")
    for topic in ("in", "out"):
        log.create(TopicSpec(topic, 1))
    stop = threading.Event()
    thread = threading.Thread(target=_passed_on, args=(wish["address"], "floor.in", "floor.out", stop))
    thread.start()
    try:
        return measured(wish["address"], "floor.in", "floor.out", wish)
    finally:
        stop.set()
        thread.join()


def _passed_on(address: str, source: str, target: str, stop: threading.Event) -> None:
    """Reads, filters and writes: each record, and how far was read, in one transaction."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    reading = {"group.id": "floor", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": address} | reading)
    consumer.assign([TopicPartition(source, 0, 0)])
    producer = Producer({"bootstrap.servers": address, "transactional.id": "floor", "linger.ms": 0})
    producer.init_transactions()
    while not stop.is_set():
        message = consumer.poll(0.2)
        if message is None or message.error():
            continue
        producer.begin_transaction()
        if json.loads(message.value())["v"] > 0:
            producer.produce(target, message.value(), partition=0)
        reached = [TopicPartition(source, 0, message.offset() + 1)]
        producer.send_offsets_to_transaction(reached, consumer.consumer_group_metadata())
        producer.commit_transaction()
    consumer.close()


SIDES: dict[str, Callable[[Path, dict[str, Any]], Any]] = {"spark": spark, "penstock": penstock, "floor": floor}
TITLES = {
    "spark": "Spark, real-time mode (at least once)",
    "penstock": "Penstock (exactly once)",
    "floor": "a bare transaction per record: the floor of exactly once here",
}


def sides() -> list[str]:
    """Those that can be run here."""
    try:
        connector()
    except NotToBeHad as reason:
        print(f"  without Spark: {reason}", file=sys.stderr)
        return [side for side in SIDES if side != "spark"]
    return list(SIDES)


def main() -> None:
    given = parsed(options(__doc__, 300, 20))
    out = Table(
        "A filter from Kafka into Kafka, from the send until the record is read, committed", "side", "p50", "p90", "p99", "foreign"
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as name, KafkaBroker(Path(name) / "broker") as broker:
        wish = {"sends": given.rows, "skip": given.rows // 3, "address": broker.address}
        found = {side: apart(__file__, side, Path(name), wish) for side in sides()}
    for side, facts in found.items():
        quantiles = (milliseconds(percentile(facts["seconds"], share)) for share in (0.5, 0.9, 0.99))
        out.add(TITLES[side], *quantiles, percent(facts["foreign"]))
    if "spark" not in found:
        out.add(TITLES["spark"], "–", "–", "–", "its Kafka connector cannot be had here")
        publish("real_time", [out], given.markdown)
        return
    medians = {side: median(facts["seconds"]) for side, facts in found.items()}
    ratio = Table("Ratio of the medians", "Spark / Penstock", "floor / Penstock")
    ratio.add(*(f"**{medians[side] / medians['penstock']:.2f}×**" for side in ("spark", "floor")))
    publish("real_time", [out, ratio], given.markdown)


if __name__ == "__main__":
    run_side(SIDES) if is_side() else main()
