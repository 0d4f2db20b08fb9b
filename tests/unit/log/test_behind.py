"""A producer that waits for a group: it is slowed, not dropped, and nothing is lost."""

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Behind, GroupConsumer, Producer
from penstock.errors import BadInput, Full
from penstock.log.consumer import records
from penstock.log.file.log import FileLog
from penstock.log.groups.port import Source
from penstock.log.memory import MemoryLog
from penstock.log.port import Log, Topic, TopicSpec
from penstock.storage.local import LocalStorage
from waiting import until


@pytest.fixture(params=["memory", "file"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    return MemoryLog() if request.param == "memory" else FileLog(LocalStorage(tmp_path / "log"))


@pytest.fixture
def views(log: Log) -> Topic:
    return log.create(TopicSpec("page-views", 2))


def read_to(log: Log, topic: Topic, *offsets: int) -> None:
    source = Source(topic.spec.name, topic.id, topic.spec.partitions)
    log.groups().put("web", source, dict(enumerate(offsets)))


def behind(log: Log, records: int, wait: str = "1 ms") -> Behind:
    return Behind("web", records, wait, log)


def goes_through(call: Callable[[], object]) -> bool:
    try:
        call()
    except Full:
        return False
    return True


def values(topic: Topic) -> list[object]:
    return [record.value for record in records(topic)]


def test_rows_that_find_no_room_are_kept_and_go_when_there_is_some(log: Log, views: Topic) -> None:
    read_to(log, views, 0, 0)
    producer = Producer(views, batch_rows=2, linger="1 hour", behind=behind(log, 3))
    for n in range(5):
        producer.send(b"%d" % n)
    with pytest.raises(Full, match="group web is 4 records behind, and 3 are allowed") as told:
        producer.flush()
    assert "flush tries it again" in str(told.value)
    with pytest.raises(Full):
        producer.send(b"not taken")
    assert values(views) == [b"0", b"1", b"2", b"3"]
    read_to(log, views, 2, 0)
    assert until(lambda: goes_through(producer.flush)), "once the offsets are looked at again"
    assert values(views) == [b"0", b"1", b"2", b"3", b"4"]


def test_many_rows_at_once_wait_as_a_whole(log: Log, views: Topic) -> None:
    read_to(log, views, 0, 0)
    views.append(1, pa.record_batch({"value": pa.array([b"x"] * 10, pa.binary())}))
    producer = Producer(views, behind=behind(log, 5))
    with pytest.raises(Full, match="10 records behind"):
        producer.send_lines([b"a", b"b"])
    assert len(values(views)) == 10
    read_to(log, views, 0, 5)
    assert until(lambda: goes_through(lambda: producer.send_lines([b"a", b"b"]))), "once the offsets are looked at again"
    assert len(values(views)) == 12


def test_a_producer_much_too_fast_is_slowed_to_the_pace_of_the_group(log: Log, views: Topic) -> None:
    greatest, seen = 0, 0

    def read() -> None:
        nonlocal greatest, seen
        with GroupConsumer(log, "web", "page-views") as consumer:
            for batch in consumer:
                greatest = max(greatest, sum(end.next for end in views.ends().values()) - seen)
                seen += batch.table.num_rows
                if seen == 2_000:
                    consumer.stop()

    reader = threading.Thread(target=read)
    reader.start()
    with Producer(views, batch_rows=100, behind=behind(log, 300, "1 minute")) as producer:
        for n in range(2_000):
            producer.send(b"%d" % n)
    reader.join(60)
    assert seen == 2_000
    assert greatest <= 400  # the limit and one batch


def test_a_group_that_never_read_the_topic_has_all_of_it_before_it(log: Log, views: Topic) -> None:
    producer = Producer(views, batch_rows=1, behind=behind(log, 1))
    producer.send(b"a")
    producer.send(b"b")
    with pytest.raises(Full, match="group web never read it"):
        producer.send(b"c")


def test_the_offsets_are_looked_at_a_few_times_a_second_only(log: Log, views: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    read_to(log, views, 0, 0)
    producer = Producer(views, batch_rows=1, behind=behind(log, 1_000))
    looks: list[int] = []
    now, ends = [1000.0], views.ends
    monkeypatch.setattr("penstock.log.backpressure.time.monotonic", lambda: now[0])
    views.ends = lambda: looks.append(1) or ends()  # type: ignore[method-assign]
    for _ in range(100):
        producer.send(b"x")
    assert len(looks) == 1
    now[0] += 0.2
    producer.send(b"x")
    assert len(looks) == 2


def test_offsets_of_an_earlier_topic_of_that_name_do_not_count(log: Log, views: Topic) -> None:
    read_to(log, views, 100, 100)
    log.delete("page-views")
    again = log.create(TopicSpec("page-views", 2))
    again.append(0, pa.record_batch({"value": pa.array([b"x"] * 10, pa.binary())}))
    with pytest.raises(Full, match="10 records behind"):
        Producer(again, batch_rows=1, behind=behind(log, 5)).send(b"x")


def test_what_cannot_be_is_told(log: Log, views: Topic) -> None:
    with pytest.raises(BadInput, match="at most"):
        Producer(views, behind=behind(log, 0))
