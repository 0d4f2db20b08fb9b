"""What a capture has done, in the topic NAME.transaction: BEGIN before the changes of transactions, END behind them.

The last record of each frame has a header, `penstock`: before a batch its intent, behind it the state of the capture. END is
the commit point of its batch: changes behind the last one may be of transactions that are not there as a whole. What is known of
the tables seldom changes: most states name the offset of the one that says it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.naming import TRANSACTIONS
from penstock.capture.port import Flags, Places
from penstock.capture.writing.fenced_topic import FencedTopic
from penstock.core.arrow import array_of, filled, joined, values_in
from penstock.core.columns import HEADERS, KEY, VALUE
from penstock.errors import AlreadyThere, Damaged, NotFound, OffsetGone
from penstock.log.port import Appended, Chunk, Log, Topic, TopicSpec

HEADER = "penstock"
FORMAT = 2
FORMATS = (1, FORMAT)  # that can be read; in the first every state says all of its tables
WHOLE = 256  # batches behind which tables are said again, so that what is known of them does not lie far back
MAX_RECORD = 16 << 20
_FIRST_LOOK = 16
_HEADERS = pa.map_(pa.string(), pa.binary())
Tables = Mapping[str, Mapping[str, Any]]  # by topic: schema, table, columns, key


@dataclass(frozen=True)
class CaptureState:
    """A capture behind a batch."""

    batch: int = 0
    position: Mapping[str, Any] | None = None  # where its engine goes on
    offsets: Mapping[str, Sequence[int]] = field(default_factory=dict)  # topic: the end of each partition
    tables: Tables = field(default_factory=dict)
    open: Mapping[str, Any] | None = None  # a transaction that goes on: its id and its events so far
    resnapshot: Mapping[str, Any] | None = None  # of the last one: up to where topics were older, and whether it is done


@dataclass(frozen=True)
class Found:
    """What the journal says: the state behind the last batch that is whole, and the intent of one that is not."""

    state: CaptureState = field(default_factory=CaptureState)
    unfinished: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Entry:
    """One record of the journal, as Debezium has them."""

    status: str  # BEGIN or END; PART where a batch has neither
    transaction: str
    time: int  # microseconds
    counts: Mapping[str, int] | None = None  # of an END: events of each table, as `schema.table`

    def value(self) -> bytes:
        counts = self.counts
        tables = None if counts is None else [{"data_collection": name, "event_count": n} for name, n in counts.items()]
        events = None if counts is None else sum(counts.values())
        fields = {"status": self.status, "id": self.transaction, "event_count": events, "data_collections": tables}
        return orjson.dumps(fields | {"ts_ms": self.time // 1000})


@dataclass(frozen=True)
class Entries:
    """Records of the journal, by columns."""

    keys: pa.Array
    values: pa.Array

    @staticmethod
    def of(*entries: Entry) -> "Entries":
        keys = pa.array([orjson.dumps({"id": entry.transaction}) for entry in entries], pa.binary())
        return Entries(keys, pa.array([entry.value() for entry in entries], pa.binary()))

    @staticmethod
    def begins(ids: pa.Array, times: Places) -> "Entries":
        """BEGIN of transactions; times: microseconds."""
        return Entries._made("BEGIN", ids, times, "null", "null")

    @staticmethod
    def ends(ids: pa.Array, times: Places, counts: Mapping[str, Places]) -> "Entries":
        """END of transactions. counts: by `schema.table`, the events of each transaction."""
        total = np.sum([np.zeros(len(ids), np.int64), *counts.values()], axis=0)
        tables = [
            filled(joined(f',{{"data_collection":{orjson.dumps(name).decode()},"event_count":', _numbers(n, n == 0), "}", ""), "")
            for name, n in counts.items()
        ]
        listed: pa.Array = pc.utf8_ltrim(joined("", *tables, ""), ",") if tables else pa.array([""] * len(ids))
        return Entries._made("END", ids, times, _numbers(total), joined("[", listed, "]", ""))

    @staticmethod
    def _made(status: str, ids: pa.Array, times: Places, events: pa.Array | str, tables: pa.Array | str) -> "Entries":
        values = joined(
            *(f'{{"status":"{status}","id":"', ids, '","event_count":', events, ',"data_collections":', tables),
            *(',"ts_ms":', _numbers(times // 1000), "}", ""),
        )
        return Entries(joined('{"id":"', ids, '"}', "").cast(pa.binary()), values.cast(pa.binary()))

    def __len__(self) -> int:
        return len(self.keys)


def _numbers(numbers: Places, absent: Flags | None = None) -> pa.Array:
    return array_of(numbers, absent).cast(pa.utf8())


def journal_topic(log: Log, capture: str) -> Topic:
    """The topic, made if it is missing."""
    name = f"{capture}.{TRANSACTIONS}"
    try:
        return log.topic(name)
    except NotFound:
        try:
            return log.create(TopicSpec(name, max_record=MAX_RECORD, capture=capture))
        except AlreadyThere:
            return log.topic(name)


def read_journal(topic: Topic) -> Found:
    """What stands at its end."""
    unfinished = None
    for _, said in said_backwards(topic):
        if "intent" in said:
            unfinished = said
            continue
        tables = ToldTables(topic).of(said)
        state = CaptureState(said["batch"], said["position"], said["offsets"], tables, said["open"], said.get("resnapshot"))
        going_on = unfinished is not None and unfinished["batch"] > state.batch
        return Found(state, unfinished["intent"] if going_on and unfinished else None)
    return Found(unfinished=unfinished["intent"] if unfinished else None)


class Journal:
    """Writes it. Batches are numbered from 1."""

    def __init__(self, topic: FencedTopic) -> None:
        self._topic = topic
        self._told: Tables = {}
        self._told_at, self._told_in = -1, 0  # where, and behind which batch

    def begin(self, batch: int, intent: Mapping[str, Any], entries: Entries) -> None:
        """Notes down what is going to be written, before it is."""
        self._append(2 * batch, entries, {"format": FORMAT, "batch": batch, "intent": intent})

    def end(self, state: CaptureState, entries: Entries) -> None:
        """The batch is in its topics as a whole."""
        again = self._told_at >= 0 and state.tables == self._told and state.batch - self._told_in < WHOLE
        tables = {"tables_at": self._told_at} if again else {"tables": state.tables}
        said = {"batch": state.batch, "position": state.position, "offsets": state.offsets, **tables}
        more = {"open": state.open} | ({"resnapshot": state.resnapshot} if state.resnapshot else {})
        made = self._append(2 * state.batch + 1, entries, {"format": FORMAT, **said, **more})
        if made and not again:
            self._told, self._told_at, self._told_in = state.tables, made.base + made.rows - 1, state.batch

    def _append(self, number: int, entries: Entries, header: Mapping[str, Any]) -> Appended | None:
        said = pa.array([[(HEADER, orjson.dumps(header))]], _HEADERS)
        headers = pa.concat_arrays([pa.nulls(len(entries) - 1, _HEADERS), said])
        return self._topic.append(0, pa.record_batch([entries.values, entries.keys, headers], [VALUE, KEY, HEADERS]), number)


class ToldTables:
    """What states say of tables, also those that name an earlier one."""

    def __init__(self, journal: Topic) -> None:
        self._journal, self._at = journal, -1
        self._found: Tables = {}

    def of(self, said: Mapping[str, Any]) -> Tables:
        """By topic; empty where retention has taken the state that said it. An engine tells its tables after each start."""
        if "tables" in said:
            tables: Tables = said["tables"]
            return tables
        if said["tables_at"] != self._at:
            self._at = said["tables_at"]
            self._found = self._read(self._at)
        return self._found

    def _read(self, at: int) -> Tables:
        try:
            found = dict(each for chunk in self._journal.read(0, at, at + 1) for each in said_in(chunk))
        except OffsetGone:
            return {}
        tables: Tables = found.get(at, {}).get("tables", {})
        return tables


def said_backwards(topic: Topic) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The headers from the last record on, each with its offset. A broker may use offsets itself, so that the look goes back
    further and further."""
    end = topic.ends()[0]
    stop, look = end.next, _FIRST_LOOK
    while stop > end.first:
        start = max(end.first, stop - look)
        found = [said for chunk in topic.read(0, start, stop) for said in _texts_in(chunk) if start <= said[0] < stop]
        yield from ((offset, _decoded(text)) for offset, text in reversed(found))  # of which few are asked for
        stop, look = start, 4 * look


def said_in(chunk: Chunk) -> list[tuple[int, Mapping[str, Any]]]:
    """The headers of a chunk, each with the offset of its record."""
    return [(offset, _decoded(text)) for offset, text in _texts_in(chunk)]


def _texts_in(chunk: Chunk) -> list[tuple[int, bytes]]:
    if HEADERS not in chunk.rows.schema.names:
        return []
    headers = chunk.rows.column(HEADERS)
    offsets = chunk.offsets[headers.is_valid().to_numpy(zero_copy_only=False)].tolist()
    found = [dict(pairs).get(HEADER) for pairs in values_in(headers.drop_null(), list)]
    return [(offset, text) for offset, text in zip(offsets, found, strict=True) if text]


def _decoded(text: bytes) -> Mapping[str, Any]:
    try:
        said: Mapping[str, Any] = orjson.loads(text)
        if said["format"] not in FORMATS:
            raise ValueError(f"format {said['format']}")
        return said
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged("the journal of a capture cannot be read", str(error), hint="it was written by a later version") from error
