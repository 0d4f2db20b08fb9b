"""The journal of a capture: what stands at its end, however it was cut short, and how it reads to others."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.writing.fenced_topic import FencedTopic
from penstock.capture.writing.journal import (
    HEADER,
    WHOLE,
    CaptureState,
    Entries,
    Entry,
    Found,
    Journal,
    Tables,
    journal_topic,
    read_journal,
)
from penstock.core.columns import HEADERS, KEY, VALUE
from penstock.errors import Damaged
from penstock.log.file.log import FileLog
from penstock.log.memory import MemoryLog
from penstock.log.port import Log
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.capture.records import journal_of

LOGS: dict[str, Callable[[], Log]] = {"memory": MemoryLog, "file": lambda: FileLog(MemoryStorage())}


@pytest.fixture(params=LOGS)
def log(request: pytest.FixtureRequest) -> Log:
    return LOGS[request.param]()


def journal_on(log: Log, generation: int = 0) -> Journal:
    topic = FencedTopic(journal_topic(log, "shop"), "shop")
    topic.fence(generation)
    return Journal(topic)


def entries(status: str, count: int = 1) -> Entries:
    told = ({"public.users": i} if status == "END" else None for i in range(count))
    return Entries.of(*(Entry(status, f"{i}:{i}", 1_000_000 * i, each) for i, each in enumerate(told)))


def state(batch: int) -> CaptureState:
    return CaptureState(batch, {"lsn": batch}, {"shop.public.users": [batch]}, {}, None)


def found(log: Log) -> Found:
    return read_journal(journal_topic(log, "shop"))


def test_a_new_journal_says_nothing(log: Log) -> None:
    assert found(log) == Found()
    journal_on(log)
    assert found(log) == Found()


def test_the_first_batch_may_be_the_one_that_is_not_finished(log: Log) -> None:
    journal_on(log).begin(1, {"n": 1}, entries("BEGIN"))
    assert found(log) == Found(CaptureState(), {"n": 1})


@given(st.lists(st.integers(1, 200), min_size=1, max_size=4), st.booleans())
def test_the_end_is_found_however_many_transactions_a_batch_has(sizes: list[int], finished: bool) -> None:
    log = MemoryLog()
    journal = journal_on(log)
    for batch, size in enumerate(sizes, 1):
        journal.begin(batch, {"n": batch}, entries("BEGIN", size))
        if batch < len(sizes) or finished:
            journal.end(state(batch), entries("END", size))
    last = len(sizes) if finished else len(sizes) - 1
    assert found(log) == Found(state(last) if last else CaptureState(), None if finished else {"n": len(sizes)})


def test_a_batch_that_is_begun_or_ended_again_is_noted_once(log: Log) -> None:
    journal_on(log, 0).begin(1, {"n": 1}, entries("BEGIN"))
    again = journal_on(log, 1)
    again.begin(1, {"n": 1}, entries("BEGIN"))
    again.end(state(1), entries("END"))
    journal_on(log, 2).end(state(1), entries("END"))
    assert [record.status for record in journal_of(log, "shop")] == ["BEGIN", "END"]
    assert found(log) == Found(state(1))


def test_records_are_those_of_debezium(log: Log) -> None:
    journal = journal_on(log)
    journal.begin(1, {}, Entries.of(Entry("BEGIN", "7:99", 1_500_000)))
    journal.end(state(1), Entries.of(Entry("END", "7:99", 1_500_000, {"public.users": 2, "public.orders": 1})))
    topic = log.topic("shop.transaction")
    rows = [row for chunk in topic.read(0) for row in chunk.rows.to_pylist()]
    assert [row[KEY] for row in rows] == [b'{"id":"7:99"}'] * 2
    begin, end = (orjson.loads(row[VALUE]) for row in rows)
    assert begin == {"status": "BEGIN", "id": "7:99", "event_count": None, "data_collections": None, "ts_ms": 1500}
    tables = [{"data_collection": "public.users", "event_count": 2}, {"data_collection": "public.orders", "event_count": 1}]
    assert end == {"status": "END", "id": "7:99", "event_count": 3, "data_collections": tables, "ts_ms": 1500}


def test_only_the_last_record_of_a_frame_has_the_header(log: Log) -> None:
    journal = journal_on(log)
    journal.begin(1, {"n": 1}, entries("BEGIN", 3))
    assert [record.said is not None for record in journal_of(log, "shop")] == [False, False, True]


@pytest.mark.parametrize("said", [b"no json", b"[]", b"{}", b'{"format": 99}'])
def test_a_journal_of_a_later_version_is_refused(log: Log, said: bytes) -> None:
    topic = journal_topic(log, "shop")
    headers = pa.array([[(HEADER, said)]], pa.map_(pa.string(), pa.binary()))
    topic.append(0, pa.record_batch([pa.array([b"{}"]), pa.array([b"{}"]), headers], [VALUE, KEY, HEADERS]))
    with pytest.raises(Damaged, match="cannot be read"):
        found(log)


def test_many_transactions_are_told_as_each_one_alone_would_be() -> None:
    ids, times = pa.array(["1:5", "2:6", "3:7"]), np.array([1_500_000, 2_000_000, -1_500])
    counts = {'public."odd"': np.array([1, 0, 2]), "users": np.array([3, 0, 0]), "never": np.zeros(3, np.int64)}
    told = [{name: int(count[i]) for name, count in counts.items() if count[i]} for i in range(3)]
    each = list(zip(ids.to_pylist(), times.tolist(), told, strict=True))
    assert Entries.begins(ids, times) == Entries.of(*(Entry("BEGIN", id, time) for id, time, _ in each))
    assert Entries.ends(ids, times, counts) == Entries.of(*(Entry("END", id, time, of) for id, time, of in each))
    assert Entries.ends(ids, times, {}) == Entries.of(*(Entry("END", id, time, {}) for id, time, _ in each))


def facts(number: int, tables: int = 2) -> Tables:
    return {f"shop.public.t{i}": {"schema": f"id long, v{number} string", "key": ["id"], "flat": False} for i in range(tables)}


def test_what_is_known_of_tables_is_said_when_it_changes_and_not_with_each_batch(log: Log) -> None:
    journal = journal_on(log)
    for batch, known in enumerate([facts(1), facts(1), facts(1), facts(2), facts(2)], 1):
        journal.begin(batch, {}, entries("BEGIN", 3))
        journal.end(replace(state(batch), tables=known), entries("END", 3))
        assert found(log).state.tables == known
    ends = [record for record in journal_of(log, "shop") if record.said and "offsets" in record.said]
    assert ["tables" in (record.said or {}) for record in ends] == [True, False, False, True, False]
    assert [(record.said or {}).get("tables_at") for record in ends] == [None, *[ends[0].offset] * 2, None, ends[3].offset]
    again = journal_on(log, 1)  # nobody knows whether an older start has said more
    again.end(replace(state(6), tables=facts(2)), entries("END"))
    assert "tables" in (journal_of(log, "shop")[-1].said or {})


def test_a_capture_of_many_tables_writes_little_with_each_batch() -> None:
    log, known = MemoryLog(), facts(1, 500)
    journal = journal_on(log)
    for batch in range(1, WHOLE + 2):
        journal.end(replace(state(batch), tables=known), entries("END"))
    sizes = [len(orjson.dumps(record.said)) for record in journal_of(log, "shop")]
    assert max(sizes[1:-1]) < 500
    assert min(sizes[0], sizes[-1]) > 30_000
    assert found(log).state == replace(state(WHOLE + 1), tables=known)


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["go on", "start again", "end again"])), min_size=1, max_size=30))
def test_the_tables_are_found_after_any_history(steps: list[tuple[int, str]]) -> None:
    log = MemoryLog()
    journal, before = journal_on(log), Found()
    for batch, (number, step) in enumerate(steps, 1):
        if step == "start again":
            journal = journal_on(log, batch)
        journal.begin(batch, {"n": batch}, entries("BEGIN", number))
        assert found(log) == replace(before, unfinished={"n": batch})
        now = replace(state(batch), tables=facts(number))
        journal.end(now, entries("END", number))
        if step == "end again":
            journal = journal_on(log, batch)
            journal.end(now, entries("END", number))
        before = Found(now)
        assert found(log) == before


def test_a_journal_of_the_first_format_is_read_and_gone_on_from(log: Log) -> None:
    said = {"format": 1, "batch": 7, "position": {"lsn": 7}, "offsets": {"shop.public.t0": [3]}, "tables": facts(1), "open": None}
    headers = pa.array([[(HEADER, orjson.dumps(said))]], pa.map_(pa.string(), pa.binary()))
    rows = pa.record_batch([pa.array([b"{}"]), pa.array([b"{}"]), headers], [VALUE, KEY, HEADERS])
    topic = FencedTopic(journal_topic(log, "shop"), "shop")
    topic.fence(0)
    topic.append(0, rows, 15)
    known = CaptureState(7, {"lsn": 7}, {"shop.public.t0": [3]}, facts(1), None)
    assert found(log) == Found(known)
    journal = journal_on(log, 1)
    for batch in (8, 9):
        journal.end(replace(known, batch=batch), entries("END"))
        assert found(log) == Found(replace(known, batch=batch))


def test_where_retention_has_taken_what_was_said_of_tables_they_are_not_known() -> None:
    log, topic = MemoryLog(), "shop.transaction"
    journal = journal_on(log)
    for batch in (1, 2, 3):
        journal.end(replace(state(batch), tables=facts(1)), entries("END", 50))
    log.alter(replace(log.topic(topic).spec, retain_bytes=1))
    log.clean(topic)
    assert log.topic(topic).ends()[0].first > 50
    assert found(log).state == replace(state(3), tables={})
