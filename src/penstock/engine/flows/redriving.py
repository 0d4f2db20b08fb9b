"""Dead letters sent back: their records are appended to the topics they came from, once, and judged as new; an action that was
given up to its outbox, from where it is sent again with the same key.

What was sent is remembered in files of the flow: one says what is about to be appended, under which number of which producer, and
another whether it was. A redrive that was cut short in between is settled by the next one, which asks the log for that number.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa

from penstock.core.columns import APPENDED, BAD, BEFORE, HEADERS, OFFSET, POSITION, RAW, WATERMARK
from penstock.core.position import Position
from penstock.core.time import NEVER, micros
from penstock.engine.flows.dead import DeadLetter
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.letters import REFUSED
from penstock.errors import AlreadyThere, InUse, NotFound, OffsetGone
from penstock.log.intake.attributes import HEADERS_TYPE
from penstock.log.port import Chunk, End, Log, Sender, Topic
from penstock.sinks.actions.sink import is_outbox

REDRIVE_OF = "redrive-of"  # the header that names the record a redriven one was
MOST = 1_000  # records that are appended at once
_READ_HERE = (OFFSET, BEFORE, BAD, RAW, APPENDED)  # columns that a record has where it stands
_READ_ONLY = (*_READ_HERE, POSITION, WATERMARK)  # of an action these stay: its key is made from its position
_FILES = "redriven"

Fate = Literal[
    "ready",
    "again",
    "redriven before",
    "gone",  # its record is not in the log any more
    "unreadable",  # its record is, and nobody can read it
    "made from several rows",
    "refused by a sink",  # the flow has counted its row: sent back, it would count twice
    "not read by the flow",
    "written by a flow",  # its topic is: it is to be sent back where that flow read it
]


@dataclass(frozen=True)
class Intended:
    """What would be done with the record of a dead letter."""

    letter: DeadLetter
    what: Fate
    late: bool = False  # its time lies behind the watermark of its partition: steps that judge rows will call it late

    @property
    def goes(self) -> bool:
        return self.what in ("ready", "again")


class Redriving:
    """The dead letters of one flow on their way back."""

    def __init__(self, log: Log, decisions: Decisions) -> None:
        self._records, self._decisions, self._storage = Records(log), decisions, decisions.storage
        self._last = decisions.last()
        self._sender = f"redrive/{decisions.flow}"

    def intended(self, letters: Iterable[DeadLetter], again: bool = False) -> list[Intended]:
        """What a redrive of these letters would do; of a record with several letters the first stands for all. again: also those
        that were sent back before."""
        sent, seen = self._sent(), set[Position | None]()
        out = []
        for letter in letters:
            if letter.record is not None and letter.record in seen:
                continue
            seen.add(letter.record)
            out.append(self._intended(letter, letter.record is not None and self._name(letter.record) in sent, again))
        return out

    def _intended(self, letter: DeadLetter, before: bool, again: bool) -> Intended:
        record = letter.record
        if letter.expression is not None and letter.expression.startswith(REFUSED):
            return Intended(letter, "refused by a sink")
        if record is None:
            return Intended(letter, "made from several rows")
        topic = self._records.topic(record.topic)
        if topic is None:
            return Intended(letter, "gone")
        action = is_outbox(topic.spec, self._decisions.flow)
        if topic.spec.writer is not None and not action:
            return Intended(letter, "written by a flow")
        if not action and (not self._last or all(s.topic_id != topic.id for s in self._last.sources.values())):
            return Intended(letter, "not read by the flow")
        if before and not again:
            return Intended(letter, "redriven before")
        found = self._records.find(record)
        if found is None or isinstance(found, str):
            return Intended(letter, "gone" if found is None else "unreadable")
        return Intended(letter, "again" if before else "ready", self._late(letter, topic, record))

    def _late(self, letter: DeadLetter, topic: Topic, record: Position) -> bool:
        """A row that goes to an outbox is judged by nobody."""
        if letter.time is None or not self._last:
            return False
        states = [s.partitions.get(record.partition) for s in self._last.sources.values() if s.topic_id == topic.id]
        return micros(letter.time) < max((s.watermark for s in states if s), default=NEVER)

    def send(self, intended: Sequence[Intended]) -> int:
        """Appends the records of those that go, each to its own partition, and remembers it. Returns how many."""
        with self._storage.lock("redriving", wait=False) as alone:
            if not alone:
                raise InUse(f"another redrive of flow {self._decisions.flow} is under way", hint="try again when it is done")
            self._settle()
            done = self._sent()
            going = [i.letter.record for i in intended if i.goes and i.letter.record]
            again = {i.letter.record for i in intended if i.what == "again"}
            places: dict[tuple[str, int], list[Position]] = {}
            for record in going:
                if record in again or self._name(record) not in done:
                    places.setdefault((record.topic, record.partition), []).append(record)
            return sum(self._send(*place, records) for place, records in places.items())

    def _send(self, name: str, partition: int, records: list[Position]) -> int:
        topic = self._records.topic(name)
        assert topic
        ordered = sorted(records, key=lambda record: record.offset)
        for start in range(0, len(ordered), MOST):
            batch = ordered[start : start + MOST]
            found = ((record, self._records.find(record)) for record in batch)
            dropped = _READ_HERE if is_outbox(topic.spec, self._decisions.flow) else _READ_ONLY
            again = [_again(record, row, dropped) for record, row in found if isinstance(row, pa.RecordBatch)]
            rows = pa.concat_tables(map(_table, again), promote_options="default").combine_chunks().to_batches()[0]
            last = topic.senders(partition).get(self._sender)
            sender = Sender(self._sender, 0, last.sequence + 1 if last else 0)
            number = self._note(topic, partition, sender.sequence, batch)
            topic.append(partition, rows, sender=sender)
            self._storage.publish(f"{_FILES}/{number}.done", b"")
        return len(ordered)

    def _note(self, topic: Topic, partition: int, sequence: int, records: Sequence[Position]) -> str:
        """Says what is about to be appended."""
        number = f"{len([n for n in self._storage.list(_FILES) if n.endswith('.json')]):08d}"
        offsets = [record.offset for record in records]
        said = {"topic": topic.spec.name, "id": topic.id, "partition": partition, "sequence": sequence, "offsets": offsets}
        try:
            self._storage.publish(f"{_FILES}/{number}.json", orjson.dumps(said))
        except AlreadyThere as error:
            raise InUse(f"another redrive of flow {self._decisions.flow} is under way") from error
        return number

    def _notes(self) -> Iterator[tuple[str, dict[str, Any], str | None]]:
        """What was about to be appended: number, note, and "done" or "void" once that is known."""
        names = self._storage.list(_FILES)
        for name in names:
            number, _, ending = name.partition(".")
            if ending == "json":
                fate = next((word for word in ("done", "void") if f"{number}.{word}" in names), None)
                yield number, orjson.loads(self._storage.read(f"{_FILES}/{name}").to_pybytes()), fate

    def _settle(self) -> None:
        """Finds out what became of a redrive that was cut short: the log knows the last number of its producer."""
        for number, note, fate in list(self._notes()):
            if fate is None:
                self._storage.publish(f"{_FILES}/{number}.{'done' if self._arrived(note) else 'void'}", b"")

    def _arrived(self, note: dict[str, Any]) -> bool:
        topic = self._records.topic(note["topic"])
        last = topic.senders(note["partition"]).get(self._sender) if topic and topic.id == note["id"] else None
        return last is not None and last.sequence >= note["sequence"]

    def _sent(self) -> set[str]:
        """The records that were sent back."""
        return {
            f"{note['id']}/{note['partition']}@{offset}"
            for _, note, fate in self._notes()
            if fate == "done" or (fate is None and self._arrived(note))
            for offset in note["offsets"]
        }

    def _name(self, record: Position) -> str:
        """A record by the id of its topic, which another topic of that name does not have."""
        topic = self._records.topic(record.topic)
        return f"{topic.id}/{record.partition}@{record.offset}" if topic else str(record)


class Records:
    """Records by their position, as the log holds them now. Neighbours are read together."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._topics: dict[str, Topic | None] = {}
        self._ends: dict[str, dict[int, End]] = {}
        self._chunks: dict[tuple[str, int], Chunk] = {}  # the one that was read last of a partition

    def topic(self, name: str) -> Topic | None:
        if name not in self._topics:
            try:
                self._topics[name] = topic = self._log.topic(name)
                self._ends[name] = topic.ends()
            except NotFound:
                self._topics[name] = None
        return self._topics[name]

    def find(self, record: Position) -> pa.RecordBatch | str | None:
        """None: it is gone; a text: why nobody can read it."""
        topic = self.topic(record.topic)
        end = self._ends[record.topic].get(record.partition) if topic else None
        if topic is None or end is None or not end.first <= record.offset < end.next:
            return None
        chunk = self._chunk(topic, record)
        at = int(np.searchsorted(chunk.offsets, record.offset)) if chunk else 0
        if chunk is None or at >= chunk.rows.num_rows or chunk.offsets[at] != record.offset:
            return None
        row = chunk.rows.slice(at, 1)
        bad = row.column(BAD)[0].as_py() if BAD in row.schema.names else None
        return row if bad is None else str(bad)

    def _chunk(self, topic: Topic, record: Position) -> Chunk | None:
        place = (record.topic, record.partition)
        held = self._chunks.get(place)
        if held is None or not held.frame.touches(record.offset, record.offset + 1):
            try:
                held = next(iter(topic.read(record.partition, record.offset, record.offset + 1)), None)
            except OffsetGone:
                held = None
            if held is not None:
                self._chunks[place] = held
        return held


def _table(row: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([row])


def _again(record: Position, row: pa.RecordBatch, dropped: Sequence[str]) -> pa.RecordBatch:
    """The record as it is appended anew: key, time and headers as they were, and a header that says which one it was."""
    before = dict(row.column(HEADERS)[0].as_py() or []) if HEADERS in row.schema.names else {}
    headers = pa.array([list((before | {REDRIVE_OF: str(record).encode()}).items())], HEADERS_TYPE)
    kept = {name: row.column(name) for name in row.schema.names if name not in (*dropped, HEADERS)}
    return pa.RecordBatch.from_pydict(kept | {HEADERS: headers})
