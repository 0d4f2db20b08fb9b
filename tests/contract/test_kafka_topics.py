"""What is special about topics of Kafka: records of others, name spaces, added partitions, codecs, other processes."""

import copy
import json
import os
import time
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from penstock.core.change import Op
from penstock.core.columns import BAD, HEADERS, KEY, OP, RAW
from penstock.core.hashing import partition_of
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.engine.source.read import Range, read
from penstock.engine.source.spec import SourceSpec
from penstock.errors import AlreadyThere, BadInput, BadName, LogError, NotFound, OffsetGone, SequenceGap
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.open import open_log
from penstock.log.port import Part, Sender, TopicSpec
from penstock.log.producer import Producer as OurProducer
from penstock.testing.contracts.log.samples import NOW, SCHEMA, typed, values
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def log(kafka_broker: KafkaBroker) -> KafkaLog:
    return KafkaLog(KafkaSettings.of(f"{kafka_broker.url}?prefix=t{uuid.uuid4().hex[:12]}."))


def foreign(log: KafkaLog, name: str, records: list[dict[str, Any]]) -> None:
    """Records of a producer that knows nothing of us."""
    producer = Producer(log.settings.client())
    for record in records:
        producer.produce(log.settings.prefix + name, partition=0, **record)
    assert producer.flush(30) == 0


def foreign_topic(log: KafkaLog, name: str, partitions: int = 1) -> None:
    admin = AdminClient(log.settings.client())
    admin.create_topics([NewTopic(log.settings.prefix + name, partitions, 1)])[log.settings.prefix + name].result(30)


def test_a_topic_that_others_made_is_raw(log: KafkaLog) -> None:
    foreign_topic(log, "theirs", 3)
    foreign(log, "theirs", [{"value": b"\xff", "key": b"k", "headers": [("h", b"1"), ("n", None)]}, {"value": None, "key": b"k"}])
    topic = log.topic("theirs")
    assert (topic.spec.schema, topic.spec.partitions) == (None, 3)
    assert values(topic, "value") == [b"\xff", None]
    [chunk] = topic.read(0)
    assert chunk.rows.column(KEY).to_pylist() == [b"k", b"k"]
    assert chunk.rows.column(HEADERS).to_pylist() == [[("h", b"1"), ("n", None)], None]


def test_a_topic_of_others_is_given_settings_and_its_records_are_left_as_they_are(log: KafkaLog) -> None:
    foreign_topic(log, "theirs", 2)
    foreign(log, "theirs", [{"value": json.dumps({"id": 1, "text": "a", "at": "2024-01-15T10:30:00Z", "more": 1}).encode()}])
    topic = log.adopt(TopicSpec("theirs", schema=SCHEMA, time="at"))
    assert topic.spec.partitions == 2
    assert values(topic, "id") == [1]
    assert log.topic("theirs").spec == topic.spec
    with pytest.raises(AlreadyThere):
        log.adopt(TopicSpec("theirs", schema=SCHEMA))
    with pytest.raises(NotFound):
        log.adopt(TopicSpec("nobodys", schema=SCHEMA))


def test_a_record_that_does_not_fit_is_told_with_its_reason_and_the_others_are_read(log: KafkaLog) -> None:
    topic = log.create(TopicSpec("orders", schema=Schema.of("id long not null, text string, at timestamp"), time="at"))
    topic.append(0, typed([1]))
    foreign(log, "orders", [{"value": b"\xffnonsense"}, {"value": b'{"id": "x"}'}, {"value": b"{}"}, {"value": b""}])
    topic.append(0, typed([2]))
    [chunk] = topic.read(0)
    assert chunk.rows.column("id").to_pylist() == [1, None, None, None, None, 2]
    reasons = chunk.rows.column(BAD).to_pylist()
    assert [reason is None for reason in reasons] == [True, False, False, False, False, True]
    assert "not UTF-8" in reasons[1]
    assert "column 'id' wants long" in reasons[2]
    assert chunk.rows.column(RAW).to_pylist()[1:5] == [b"\xffnonsense", b'{"id": "x"}', b"{}", b""]
    assert (chunk.frame.least, chunk.frame.greatest) == (NOW, NOW)


def test_the_engine_counts_a_record_that_does_not_fit_among_the_dead(log: KafkaLog) -> None:
    topic = log.create(TopicSpec("orders", schema=SCHEMA, time="at"))
    topic.append(0, typed([1]))
    foreign(log, "orders", [{"value": b"nonsense"}])
    topic.append(0, typed([2]))
    spec = SourceSpec("s", "orders", SCHEMA, ("id", "at"), "at", 0, 0, False, False, False, 86_400_000_000, blind=True)
    [piece] = read(topic, spec, Range("s", 0, 0, topic.ends()[0].next, NEVER, NEVER))
    assert piece.rows is not None
    assert piece.rows.column("id").to_pylist() == [1, 2]
    assert (piece.fates["in"], piece.fates["dead"], piece.fates["passed"]) == (3, 1, 2)
    [dead] = piece.dead
    assert (dead.offset, dead.value) == (1, b"nonsense")
    assert "not JSON" in dead.reason


def test_a_tombstone_in_a_typed_topic_is_a_delete(log: KafkaLog) -> None:
    topic = log.create(TopicSpec("users", schema=Schema.of("id long not null, name string"), key="id"))
    foreign(log, "users", [{"value": b'{"id": 1, "name": "a"}', "key": b"1"}, {"value": None, "key": b"1"}])
    [chunk] = topic.read(0)
    assert chunk.rows.column(OP).to_pylist() == [None, Op.DELETE]
    assert chunk.rows.column("id").to_pylist() == [1, 1]
    assert chunk.rows.column("name").to_pylist() == ["a", None]


@pytest.mark.parametrize("codec", ["json", "avro"])
def test_rows_of_every_codec_come_back(log: KafkaLog, codec: str) -> None:
    topic = log.create(TopicSpec("orders", schema=SCHEMA, time="at", codec=codec))
    topic.append(0, typed([1, 2, 3]))
    again = log.topic("orders")
    assert again.spec.codec == codec
    assert again.describe()["codec"] == codec
    assert values(again, "text") == ["row 1", "row 2", "row 3"]
    wider = log.evolve("orders", Schema.of(SCHEMA.ddl() + ", extra double"))
    wider.append(0, typed([4], extra=pa.array([0.5])))
    assert values(wider, "extra") == [None, None, None, 0.5]
    assert values(wider, "id") == [1, 2, 3, 4]


def test_name_spaces_are_apart(log: KafkaLog) -> None:
    other = KafkaLog(log.settings.with_options(prefix=f"u{uuid.uuid4().hex[:12]}."))
    log.create(TopicSpec("orders"))
    assert other.topics() == []
    other.create(TopicSpec("orders"))
    other.delete("orders")
    assert log.topics() == ["orders"]


def test_topics_of_the_broker_and_of_ours_are_not_shown_nor_opened(kafka_broker: KafkaBroker, log: KafkaLog) -> None:
    log.create(TopicSpec("orders", schema=SCHEMA)).append(0, typed([1]), sender=Sender("p", 0, 0))
    whole = open_log(url=kafka_broker.url)
    assert not [name for name in whole.topics() if name.startswith("_")]
    for name in ("_penstock_topics", "__consumer_offsets"):
        with pytest.raises(NotFound):
            whole.topic(name)
        with pytest.raises(BadName):
            whole.create(TopicSpec(name))


def test_partitions_can_be_added_and_an_open_topic_learns_of_them(log: KafkaLog) -> None:
    topic = log.create(TopicSpec("orders", 1, schema=SCHEMA))
    assert log.alter(replace(topic.spec, partitions=3)).spec.partitions == 3
    assert set(topic.ends()) == {0, 1, 2}
    topic.append(2, typed([1]))
    with pytest.raises(BadInput, match="cannot have 2"):
        log.alter(replace(log.topic("orders").spec, partitions=2))


def test_retention_is_kafkas_own_and_follows_the_settings(log: KafkaLog) -> None:
    spec = TopicSpec("orders", schema=SCHEMA, retain=timedelta(hours=1), retain_bytes=1 << 20)
    log.create(spec)
    assert (config(log, "orders")["retention.ms"], config(log, "orders")["retention.bytes"]) == ("3600000", "1048576")
    assert log.alter(replace(spec, retain=None)).spec.retain is None
    assert log.topic("orders").spec == replace(spec, retain=None)
    assert config(log, "orders")["retention.ms"] == "-1"
    for act in (lambda: log.create(TopicSpec("users", compact=True)), lambda: log.alter(replace(spec, compact=True))):
        with pytest.raises(BadInput, match="cannot be compacted on Kafka"):
            act()


def config(log: KafkaLog, name: str) -> dict[str, str]:
    place = ConfigResource(ConfigResource.Type.TOPIC, log.settings.prefix + name)
    admin = AdminClient(log.settings.client())
    [found] = admin.describe_configs([place]).values()
    return {name: entry.value for name, entry in found.result(30).items()}


def test_a_key_goes_where_kafkas_own_clients_put_it(log: KafkaLog) -> None:
    topic = log.create(TopicSpec("orders", 5, schema=SCHEMA, key="id"))
    with OurProducer(topic) as producer:
        for number in range(50):
            producer.send({"id": number, "text": "x", "at": "2024-01-15T10:30:00Z"})
    for partition in range(5):
        found = values(topic, "id", partition)
        assert found == [n for n in range(50) if partition_of(str(n).encode(), 5) == partition]


def test_a_topic_goes_to_another_process_and_after_a_fork(log: KafkaLog) -> None:
    topic = log.create(TopicSpec("orders", schema=SCHEMA))
    topic.append(0, typed([1, 2]))
    assert values(copy.deepcopy(topic), "id") == [1, 2]
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        found = values(topic, "id")
        topic.append(0, typed([3, 4]))
        os.write(here, json.dumps(found).encode())
        os._exit(0)
    assert json.loads(os.read(there, 100)) == [1, 2]
    assert os.waitpid(child, 0)[1] == 0
    assert values(topic, "id") == [1, 2, 3, 4]


def test_frames_for_several_partitions_are_there_together_and_once(log: KafkaLog) -> None:
    topic = log.create(TopicSpec("orders", 3, schema=SCHEMA))
    parts = [Part(0, typed([1])), Part(1, typed([2, 3]), NOW), Part(2, None, NOW)]
    for _ in range(2):
        topic.append_together(parts, Sender("flow", 0, 5, gaps=True))
    assert [values(topic, "id", p) for p in range(3)] == [[1], [2, 3], []]
    assert {p: topic.senders(p)["flow"].sequence for p in range(3)} == {0: 5, 1: 5, 2: 5}
    topic.append(0, typed([4]), sender=Sender("flow", 0, 6, gaps=True))
    topic.append_together([Part(0, typed([4])), Part(1, typed([5]))], Sender("flow", 0, 6, gaps=True))
    assert [values(topic, "id", p) for p in (0, 1)] == [[1, 4], [2, 3, 5]]
    with pytest.raises(SequenceGap):
        topic.append_together([Part(2, typed([9])), Part(0, typed([9]))], Sender("flow", 0, 4, gaps=True))
    assert values(topic, "id", 2) == []


def test_offsets_that_are_gone_are_told(log: KafkaLog) -> None:
    topic = log.create(TopicSpec("orders", schema=SCHEMA))
    for n in range(4):
        topic.append(0, typed([n]))
    from confluent_kafka import TopicPartition

    admin = AdminClient(log.settings.client())
    [gone] = admin.delete_records([TopicPartition(log.settings.prefix + "orders", 0, 2)]).values()
    gone.result(30)
    assert topic.ends()[0].first == 2
    with pytest.raises(OffsetGone, match="starts at offset 2; 0 is gone"):
        topic.read(0)
    with pytest.raises(OffsetGone):
        topic.frames(0, 1)
    assert values(topic, "id", start=2) == [2, 3]


def test_a_broker_that_is_not_there_is_told_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.kafka.client.PATIENCE", 0.5)
    with pytest.raises(LogError, match=r"Kafka at 127\.0\.0\.1:9 cannot be used"):
        open_log(url="kafka://127.0.0.1:9").topics()


def test_what_was_written_to_a_topic_made_again_under_the_name_of_a_deleted_one_is_given_up_at_once(log: KafkaLog) -> None:
    spec = TopicSpec("orders", schema=SCHEMA, time="at")
    old = log.create(spec)
    old.append(0, typed([1, 2]), sender=Sender("shop", 1, 1))
    log.delete("orders")
    again = log.create(spec)
    with pytest.raises(NotFound, match="was deleted; the one of that name is another"):
        old.append(0, typed([3, 4]), sender=Sender("shop", 1, 2))
    started = time.monotonic()
    again.append(0, typed([5, 6]))
    assert time.monotonic() - started < log.settings.transaction_timeout / 1000 / 2
    assert values(again, "id") == [5, 6]
