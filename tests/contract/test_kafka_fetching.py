"""Random records, fetched both ways; ranges of any cut; reads beside each other."""

import random
import uuid
from itertools import pairwise

import pytest
from confluent_kafka import Producer

from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.read import ranges as reading
from penstock.log.kafka.read.fetching import Fetched, Fetcher, PlainFetcher
from penstock.log.kafka.read.native import NativeFetcher
from penstock.log.kafka.read.ranges import PartitionReader
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import TopicSpec
from penstock.testing.contracts.log.samples import raw, values
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.timeout(120)
SIZES = [0, 1, 12, 13, 100, 4095, 4096, 5000, 70_000]


@pytest.fixture
def log(kafka_broker: KafkaBroker) -> KafkaLog:
    return KafkaLog(KafkaSettings.of(f"{kafka_broker.url}?prefix=t{uuid.uuid4().hex[:12]}."))


def fill(log: KafkaLog, name: str, seed: int, count: int, compression: str) -> None:
    """Records of all sizes, with and without key, value and headers; some in transactions, committed and aborted."""
    rng = random.Random(seed)
    options = {"compression.type": compression, "linger.ms": 5, "transactional.id": uuid.uuid4().hex}
    producer = Producer(log.settings.client(**options))
    producer.init_transactions(30)
    sent = 0
    while sent < count:
        producer.begin_transaction()
        for _ in range(rng.choice([1, 10, 200])):
            headers = [(f"h{i}", rng.choice([None, b"", b"\0", b"x" * 50])) for i in range(rng.choice([0, 0, 0, 1, 3]))]
            value = rng.choice([None, rng.randbytes(rng.choice(SIZES))])
            key = rng.choice([None, b"", b"k", rng.randbytes(20)])
            time = rng.randrange(1_600_000_000_000, 1_700_000_000_000)
            producer.produce(log.settings.prefix + name, value, key, 0, timestamp=time, headers=headers)
            sent += 1
        if rng.random() < 0.7:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(log.settings.prefix + name, b"last", None, 0)
    producer.commit_transaction(30)


def headers_of(piece: Fetched, row: int) -> list[tuple[bytes, bytes | None]]:
    found = piece.headers.where(piece.headers.rows == row)
    return list(zip(found.names.to_pylist(), found.values.to_pylist(), strict=True))


def everything(fetcher: Fetcher, start: int, stop: int) -> list[tuple[object, ...]]:
    found: list[Fetched] = []
    fetcher.seek(start)
    while not found or (found[-1].end < stop and (not len(found[-1]) or found[-1].offsets[-1] < stop - 1)):
        found.append(fetcher.fetch(997, 1.0))
    return [
        (o, t, k, v, headers_of(piece, i))
        for piece in found
        for i, (o, t, k, v) in enumerate(
            zip(piece.offsets.tolist(), piece.times.tolist(), piece.keys.to_pylist(), piece.values.to_pylist(), strict=True)
        )
    ]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_the_quick_way_gives_what_the_plain_way_gives(log: KafkaLog, compression: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    topic = log.create(TopicSpec("records"))
    fill(log, "records", seed, 1500, compression)
    name, stop = log.settings.prefix + "records", topic.ends()[0].next
    plain, quick = PlainFetcher(log.settings, name, 0), NativeFetcher(log.settings, name, 0)
    for start in (0, stop // 2, stop - 1):
        expected = everything(plain, start, stop)
        assert everything(quick, start, stop) == expected
    assert len(expected) <= 1 < len(everything(plain, 0, stop))
    plain.close()
    quick.close()


def test_ranges_of_any_cut_give_every_record_once(log: KafkaLog) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    topic = log.create(TopicSpec("records"))
    fill(log, "records", seed, 600, "lz4")
    name, stop = log.settings.prefix + "records", topic.ends()[0].next
    reader = PartitionReader(log.settings, name, 0)
    whole = [o for piece in reader.pieces(0, stop) for o in piece.offsets.tolist()]
    rng = random.Random(seed)
    for _ in range(5):
        cuts = sorted({0, stop, *(rng.randrange(stop) for _ in range(6))})
        parts = [[o for piece in reader.pieces(a, b) for o in piece.offsets.tolist()] for a, b in pairwise(cuts)]
        assert [o for part in parts for o in part] == whole
        assert all(a <= o < b for part, a, b in zip(parts, cuts, cuts[1:], strict=False) for o in part)
    reader.close()


def test_two_reads_of_one_partition_at_a_time_do_not_disturb_each_other(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 50)
    topic = log.create(TopicSpec("records"))
    for start in range(0, 400, 100):
        topic.append(0, raw([b"%d" % n for n in range(start, start + 100)]))
    wanted = [b"%d" % n for n in range(400)]
    outer: list[bytes] = []
    for chunk in topic.read(0):
        outer += chunk.rows.column("value").to_pylist()
        assert values(topic, "value") == wanted
    assert outer == wanted
