"""Kafka as the log: appends in transactions and reads into Arrow, beside Kafka's own producer and consumer, a plain loop over
Python's client, and Spark's connector. One broker of one node on the same cores: compare the lines, not the numbers."""

import os
import re
import subprocess
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from connector import connector
from events import events
from kafka_flows import into_kafka, windows
from measuring import Meter, median
from report import Table, options, parsed, percent, publish, rate
from sides import apart, is_side, run_side

from penstock.core.columns import VALUE
from penstock.core.schema import Schema
from penstock.engine.spark.java import find_java
from penstock.log.intake.text import json_objects
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import Sender, Topic, TopicSpec
from penstock.testing.servers.jars import fetched
from penstock.testing.servers.kafka_broker import VERSION, KafkaBroker

TOOLS = (f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
FRAMES = (1_000, 10_000, 100_000)

Runs = dict[str, list[float]]


def tool(name: str, *arguments: str) -> str:
    """What one of Kafka's own measuring programs prints."""
    jars = fetched(f"kafka-tools-{VERSION}", *TOOLS)
    command = [str(find_java().path), "-Xmx512m", "-cp", f"{jars}/*", f"org.apache.kafka.tools.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


def own_producer(broker: KafkaBroker, topic: str, rows: int, size: int) -> float:
    """Records a second, as it says itself: the JVM's start does not count."""
    settings = [f"bootstrap.servers={broker.address}", "acks=all", "linger.ms=5", "batch.size=1048576", "compression.type=lz4"]
    said = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(rows), "--record-size", str(size),
        "--throughput", "-1", "--producer-props", *settings,
    )  # fmt: skip
    return float(re.findall(r"([\d.]+) records/sec", said)[-1])


def own_consumer(broker: KafkaBroker, topic: str, rows: int) -> float:
    said = tool("ConsumerPerformance", "--bootstrap-server", broker.address, "--topic", topic, "--messages", str(rows))
    head, line = [each.split(",") for each in said.strip().splitlines() if "," in each][:2]
    found = dict(zip((word.strip() for word in head), (word.strip() for word in line), strict=True))
    return float(found.get("fetch.nMsg.sec") or found["nMsg.sec"])


def measured(work: Callable[[], int], repeat: int) -> tuple[float, float]:
    """Rows a second, and the share of the machine that others used."""
    meters, rows = [], 0
    for _ in range(repeat):
        with Meter() as meter:
            rows = work()
        meters.append(meter)
    return rows / median(m.seconds for m in meters), median(m.foreign for m in meters)


def batches(table: pa.Table, rows: int) -> list[pa.RecordBatch]:
    return [b for start in range(0, table.num_rows, rows) for b in table.slice(start, rows).combine_chunks().to_batches()]


def measure_appends(log: KafkaLog, broker: KafkaBroker, table: pa.Table, values: pa.Table, repeat: int) -> Table:
    out = Table("Into Kafka, one partition", "what", "rows/s", "of Kafka's own producer", "foreign")
    size = int(values.nbytes / values.num_rows)
    log.create(TopicSpec("own"))
    with Meter() as meter:
        own = median(own_producer(broker, log.settings.prefix + "own", table.num_rows, size) for _ in range(repeat))
    out.add(f"Kafka's own producer, {size} bytes a record, acks=all, lz4", rate(own), "100 %", percent(meter.foreign))
    for frame in FRAMES:
        for kind, rows in (("JSON", table), ("raw", values)):
            given = batches(rows, frame)
            schema = Schema(table.schema) if kind == "JSON" else None
            topic = log.create(TopicSpec(f"append-{kind}-{frame}", schema=schema, time="ts" if schema else None))
            found, foreign = measured(lambda topic=topic, given=given: _append(topic, given), repeat)  # type: ignore[misc]
            out.add(
                f"append, {kind}, {frame:,} rows a transaction, exactly once", rate(found), percent(found / own), percent(foreign)
            )
    return out


_SENT = [0]


def _append(topic: Topic, given: list[pa.RecordBatch]) -> int:
    for batch in given:
        _SENT[0] += 1
        topic.append(0, batch, sender=Sender(f"bench-{topic.spec.name}", 0, _SENT[0], gaps=True))
    return sum(batch.num_rows for batch in given)


def measure_reads(log: KafkaLog, broker: KafkaBroker, table: pa.Table, values: pa.Table, repeat: int, connector: bool) -> Table:
    out = Table("From Kafka, one partition, read committed", "what", "rows/s", "of Kafka's own consumer", "foreign")
    typed = log.create(TopicSpec("typed", schema=Schema(table.schema), time="ts"))
    raw = log.create(TopicSpec("values"))
    for topic, rows in ((typed, table), (raw, values)):
        _append(topic, batches(rows, 50_000))
    name = log.settings.prefix + "values"
    with Meter() as meter:
        own = median(own_consumer(broker, name, table.num_rows) for _ in range(repeat))
    out.add("Kafka's own consumer", rate(own), "100 %", percent(meter.foreign))
    ways: list[tuple[str, Callable[[], int]]] = [
        ("plain loop over Python's client: value, key, time of each", lambda: _plain_loop(log, name, table.num_rows)),
        ("read into Arrow, raw", lambda: _read(raw)),
        ("read into Arrow, JSON into columns", lambda: _read(typed)),
    ]
    for what, work in ways:
        work()
        found, foreign = measured(work, repeat)
        out.add(what, rate(found), percent(found / own), percent(foreign))
    if connector:
        first, found, foreign = _connector(broker, name, table.num_rows, repeat)
        out.add(
            f"Spark's connector into Python tasks (first read {first:.1f} s)", rate(found), percent(found / own), percent(foreign)
        )
    return out


def _read(topic: Topic) -> int:
    return sum(chunk.rows.num_rows for chunk in topic.read(0))


def _plain_loop(log: KafkaLog, name: str, rows: int) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(log.settings.client(**{"group.id": "bench", "isolation.level": "read_committed"}))
    consumer.assign([TopicPartition(name, 0, 0)])
    found = 0
    while found < rows:
        records = [(m.value(), m.key(), m.timestamp()) for m in consumer.consume(10_000, 1.0) if m.error() is None]
        found += len(records)
    consumer.close()
    return found


def _connector(broker: KafkaBroker, name: str, rows: int, repeat: int) -> tuple[float, float, float]:
    """Seconds of the first read; rows a second and foreign share of the later ones. Rows go to Python tasks, as ours do."""
    from penstock.engine.spark.session import start_session

    jars = connector()
    spark = start_session("bench-kafka", "local[2]", {"spark.jars": ",".join(map(str, sorted(jars.glob("*.jar"))))})

    def work() -> int:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", name)
        reader = reader.option("kafka.isolation.level", "read_committed").option("startingOffsets", "earliest")
        counted = reader.load().select("value", "key", "timestamp", "offset").mapInArrow(_counted, "n long")
        found = int(counted.agg({"n": "sum"}).collect()[0][0])
        if found != rows:
            raise SystemExit(f"the connector found {found:,} rows of {rows:,}")
        return found

    with Meter() as first:
        work()
    found, foreign = measured(work, repeat)
    spark.stop()
    return first.seconds, found, foreign


WAYS = {  # what a flow reads -> (in Kafka, form)
    "the embedded log, typed": (False, "typed"),
    "the embedded log, JSON in a raw topic": (False, "raw"),
    "Kafka, JSON": (True, "typed"),
}


def measure_flows(place: Path, broker: KafkaBroker, given: Namespace) -> list[Table]:
    """The same flow over both logs, each in a process of its own; then rows through Kafka, exactly once."""
    epochs = [given.rows * 2, max(1_000, given.rows // 10)]
    wish = {"rows": given.rows, "keys": 1_000, "epochs": epochs, "repeat": given.repeat, "warm": 3 if given.quick else 30}
    found = {}
    for what, (kafka, form) in WAYS.items():
        log = f"{broker.url}?prefix=flows.&transaction_timeout=60" if kafka else ""
        found[what] = apart(__file__, "windows", _room(place, form + log[:5]), wish | {"log": log, "form": form})
    if len({tuple(one["sums"]) for one in found.values()}) > 1:
        raise SystemExit("the flow gives other rows over another log")
    flows = Table(
        "Tumbling count and sum by a thousand keys into a view", "it reads", "rows an epoch", "rows/s",
        "of JSON in a raw topic", "of typed", "CPU", "foreign",
    )  # fmt: skip
    for epoch in map(str, epochs):
        typed, raw, _ = (found[what][epoch]["rate"] for what in WAYS)
        for what in WAYS:
            one = found[what][epoch]
            shares = percent(one["rate"] / raw), percent(one["rate"] / typed)
            flows.add(what, _rows(epoch, given.rows), rate(one["rate"]), *shares, f"{one['cpu']:.1f} s", percent(one["foreign"]))
    return [flows, _through(place, broker, wish)]


def _through(place: Path, broker: KafkaBroker, wish: dict[str, Any]) -> Table:
    log = f"{broker.url}?prefix=through.&transaction_timeout=60"
    found = apart(__file__, "into", _room(place, "into"), wish | {"log": log})
    out = Table(
        "Every row from one topic of Kafka into another, exactly once: JSON in, JSON out, four partitions", "rows an epoch",
        "whole flow, rows/s", "the sink alone, rows/s", "CPU", "foreign",
    )  # fmt: skip
    for epoch, one in found.items():
        shown = rate(one["rate"]), rate(one["delivered"]), f"{one['cpu']:.1f} s", percent(one["foreign"])
        out.add(_rows(epoch, wish["rows"]), *shown)
    return out


def _rows(epoch: str, rows: int) -> str:
    return f"{min(int(epoch), rows):,}"


def _room(place: Path, name: str) -> Path:
    room = place / name.replace(":", "")
    room.mkdir()
    return room


def _counted(batches: object) -> object:
    for batch in batches:  # type: ignore[attr-defined]
        yield pa.record_batch({"n": pa.array([batch.num_rows])})


def main() -> None:
    parser = options(__doc__, 500_000, 5_000)
    parser.add_argument("--no-connector", action="store_true", help="leave Spark's connector out")
    given = parsed(parser, repeat=3)
    os.environ.setdefault("PENSTOCK_HOME", tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix="bench-") as place, KafkaBroker(Path(place)) as broker:
        log = KafkaLog(KafkaSettings.of(f"{broker.url}?prefix=bench.&transaction_timeout=60"))
        table = events(given.rows, 1_000)
        values = pa.table({VALUE: json_objects(table)})
        tables = [
            measure_appends(log, broker, table, values, given.repeat),
            measure_reads(log, broker, table, values, given.repeat, not (given.no_connector or given.quick)),
            *measure_flows(Path(place), broker, given),
        ]
    publish("kafka", tables, given.markdown)


if __name__ == "__main__":
    run_side({"windows": windows, "into": into_kafka}) if is_side() else main()
