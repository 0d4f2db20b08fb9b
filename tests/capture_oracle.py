"""What a PostgreSQL has done by its own account, read once from a slot of its own, message by message; and the law that the topics
of a capture say the same: every change once, in its place, copies that agree with the changes around them, whole transactions."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import psycopg

from capture_reference import UNCHANGED, Change, Ended, Plain, Values
from penstock.capture.naming import TopicNames
from penstock.capture.postgres.decode.messages import Relation, Truncate
from penstock.log.port import Log
from penstock.testing.contracts.capture.records import Record, check_ends, envelopes_of, journal_of, records_of

INTEGERS, BOOL = (20, 21, 23), 16
PEEK = """
select data
from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1', 'publication_names', %s, 'messages', 'true')
"""

Row = dict[str, Any]
Key = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Step:
    """One change as a topic should have it, or a truncate (op t). unsent: large values that it left as they were."""

    table: str
    op: str
    key: Key
    after: Row | None
    unsent: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Commit:
    lsn: int
    xid: int
    steps: tuple[Step, ...]

    @property
    def id(self) -> str:
        return f"{self.xid}:{self.lsn}"


class Oracle:
    """The transactions that changed something, in the order of their commits. keys: of each table, as rows need not tell it."""

    def __init__(self, keys: Mapping[str, Sequence[str]]) -> None:
        self.keys = keys
        self.rows: dict[str, dict[Key, Row]] = {table: {} for table in keys}
        self.commits: list[Commit] = []
        self._steps: list[Step] = []

    def read(self, url: str, slot: str, publication: str) -> "Oracle":
        with psycopg.connect(url, autocommit=True) as connection:
            messages = [row[0] for row in connection.execute(PEEK, (slot, publication))]
        for said in Plain().decode(messages):
            if isinstance(said, Change):
                self._steps += self._changed(said)
            elif isinstance(said, Truncate):
                self.rows[said.relation.table].clear()
                self._steps.append(Step(said.relation.table, "t", (), None))
            elif isinstance(said, Ended):
                if self._steps:
                    self.commits.append(Commit(said.commit_lsn, said.xid, tuple(self._steps)))
                self._steps = []
        return self

    def _changed(self, change: Change) -> Iterator[Step]:
        table, rows = change.relation.table, self.rows[change.relation.table]
        before = self._key(change.relation, change.before) if change.before else None
        if change.after is None:
            assert before is not None
            rows.pop(before)
            yield Step(table, "d", before, None)
            return
        key = self._key(change.relation, tuple(_kept(change, i) for i in range(len(change.after))))
        old = rows.pop(before or key, None)
        row = {column.name: self._value(change, i, old) for i, column in enumerate(change.relation.columns)}
        rows[key] = row
        unsent = frozenset(c.name for c, v in zip(change.relation.columns, change.after, strict=True) if v == UNCHANGED)
        unsent = frozenset() if change.old == "O" else unsent - set(self.keys[table])
        if before is not None and before != key:
            yield Step(table, "d", before, None)
            yield Step(table, "c", key, row, unsent)
        else:
            yield Step(table, change.op, key, row, unsent)

    def _key(self, relation: Relation, values: Values) -> Key:
        row = {column.name: value_of(column.type, value) for column, value in zip(relation.columns, values, strict=True)}
        return tuple((name, row[name]) for name in self.keys[relation.table])

    def _value(self, change: Change, i: int, old: Row | None) -> Any:
        assert change.after is not None
        column = change.relation.columns[i]
        if change.after[i] != UNCHANGED:
            return value_of(column.type, change.after[i])
        assert old is not None, "a large value that was not changed, of a row that nobody knows"
        return old[column.name]


def _kept(change: Change, i: int) -> Any:
    """A large value of a key that stayed stands in the row before."""
    assert change.after is not None
    return change.before[i] if change.after[i] == UNCHANGED and change.before else change.after[i]


def value_of(type: int, text: str | None) -> Any:
    if text is None:
        return None
    return int(text) if type in INTEGERS else text == "t" if type == BOOL else text


@dataclass
class Topic:
    """The records of a table that the law has not looked at yet, and what it knows of those it has."""

    records: deque[Record]
    live: dict[Key, Row] = field(default_factory=dict)  # as it tells them
    exact: dict[Key, set[str]] = field(default_factory=dict)  # columns in which they are as they were in the database
    moved: set[str] = field(default_factory=set)  # the same, of the last row that was deleted
    read: set[Key] = field(default_factory=set)


class Law:
    """Walks along the commits and the topics at once. start: the capture has the commits behind this position."""

    def __init__(self, log: Log, names: TopicNames, oracle: Oracle, start: int) -> None:
        self.log, self.names, self.oracle, self.start = log, names, oracle, start
        self.rows: dict[str, dict[Key, Row]] = {table: {} for table in oracle.keys}
        self.topics = {table: Topic(deque(envelopes_of(log, names.topic(("public", table))))) for table in oracle.keys}
        self.expected: list[tuple[str, Counter[str]]] = []
        self.copied = sum(record.value["op"] == "r" for topic in self.topics.values() for record in topic.records)

    def check(self) -> None:
        for commit in self.oracle.commits:
            self._commit(commit)
        for table in self.topics:
            self._copies(table)
            assert not self.topics[table].records, f"too much in {table}: {self.topics[table].records[0]}"
            assert set(self.topics[table].live) == set(self.rows[table]), f"{table} is not copied as a whole"
        self._journal()

    def _commit(self, commit: Commit) -> None:
        counts: Counter[str] = Counter()
        for step in commit.steps:
            if commit.lsn <= self.start:
                self._apply(step)
            elif step.op == "t":
                self._truncate(commit, step.table, counts)
            else:
                self._copies(step.table)
                self._expect(commit, step, counts)
                self._apply(step)
        if commit.lsn > self.start:
            self.expected.append((commit.id, counts))

    def _apply(self, step: Step) -> None:
        rows = self.rows[step.table]
        if step.op == "t":
            rows.clear()
        elif step.after is None:
            rows.pop(step.key)
        else:
            rows[step.key] = step.after

    def _truncate(self, commit: Commit, table: str, counts: Counter[str]) -> None:
        """A delete for each key that the topic has, in any order."""
        self._copies(table)
        topic = self.topics[table]
        keys = [_key(self.oracle.keys[table], topic.records[i]) for i in range(min(len(topic.records), len(topic.live)))]
        assert sorted(keys) == sorted(topic.live), f"truncate of {table}: {keys} are deleted, {list(topic.live)} were there"
        for key in keys:
            self._expect(commit, Step(table, "d", key, None), counts)
        self._apply(Step(table, "t", (), None))

    def _expect(self, commit: Commit, step: Step, counts: Counter[str]) -> None:
        counts[step.table] += 1
        topic = self.topics[step.table]
        assert topic.records, f"{step.table} ends before {step} of {commit.id}"
        record = topic.records.popleft()
        said = record.value["transaction"]
        after = self._told(topic, step, record.value["after"])
        should = (commit.id, counts.total(), counts[step.table], step.op, step.key, after, commit.lsn, commit.xid)
        numbers = said["id"], said["total_order"], said["data_collection_order"]
        source = record.value["source"]
        key = _key(self.oracle.keys[step.table], record)
        found = (*numbers, record.value["op"], key, record.value["after"], source["lsn"], source["txId"])
        assert found == should, f"{step.table} at offset {record.offset}: {found}, not {should}"
        self._keep(topic, step, record.value["after"])

    @staticmethod
    def _told(topic: Topic, step: Step, found: Row | None) -> Row | None:
        """What should be told of a row. A large value that was not sent is told as it was where the topic has it. Where not, as the
        row was not copied yet, it may be newer, or left out."""
        if step.after is None or found is None:
            return step.after
        exact = topic.exact.get(step.key, set()) if step.op == "u" else topic.moved
        free = step.unsent - exact
        return {
            name: found[name] if name in free else value for name, value in step.after.items() if name not in free - found.keys()
        }

    @staticmethod
    def _keep(topic: Topic, step: Step, found: Row | None) -> None:
        if step.after is None or found is None:
            topic.live.pop(step.key, None)
            topic.moved = topic.exact.pop(step.key, set())
        else:
            topic.live[step.key] = found
            topic.exact[step.key] = {name for name, value in step.after.items() if name in found and found[name] == value}

    def _copies(self, table: str) -> None:
        """Rows of the copy that stand here: each is what the changes before it leave, and none is there twice."""
        topic = self.topics[table]
        while topic.records and topic.records[0].value["op"] == "r":
            record = topic.records.popleft()
            key, after = _key(self.oracle.keys[table], record), record.value["after"]
            assert key not in topic.read, f"{key} of {table} was copied twice"
            row = self.rows[table].get(key)
            assert row is not None, f"{key} of {table} was copied although it is gone"
            common = row.keys() & after.keys()  # columns may have come and gone since it was changed last
            assert {name: row[name] for name in common} == {name: after[name] for name in common}, (
                f"an old row of {table}: {after}, not {row}"
            )
            topic.read.add(key)
            topic.live[key], topic.exact[key] = after, set(after)

    def _journal(self) -> None:
        journal = journal_of(self.log, self.names.name)
        streamed = [record for record in journal if not record.id.startswith("snapshot:") and record.status != "PART"]
        begun = [record.id for record in streamed if record.status == "BEGIN"]
        ended = [(record.id, Counter(record.tables)) for record in streamed if record.status == "END"]
        assert begun == [id for id, _ in self.expected]
        assert ended == [(id, Counter({f"public.{table}": n for table, n in counts.items()})) for id, counts in self.expected]
        ids = [record.id for record in journal if record.status == "END"]
        assert len(set(ids)) == len(ids), "END of a transaction, or of a part of a copy, stands there twice"
        for table in self.topics:
            topic = self.names.topic(("public", table))
            check_ends(journal, topic, records_of(self.log, topic))


def _key(names: Sequence[str], record: Record) -> Key:
    key = orjson.loads(record.key)
    assert list(key) == list(names)
    return tuple(key.items())
