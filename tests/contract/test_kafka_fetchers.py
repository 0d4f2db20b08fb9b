"""Both ways of fetching give the same records, whoever wrote them and however."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.errors import OffsetGone
from penstock.log.kafka.read.fetching import Fetched, Fetcher, PlainFetcher
from penstock.log.kafka.read.native import NativeFetcher, native_library
from penstock.log.kafka.settings import KafkaSettings
from penstock.testing.servers.kafka_broker import KafkaBroker

KEPT = {"retention.ms": "-1"}  # the times below are years ago
KINDS = {"created": KEPT, "appended": KEPT | {"message.timestamp.type": "LogAppendTime"}}


def topic(broker: KafkaBroker, name: str, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)


def write(broker: KafkaBroker, name: str, compression: str) -> None:
    """Batches of many sizes, keys, headers, tombstones, empty ones, times that go back; a transaction given up among them."""
    options = {"bootstrap.servers": broker.address, "compression.type": compression, "linger.ms": 20}
    producer = Producer(options | {"transactional.id": f"{name}-{compression}"})
    producer.init_transactions(60)
    for round in range(6):
        producer.begin_transaction()
        for i in range(200):
            value = None if i % 50 == 7 else b"" if i % 50 == 8 else b"%d/%d " % (round, i) + b"x" * (i % 40)
            key = None if i % 3 else b"" if i % 5 == 4 else b"key %d" % i
            headers = [("h", b"v"), ("h", None)] if i % 17 == 3 else None
            producer.produce(name, value, key, 0, timestamp=1_700_000_000_000 + 7 * i - 1000 * (i % 2), headers=headers)
            if i % 71 == 70:
                producer.flush(60)
        producer.flush(60)
        producer.abort_transaction(60) if round == 2 else producer.commit_transaction(60)


def fetched(fetcher: Fetcher, start: int, most: int) -> list[Fetched]:
    fetcher.seek(start)
    found: list[Fetched] = []
    while not found or found[-1].end < 0:
        found.append(fetcher.fetch(most, 5.0))
    fetcher.close()
    return found


def headers_of(part: Fetched, row: int) -> list[tuple[bytes, bytes | None]]:
    found = part.headers.where(part.headers.rows == row)
    return list(zip(found.names.to_pylist(), found.values.to_pylist(), strict=True))


def told(parts: list[Fetched]) -> list[tuple[object, ...]]:
    rows = []
    for part in parts:
        columns = (part.offsets.tolist(), part.times.tolist(), part.keys.to_pylist(), part.values.to_pylist())
        rows += [(*row, headers_of(part, i)) for i, row in enumerate(zip(*columns, strict=True))]
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_the_quick_way_gives_what_the_plain_way_gives(kind: str, kafka_broker: KafkaBroker) -> None:
    if native_library() is None:
        pytest.fail("librdkafka is not where Kafka's client has it")
    settings, name = KafkaSettings.of(kafka_broker.url), f"fetchers-{kind}"
    topic(kafka_broker, name, KINDS[kind])
    for compression in ("none", "lz4", "zstd"):
        write(kafka_broker, name, compression)
    plain = fetched(PlainFetcher(settings, name, 0), 0, 100_000)
    assert len(told(plain)) == 3 * 5 * 200
    for start, most in ((0, 100_000), (0, 7), (613, 50)):
        quick = fetched(NativeFetcher(settings, name, 0), start, most)
        assert told(quick) == [row for row in told(plain) if row[0] >= start]  # type: ignore[operator]
        assert quick[-1].end == plain[-1].end


def test_both_ways_stop_loudly_at_an_offset_that_is_not_there(kafka_broker: KafkaBroker) -> None:
    settings = KafkaSettings.of(kafka_broker.url)
    topic(kafka_broker, "fetchers-gone", {})
    for make in (PlainFetcher, NativeFetcher):
        with pytest.raises(OffsetGone):
            fetched(make(settings, "fetchers-gone", 0), 1000, 10)
