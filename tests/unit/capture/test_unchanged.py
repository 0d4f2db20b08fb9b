"""Values that changes left as they were: filled in from the batch, from the log, from the database; never anything else."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import cases
from colliding import colliding
from penstock.capture.naming import TopicNames
from penstock.capture.port import (
    CREATE,
    DELETE,
    UNKNOWN,
    UPDATE,
    Batch,
    Changes,
    Places,
    Table,
    TableFacts,
    Transactions,
    Unchanged,
)
from penstock.capture.writing import last_records, unchanged, writer
from penstock.capture.writing.envelopes import Envelope
from penstock.capture.writing.key_index import ABSENT, KeyIndex
from penstock.capture.writing.last_records import LastRecords
from penstock.capture.writing.writer import Writer
from penstock.log.file.log import FileLog
from penstock.log.memory import MemoryLog
from penstock.log.port import Log, Topic
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.capture.records import records_of

TABLE = ("public", "t")
TOPIC = "shop.public.t"
FACTS = TableFacts("id long, a string, n long, b string", ("id",))
LOGS: dict[str, Callable[[], Log]] = {"memory": MemoryLog, "file": lambda: FileLog(MemoryStorage())}

KEYS = [str(key) for key in range(12)]

Row = dict[str, object]
Said = tuple[int, str, str | None, frozenset[str]]  # op, key, after, what is not told


class Workload:
    """Random changes of a table, as a database that does not send what stayed tells them; and what they mean."""

    def __init__(self, random: Random, keys: Sequence[str] = KEYS) -> None:
        self.random, self.keys = random, keys
        self.rows: dict[str, Row] = {}
        self.meant: list[tuple[str, Row | None]] = []  # of each change: its key, and the row behind it
        self.asked: list[str] = []
        self.transactions = 0

    def batch(self, size: int) -> Batch:
        told: list[Said] = []
        while len(told) < size:
            told += self._step()
        self.transactions += 1
        count, op, keys = len(told), [each[0] for each in told], [each[1] for each in told]
        flags = {name: np.array([name in each[3] for each in told]) for name in ("a", "b")}
        changes = Changes(
            TABLE,
            np.array(op, np.uint8),
            pa.array([orjson.dumps({"id": key}).decode() for key in keys], pa.utf8()),
            pa.nulls(count, pa.utf8()),
            pa.array([each[2] for each in told], pa.utf8()),
            np.zeros(count, np.int64),
            np.arange(count),
            unchanged=Unchanged(flags, lambda rows: self._current(keys, rows)),
        )
        one, number = np.ones(1, np.bool_), np.array([self.transactions])
        made = Transactions(pa.array([f"{self.transactions}:1"], pa.utf8()), number, number, number, one, one)
        return Batch({"n": self.transactions}, {"n": self.transactions}, made, [changes], (), {TABLE: FACTS})

    def _current(self, keys: Sequence[str], rows: Places) -> Mapping[int, Mapping[str, str]]:
        self.asked += [keys[row] for row in rows.tolist()]
        known = {row: self.rows[keys[row]] for row in rows.tolist() if keys[row] in self.rows}
        return {row: {name: orjson.dumps(value).decode() for name, value in of.items()} for row, of in known.items()}

    def _step(self) -> list[Said]:
        key = self.random.choice(self.keys)
        row = self.rows.get(key)
        if row is None:
            made: Row = {"id": key, "a": self._large(), "n": 0, "b": self._large()}
            return [self._told(CREATE, key, made, frozenset())]
        if self.random.random() < 0.2:
            del self.rows[key]
            self.meant.append((key, None))
            return [(DELETE, key, None, frozenset())]
        stayed = frozenset(name for name in ("a", "b") if self.random.random() < 0.7)
        changed: Row = {
            **row,
            **{name: self._large() for name in ("a", "b") if name not in stayed},
            "n": self.random.randrange(100),
        }
        moved = self.random.choice(self.keys)
        if self.random.random() < 0.3 and moved not in self.rows:
            del self.rows[key]
            self.meant.append((key, None))
            return [(DELETE, key, None, frozenset()), self._told(CREATE, moved, {**changed, "id": moved}, stayed)]
        return [self._told(UPDATE, key, changed, stayed)]

    def _told(self, op: int, key: str, row: Row, stayed: frozenset[str]) -> Said:
        self.rows[key] = row
        self.meant.append((key, row))
        fields = (
            f"{orjson.dumps(name).decode()}:{UNKNOWN if name in stayed else orjson.dumps(row[name]).decode()}" for name in row
        )
        return op, key, "{" + ",".join(fields) + "}", stayed

    def _large(self) -> object:
        return self.random.choice([f'say "{self.random.random()}"', ["x", None, self.random.random()], self.random.randrange(5)])


def writer_of(log: Log, flat: bool = False, partitions: int = 1) -> Writer:
    made = Writer(log, TopicNames("shop"), Envelope("shop", "scripted", "script", flat), partitions)
    made.open()
    return made


def told(log: Log, flat: bool = False) -> dict[str, list[Row | None]]:
    """The rows of each key, in their order."""
    found: dict[str, list[Row | None]] = {}
    for record in records_of(log, TOPIC):
        if record.value is None and not flat:
            continue
        key = record.key if flat else orjson.loads(record.key)["id"]
        found.setdefault(key, []).append(record.value if flat or record.value is None else record.value["after"])
    return found


def meant(of: Workload) -> dict[str, list[Row | None]]:
    found: dict[str, list[Row | None]] = {}
    for key, row in of.meant:
        found.setdefault(key, []).append(row)
    return found


@settings(max_examples=cases(40))
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(sorted(LOGS)),
    flat=st.booleans(),
    partitions=st.sampled_from([1, 3]),
)
def test_every_record_has_what_stayed_and_the_database_is_not_asked(seed: int, kind: str, flat: bool, partitions: int) -> None:
    random, log = Random(seed), LOGS[kind]()
    work = Workload(random)
    of = writer_of(log, flat, partitions)
    for _ in range(8):
        of.write(work.batch(random.randint(1, 15)))
        if random.random() < 0.3:
            of = writer_of(log, flat, partitions)
    assert told(log, flat) == meant(work)
    assert work.asked == []


def test_keys_of_one_hash_are_told_apart() -> None:
    work, log = Workload(Random(7), colliding(12)), MemoryLog()
    of = writer_of(log)
    for _ in range(20):
        of.write(work.batch(1))
    assert work.asked  # as the index has but one of them
    found = told(log)
    assert {key: rows[-1] for key, rows in found.items() if rows[-1]} == work.rows


def test_what_neither_the_log_nor_the_database_knows_is_left_out() -> None:
    log, work = MemoryLog(), Workload(Random(0))
    batch = work.batch(0)
    (changes,) = batch.changes
    texts = ['{"a":?,"id":1,"b":?}', '{"id":1,"a":?,"b":"b"}', '{"id":1,"a":?}', '{"id":1,"a":2}']
    flags = {"a": np.array([True, True, True, False]), "b": np.array([True, False, False, False])}
    made = replace(
        changes,
        op=np.full(4, UPDATE, np.uint8),
        key=pa.array(['{"id":1}'] * 4),
        before=pa.nulls(4, pa.utf8()),
        after=pa.array([text.replace("?", UNKNOWN) for text in texts]),
        transaction=np.zeros(4, np.int64),
        index=np.arange(4),
        unchanged=Unchanged(flags, lambda rows: {}),
    )
    writer_of(log).write(replace(batch, changes=[made]))
    found = [record.value["after"] for record in records_of(log, TOPIC)]
    assert found == [{"id": 1}, {"id": 1, "b": "b"}, {"id": 1}, {"id": 1, "a": 2}]


def test_records_that_retention_removed_are_asked_of_the_database() -> None:
    log, work = MemoryLog(), Workload(Random(3))
    of = writer_of(log)
    of.write(work.batch(10))
    log.delete(TOPIC)  # more than any retention removes
    of = writer_of(log)
    of.write(work.batch(10))
    assert work.asked
    assert {key: rows[-1] for key, rows in told(log).items() if rows[-1]}.items() <= work.rows.items()


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=12))
def test_the_index_finds_the_last_offset_of_each_key(parts: list[list[int]]) -> None:
    index, last, at = KeyIndex(), dict[int, int](), 0
    for part in parts:
        index.add(pa.array([str(key).encode() for key in part], pa.binary()), np.arange(at, at + len(part)))
        last |= {key: at + place for place, key in enumerate(part)}
        at += len(part)
    wanted = pa.array([str(key).encode() for key in range(50)], pa.binary())
    assert index.find(wanted).tolist() == [last.get(key, ABSENT) for key in range(50)]


class SomethingElse(unchanged.UnchangedValues):
    """Plants a text where a value belongs."""

    text = '"__unavailable"'

    def filled(self, changes: Iterable[Changes], written: Callable[[Table], last_records.Written]) -> list[Changes]:
        return [replace(each, after=self._with_text(each.after), unchanged=None) for each in changes]

    def _with_text(self, after: pa.Array) -> pa.Array:
        return pa.array([text and text.replace(UNKNOWN, self.text) for text in after.to_pylist()], pa.utf8())


class NullInstead(SomethingElse):
    text = "null"


class NotKeptUp(LastRecords):
    """Knows what was there when it was first asked for."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self.followed = False

    def follow(self, ends: Sequence[int]) -> None:
        if not self.followed:
            super().follow(ends)
        self.followed = True

    def wrote(self, partition: int, keys: pa.Array, end: int) -> None:
        return None


@pytest.mark.parametrize("planted", [SomethingElse, NullInstead])
def test_a_filling_that_writes_something_else_is_caught(planted: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "UnchangedValues", planted)
    work, log = Workload(Random(1)), MemoryLog()
    of = writer_of(log)
    for _ in range(5):
        of.write(work.batch(5))
    assert told(log) != meant(work)


def test_an_index_that_is_not_kept_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_records, "LastRecords", NotKeptUp)
    work, log = Workload(Random(1)), MemoryLog()
    of = writer_of(log)
    for _ in range(9):
        of.write(work.batch(5))
    assert told(log) != meant(work) or work.asked
