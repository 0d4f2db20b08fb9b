"""Writes batches to the log, each exactly once: its intent, the changes of each table to the table's topic, then its end."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from penstock.capture.naming import TopicNames
from penstock.capture.port import Batch, Changes, Json, Places, Table, TableFacts
from penstock.capture.writing.copied_rows import CopiedRows
from penstock.capture.writing.envelopes import Envelope, flat_key, wrapped
from penstock.capture.writing.fenced_topic import FencedTopic
from penstock.capture.writing.gathering import by_table
from penstock.capture.writing.journal import CaptureState, Entries, Entry, Found, Journal, Tables, journal_topic, read_journal
from penstock.capture.writing.last_records import LoggedRows, Written
from penstock.capture.writing.orders import counts_of, orders_of
from penstock.capture.writing.truncates import Keys, live_keys, without_truncates
from penstock.capture.writing.unchanged import UnchangedValues
from penstock.core.arrow import array_of, values_in
from penstock.core.columns import KEY
from penstock.errors import AlreadyThere, Mismatch, NotFound
from penstock.log.intake.partitioning import partitions_by_key
from penstock.log.port import Log, TopicSpec

MAX_RECORD = 256 << 20
RESNAPSHOT = "resnapshot"  # the kind of an intent that no engine knows
POINTS = ("capture.begun", "capture.appended", "capture.ended")  # what `fail` is called with as they are passed


def nothing(point: str) -> None:
    """Nobody wants to know."""


class Writer:
    """The one writer of a capture's topics. `open` comes first."""

    def __init__(
        self, log: Log, names: TopicNames, envelope: Envelope, partitions: int = 1, fail: Callable[[str], None] = nothing
    ) -> None:
        self.state = CaptureState()
        self.changes = 0  # that were written through it; of a truncate, its deletes
        self.envelope = envelope
        self._log, self._names, self._partitions, self._fail = log, names, partitions, fail
        self._topics: dict[Table, FencedTopic] = {}
        self._generation = 0
        self._journal: Journal
        self._logged: LoggedRows
        self._unchanged: UnchangedValues
        self._copied: CopiedRows

    def open(self) -> Found:
        """Shuts out earlier starts, and says where to go on."""
        fenced = FencedTopic(journal_topic(self._log, self._names.name), self._names.name)
        self._generation = fenced.seen() + 1
        fenced.fence(self._generation)
        self._journal = Journal(fenced)
        for topic in self._log.topics():
            table = self._names.table(topic)
            if table and self._log.topic(topic).spec.capture == self._names.name:
                self._fence(table, topic)
        found = read_journal(fenced.topic)
        self.state = found.state
        self._logged = LoggedRows(self.envelope.flat)
        self._unchanged = UnchangedValues(self._logged, self.envelope.flat)
        self._copied = CopiedRows(self._logged, lambda table: self._written(table, self.state.tables))
        return found

    def write(self, batch: Batch) -> CaptureState:
        """Makes the batch durable; returns the state behind it."""
        batch = self._copied.new(batch)
        number, transactions = self.state.batch + 1, batch.transactions
        tables = self._tables(batch.tables)
        changes = self._changes(batch, tables)
        earlier = self._earlier(batch)
        counts = counts_of(changes, len(transactions), earlier)
        self._journal.begin(number, batch.intent, _entries(batch, "BEGIN", counts))
        self._fail("capture.begun")
        offsets = dict(self.state.offsets)
        for each, orders in zip(changes, orders_of(changes, earlier), strict=True):
            records = self.envelope.records(each, orders, transactions)
            self._append(each.table, records, number, offsets)
        self._make_topics(batch.tables, offsets)
        goes_on = len(transactions) > 0 and not transactions.ends[-1]
        still_open = (
            {"id": _ids(batch)[-1], "counts": [[*table, int(n[-1])] for table, n in counts.items() if n[-1]]} if goes_on else None
        )
        state = CaptureState(number, batch.position, offsets, tables, still_open, self.state.resnapshot)
        self._journal.end(state, _entries(batch, "END", counts))
        self._fail("capture.ended")
        self.state = state
        self.changes += sum(map(len, changes))
        return state

    def move(self, position: Json, id: str) -> CaptureState:
        """Goes on from another position: a resnapshot, which is not done yet. Of a batch that was begun and cannot be made again,
        what has reached its topics stays and counts."""
        topics = [(each.topic.spec.name, each.topic.ends()) for each in self._topics.values()]
        offsets = {**self.state.offsets, **{name: [ends[i].next for i in sorted(ends)] for name, ends in topics}}
        begun = {"settled": offsets, "done": False}
        return self._note(replace(self.state, position=position, offsets=offsets, resnapshot=begun), id)

    def moved(self, id: str) -> CaptureState:
        """The resnapshot is done: the topics have what was missed."""
        return self._note(replace(self.state, resnapshot={**(self.state.resnapshot or {}), "done": True}), id)

    def _note(self, state: CaptureState, id: str) -> CaptureState:
        """Makes the state durable, under a transaction of this id that has no changes."""
        state, now = replace(state, batch=state.batch + 1, open=None), time.time_ns() // 1000
        self._journal.begin(state.batch, {"kind": RESNAPSHOT}, Entries.of(Entry("BEGIN", id, now)))
        self._fail("capture.begun")
        self._journal.end(state, Entries.of(Entry("END", id, now, {})))
        self._fail("capture.ended")
        self.state = state
        return state

    def _changes(self, batch: Batch, tables: Tables) -> list[Changes]:
        """The changes of each table, with all values, and with truncates as deletes of the keys that are there."""
        changes = by_table(self._unchanged.filled(batch.changes, lambda table: self._written(table, tables)))
        if not batch.truncates:
            return list(changes.values())
        if self.envelope.flat:  # keys as the topics have them, so that those of both can be compared
            changes = {table: replace(each, key=wrapped(values_in(flat_key(each.key), str))) for table, each in changes.items()}
        found = without_truncates(changes, batch.truncates, self._live)
        return list(by_table(each for parts in found.values() for each in parts).values())

    def _live(self, table: Table) -> Keys:
        topic = self._topic(table).topic
        keys = live_keys(topic, self.state.offsets.get(topic.spec.name, ()))
        return dict.fromkeys(values_in(wrapped(keys), str)) if self.envelope.flat else keys

    def _earlier(self, batch: Batch) -> dict[Table, int]:
        """What the first transaction had in earlier batches."""
        if not self.state.open or not len(batch.transactions) or batch.transactions.begins[0]:
            return {}
        return {(schema, table): count for schema, table, count in self.state.open["counts"]}

    def _append(self, table: Table, records: pa.RecordBatch, number: int, offsets: dict[str, Sequence[int]]) -> None:
        topic = self._topic(table)
        name, partitions = topic.topic.spec.name, topic.topic.spec.partitions
        homes = partitions_by_key(records.column(KEY), partitions) if partitions > 1 else None
        for partition in range(partitions):
            rows = records if homes is None else records.filter(pa.array(homes == partition))
            if rows.num_rows and topic.append(partition, rows, number):
                self._fail("capture.appended")
            self._logged.wrote(table, partition, rows, topic.topic.ends()[partition].next)
        offsets[name] = [end.next for _, end in sorted(topic.topic.ends().items())]

    def _make_topics(self, tables: Mapping[Table, TableFacts], offsets: dict[str, Sequence[int]]) -> None:
        for table in tables:
            spec = self._topic(table).topic.spec
            offsets.setdefault(spec.name, [0] * spec.partitions)

    def _tables(self, tables: Mapping[Table, TableFacts]) -> Tables:
        told = {
            self._names.topic(table): {**asdict(facts), "table": list(table), "flat": self.envelope.flat}
            for table, facts in tables.items()
        }
        told = {topic: {**facts, **self._since(topic, facts)} for topic, facts in told.items()}
        return {**self.state.tables, **told} if told else self.state.tables

    def _since(self, topic: str, facts: Mapping[str, Any]) -> Mapping[str, Sequence[int]]:
        """From which offsets on the rows of a topic have the columns that the table has now; nothing where all of them have."""
        before = self.state.tables.get(topic)  # none of a table that is new, or of which it is not known any more
        same = before is not None and all(list(before[name]) == list(facts[name]) for name in ("schema", "key"))
        since = before.get("since") if before and same else self.state.offsets.get(topic)
        return {"since": since} if since else {}

    def _written(self, table: Table, tables: Tables) -> Written:
        topic = self._topic(table).topic
        name = topic.spec.name
        return Written(topic, self.state.offsets.get(name, ()), tables.get(name, {}).get("since", ()))

    def _topic(self, table: Table) -> FencedTopic:
        return self._topics.get(table) or self._fence(table, self._names.topic(table))

    def _fence(self, table: Table, name: str) -> FencedTopic:
        made = self._topics[table] = FencedTopic(self._found_or_made(name).topic(name), self._names.name)
        made.fence(self._generation)
        return made

    def _found_or_made(self, name: str) -> Log:
        try:
            spec = self._log.topic(name).spec
        except NotFound:
            try:
                self._log.create(TopicSpec(name, self._partitions, max_record=MAX_RECORD, capture=self._names.name))
            except AlreadyThere:
                return self._found_or_made(name)
            return self._log
        if spec.capture != self._names.name:
            by = f"capture {spec.capture!r}" if spec.capture else f"flow {spec.writer!r}" if spec.writer else "producers"
            raise Mismatch(
                f"capture {self._names.name!r} cannot write topic {name!r}: it is written by {by}",
                hint="name the capture or its topics otherwise: cdc add … --topics '{name}.{schema}.{table}'",
            )
        return self._log


def _ids(batch: Batch) -> list[str]:
    return values_in(batch.transactions.id, str)


def _entries(batch: Batch, status: str, counts: Mapping[Table, Places]) -> Entries:
    """What the journal says of the transactions that begin or end here; of a part of one that does neither, that it goes on."""
    transactions = batch.transactions
    said = transactions.begins if status == "BEGIN" else transactions.ends
    if not said.any():
        return Entries.of(Entry("PART", _ids(batch)[0], int(transactions.time[0])) if len(transactions) else Entry("PART", "", 0))
    ids, times = transactions.id.filter(array_of(said)), transactions.time[said]
    if status == "BEGIN":
        return Entries.begins(ids, times)
    return Entries.ends(ids, times, {".".join(filter(None, table)): count[said] for table, count in counts.items()})
