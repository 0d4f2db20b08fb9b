"""The topics of a capture as tests read them: one value a record, in the order of the log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from penstock.capture.naming import TRANSACTIONS
from penstock.capture.writing.journal import HEADER
from penstock.core.arrow import values_in
from penstock.core.columns import HEADERS, KEY, VALUE
from penstock.log.port import Log, Topic


@dataclass(frozen=True)
class Record:
    """One record of the topic of a table."""

    partition: int
    offset: int
    key: str
    value: Any  # what the JSON says; None: a tombstone

    @property
    def transaction(self) -> str:
        return str(self.value["transaction"]["id"])


@dataclass(frozen=True)
class JournalRecord:
    """One record of NAME.transaction. said: what stands in its header, if it is the last of its frame."""

    offset: int
    status: str
    id: str
    events: int | None
    tables: Mapping[str, int]
    said: Mapping[str, Any] | None


def records_of(log: Log, topic: str) -> list[Record]:
    """All records, partition by partition; none if there is no such topic."""
    if topic not in log.topics():
        return []
    found = log.topic(topic)
    return [record for partition in sorted(found.ends()) for record in _records(found, partition)]


def journal_of(log: Log, capture: str) -> list[JournalRecord]:
    """What the capture says of its transactions, the parts of large ones included."""
    name = f"{capture}.{TRANSACTIONS}"
    if name not in log.topics():
        return []
    topic, found = log.topic(name), list[JournalRecord]()
    for chunk in topic.read(0, topic.ends()[0].first):
        values, headers = values_in(chunk.rows.column(VALUE), bytes), chunk.rows.column(HEADERS).to_pylist()
        for offset, value, header in zip(chunk.offsets.tolist(), values, headers, strict=True):
            found.append(_journal_record(offset, orjson.loads(value), dict(header or ())))
    return found


def envelopes_of(log: Log, topic: str) -> list[Record]:
    """The records without tombstones; each tombstone stands right behind the delete of its key."""
    found = records_of(log, topic)
    for before, record in zip([None, *found], found, strict=False):
        if record.value is None:
            assert before is not None, f"{topic} begins with a tombstone"
            assert (before.value["op"], before.key) == ("d", record.key), f"a tombstone of {record.key} behind {before}"
    tombstones = sum(record.value is None for record in found)
    assert tombstones == sum(record.value is not None and record.value["op"] == "d" for record in found)
    return [record for record in found if record.value is not None]


def check_ends(journal: Sequence[JournalRecord], topic: str, records: Sequence[Record]) -> None:
    """Before the offsets of each END lie the records of the transactions that have ended, all of them, and no others but those of
    one that is open."""
    where = [_transaction(records, i) for i in range(len(records))]
    last = {id: record.offset for id, record in zip(where, records, strict=True)}
    ended, new, reached = set[str](), set[str](), 0
    for entry in journal:
        if entry.status == "END":
            new.add(entry.id)
        if not entry.said or "offsets" not in entry.said:
            continue
        ended |= new
        (end,) = entry.said["offsets"].get(topic, [0])
        going_on = {entry.said["open"]["id"]} if entry.said["open"] else set[str]()
        while reached < len(records) and records[reached].offset < end:
            assert where[reached] in ended or where[reached] in going_on, (
                f"{where[reached]} in {topic} stands before an END that is not its own"
            )
            reached += 1
        late = {id for id in new if last.get(id, -1) >= end}
        assert not late, f"{topic} has records of {late} behind their END"
        new.clear()


def _transaction(records: Sequence[Record], i: int) -> str:
    record = records[i] if records[i].value is not None else records[i - 1]  # a tombstone stands behind its delete
    return record.transaction


def _records(topic: Topic, partition: int) -> Iterator[Record]:
    for chunk in topic.read(partition, topic.ends()[partition].first):
        keys, values = values_in(chunk.rows.column(KEY), bytes), chunk.rows.column(VALUE).to_pylist()
        for offset, key, value in zip(chunk.offsets.tolist(), keys, values, strict=True):
            yield Record(partition, offset, key.decode(), None if value is None else _json(value))


def _json(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise AssertionError(f"no JSON: {value[:200]!r}") from error


def _journal_record(offset: int, value: Mapping[str, Any], headers: Mapping[str, bytes]) -> JournalRecord:
    tables = {each["data_collection"]: each["event_count"] for each in value["data_collections"] or ()}
    said = orjson.loads(headers[HEADER]) if HEADER in headers else None
    return JournalRecord(offset, value["status"], value["id"], value["event_count"], tables, said)
