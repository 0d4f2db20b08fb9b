"""Reading a topic: from anywhere to anywhere, by event time, and as rows come."""

import datetime as dt
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import FixedClock, micros, moment
from penstock.errors import BadInput
from penstock.log.consumer import read, records
from penstock.log.memory import MemoryLog
from penstock.log.open import open_log
from penstock.log.port import Topic, TopicSpec
from penstock.log.producer import Producer

NOW = micros(dt.datetime(2024, 1, 15, 12))
SCHEMA = Schema.of("n long, at timestamp")


def topic_with(times: list[list[int]], **settings: Any) -> Topic:
    """One partition, a frame a list, rows numbered through."""
    topic = MemoryLog(FixedClock(NOW)).create(TopicSpec("t", **{"schema": SCHEMA, "time": "at"} | settings))
    n, producer = 0, Producer(topic)
    for frame in times:
        producer.send_arrow(pa.table({"n": pa.array(range(n, n + len(frame)), pa.int64()), "at": pa.array(frame, TIMESTAMP)}))
        n += len(frame)
    return topic


def numbers(tables: Iterator[pa.Table]) -> list[int]:
    return [n for table in tables for n in table.column("n").to_pylist()]


def test_rows_come_with_their_position_times_key_and_headers() -> None:
    topic = topic_with([[5], [6]])
    tables = list(read(topic))
    assert [t.schema.names for t in tables] == [
        ["n", "at", "partition", "offset", "key", "time", "append_time", "headers", "op"]
    ] * 2
    assert tables[1].select(["n", "partition", "offset", "key", "headers"]).to_pylist() == [
        {"n": 1, "partition": 0, "offset": 1, "key": None, "headers": None}
    ]
    assert tables[1].column("time").to_pylist() == [moment(6)]
    assert tables[1].column("append_time").to_pylist() == [moment(NOW)]


@pytest.mark.parametrize(
    ("start", "stop", "wanted"),
    [
        ("earliest", "latest", [0, 1, 2, 3, 4]),
        ("earliest", "earliest", []),
        ("latest", "latest", []),
        (1, "latest", [1, 2, 3, 4]),
        (1, 4, [1, 2, 3]),
        (3, 99, [3, 4]),
        (99, "latest", []),
        ({0: 2}, {0: 3}, [2]),
        ({}, None, [0, 1, 2, 3, 4]),
        (moment(30), "latest", [2, 3]),
        (moment(10), moment(40), [0, 1, 2, 4]),
        (moment(41), "latest", []),
    ],
)
def test_a_topic_is_read_from_anywhere_to_anywhere(start: Any, stop: Any, wanted: list[int]) -> None:
    topic = topic_with([[10, 20], [30, 40], [25]])
    assert numbers(read(topic, start=start, stop=stop)) == wanted


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=5), st.integers(-1, 31), st.integers(-1, 31))
def test_a_span_of_time_holds_exactly_the_rows_of_that_time(times: list[list[int]], since: int, until: int) -> None:
    topic = topic_with(times)
    flat = [t for frame in times for t in frame]
    assert numbers(read(topic, start=moment(since), stop=moment(until))) == [n for n, t in enumerate(flat) if since <= t < until]


@given(st.lists(st.lists(st.just(1), min_size=1, max_size=4), max_size=5), st.integers(0, 12), st.integers(0, 12))
def test_a_span_of_offsets_holds_exactly_these(times: list[list[int]], start: int, stop: int) -> None:
    topic = topic_with(times)
    assert numbers(read(topic, start=start, stop=stop)) == [n for n in range(sum(map(len, times))) if start <= n < stop]


def test_only_the_columns_asked_for_are_read() -> None:
    topic = topic_with([[5]])
    [table] = read(topic, columns=["n", "offset"])
    assert table.to_pylist() == [{"n": 0, "offset": 0}]
    [table] = read(topic, columns=["time"])
    assert table.to_pylist() == [{"time": moment(5)}]
    with pytest.raises(BadInput, match="no column 'x'"):
        list(read(topic, columns=["x"]))


@pytest.mark.parametrize("schema", [None, Schema.of("n long")], ids=["raw", "typed"])
def test_positions_alone_are_those_of_every_row(schema: Schema | None) -> None:
    topic = MemoryLog().create(TopicSpec("t", schema=schema))
    for n in range(3):
        topic.append(0, pa.record_batch({"n": [n]} if schema else {"value": pa.array([b"x"], pa.binary())}))
    assert [table.column("offset").to_pylist() for table in read(topic, columns=["offset"])] == [[0], [1], [2]]


def test_a_column_with_the_name_of_a_position_keeps_it() -> None:
    topic = MemoryLog(FixedClock(NOW)).create(TopicSpec("t", schema=Schema.of("offset long, time string, _time int")))
    Producer(topic).send_arrow(pa.table({"offset": [7], "time": ["x"], "_time": pa.array([1], pa.int32())}))
    [table] = read(topic)
    assert table.select(["offset", "time", "_time", "_offset", "__time"]).to_pylist() == [
        {"offset": 7, "time": "x", "_time": 1, "_offset": 0, "__time": moment(NOW)}
    ]
    [record] = records(topic)
    assert (record.offset, record.value, record.appended) == (0, {"offset": 7, "time": "x", "_time": 1}, NOW)


def test_partitions_and_places_that_are_not_there_are_refused() -> None:
    topic = topic_with([[1]])
    with pytest.raises(BadInput, match="no partition 1"):
        list(read(topic, partitions=[1]))
    with pytest.raises(BadInput, match="not a position"):
        list(read(topic, start=-1))


def test_following_sees_rows_of_every_partition_soon_after_they_are_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    topic = log.create(TopicSpec("t", partitions=2, schema=SCHEMA))
    seen: list[int] = []
    done = threading.Event()

    def follow() -> None:
        for table in read(log.topic("t"), follow=True, stop_when=done.is_set):
            seen.extend(table.column("n").to_pylist())

    reader = threading.Thread(target=follow)
    reader.start()
    with Producer(topic) as producer:
        for n in range(6):
            producer.send_arrow(pa.table({"n": [n]}), partition=n % 2)
            deadline = time.monotonic() + 60
            while len(seen) <= n and time.monotonic() < deadline:
                done.wait(0.001)
            assert len(seen) == n + 1  # seen while the producer is still writing, not only at the end
    done.set()
    reader.join(10)
    assert not reader.is_alive()
    assert seen == list(range(6))


def test_following_ends_at_the_stop_it_was_given() -> None:
    topic = topic_with([[1, 1], [1, 1]])
    assert numbers(read(topic, follow=True, stop=3)) == [0, 1, 2]
    rows = read(topic, follow=True, start=1, stop={0: 5})
    assert [next(rows).num_rows, next(rows).num_rows] == [1, 2]
    Producer(topic).send_arrow(pa.table({"n": [4], "at": pa.array([1], TIMESTAMP)}))
    assert numbers(rows) == [4]


def test_following_by_time_goes_on_with_rows_of_that_time() -> None:
    topic = topic_with([[10], [20]])
    rows = read(topic, follow=True, start=moment(15), stop=moment(30))
    assert next(rows).column("n").to_pylist() == [1]
    Producer(topic).send_arrow(pa.table({"n": [2, 3, 4], "at": pa.array([12, 29, 30], TIMESTAMP)}))
    assert next(rows).column("n").to_pylist() == [3]
