"""The broker that other tests break: what it promises them."""

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing.servers.jars import once
from penstock.testing.servers.kafka_broker import KafkaBroker


def produce(broker: KafkaBroker, *values: bytes) -> int:
    producer = Producer({"bootstrap.servers": broker.address, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce("kept", value)
    return int(producer.flush(30))


def consumed(broker: KafkaBroker, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "t", "log_level": 0})
    consumer.assign([TopicPartition("kept", 0, 0)])
    found = [m.value() for m in consumer.consume(count, timeout=30)]
    consumer.close()
    return found


@pytest.mark.spark
def test_killed_and_started_again_it_has_its_data_and_its_address(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    with KafkaBroker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
        address = broker.address
        assert produce(broker, b"1", b"2") == 0
        broker.kill()
        broker.start()
        assert broker.address == address
        assert produce(broker, b"3") == 0
        assert consumed(broker, 3) == [b"1", b"2", b"3"]
        assert broker.address != kafka_broker.address
    assert broker.process is None


def test_a_thing_of_the_cache_is_made_by_one_process_while_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[Path] = []
    begun = threading.Event()

    def make(place: Path) -> None:
        made.append(place)
        begun.wait(30)
        (place / "jar").write_text("whole")

    threads = [threading.Thread(target=once, args=("thing", make)) for _ in range(4)]
    for each in threads:
        each.start()
    begun.set()
    for each in threads:
        each.join()
    assert len(made) == 1
    assert (once("thing", make) / "jar").read_text() == "whole"


def test_what_could_not_be_made_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def half(place: Path) -> None:
        (place / "jar").write_text("ha")
        raise OSError("the line was cut")

    def whole(place: Path) -> None:
        (place / "jar").write_text("whole")

    with pytest.raises(OSError, match="cut"):
        once("thing", half)
    assert (once("thing", whole) / "jar").read_text() == "whole"
