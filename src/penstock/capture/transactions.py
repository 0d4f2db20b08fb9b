"""The transactions of a capture, each of them whole, in the order of their commits: for consumers that look at several tables at
once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from penstock.capture.commits import Commits, journal_name
from penstock.capture.writing.journal import HEADER, ToldTables
from penstock.core.arrow import values_in
from penstock.core.columns import HEADERS, KEY, VALUE
from penstock.core.schema import Schema
from penstock.core.time import moment
from penstock.errors import BadInput, Damaged, NotFound
from penstock.log.intake.keys import key_row
from penstock.log.port import Chunk, Log, Topic

Row = Mapping[str, Any]
Offsets = Mapping[str, Sequence[int]]


class Change(NamedTuple):
    """What has become of one row."""

    op: str  # c, u, d, or r for a row of a snapshot; where records are flat, u or d
    key: Row
    before: Row | None
    after: Row | None
    order: int  # of the change in its transaction, over all tables, from 1; 0 where records are flat and do not say


@dataclass(frozen=True)
class Transaction:
    """One commit of the database, or a part of a snapshot."""

    id: str
    time: datetime
    changes: Mapping[str, Sequence[Change]]  # by table, as `public.users`, in their order
    offset: int  # of its END in the topic NAME.transaction


def committed(log: Log, name: str, start: int = 0) -> Iterator[Transaction]:
    """The transactions that capture `name` has written as a whole, up to the last END that is there now; each once. start: an
    offset of NAME.transaction; behind a transaction one goes on with `committed(log, name, transaction.offset + 1)`."""
    journal = _journal(log, name)
    commits = Commits(journal)
    last, end = commits.newest(), journal.ends()[0]
    if last is None:
        return
    before, _ = commits.divided(lambda commit: commit.offset < start)
    if before is None and end.first:  # what began before the oldest END that was kept cannot be told apart
        _, before = commits.divided(lambda commit: False)
    reading = _Reading(log, ToldTables(journal), before.offsets if before else {})
    for batch in _batches(journal, before.offset + 1 if before else end.first, last.offset + 1):
        yield from (transaction for transaction in reading.take(batch) if transaction.offset >= start)


class _Batch(NamedTuple):
    """What the journal says of a batch: the transactions that end with it, and the state behind it."""

    ended: Sequence[tuple[int, Row]]  # offset and value
    state: Row


@dataclass
class _Reading:
    """Follows the topics from batch to batch; a transaction that goes on is kept until it ends."""

    log: Log
    tables: ToldTables
    offsets: Offsets
    open: dict[str, dict[str, list[Change]]] = field(default_factory=dict)  # by transaction and table

    def take(self, batch: _Batch) -> Iterator[Transaction]:
        for topic, ends in batch.state["offsets"].items():
            if list(ends) != list(self.offsets.get(topic, [0] * len(ends))):
                self._read(_Table(self.log.topic(topic), self._told(topic, batch.state)), ends, batch)
        self.offsets = batch.state["offsets"]
        for offset, said in batch.ended:
            yield Transaction(said["id"], moment(said["ts_ms"] * 1000), self.open.pop(said["id"], {}), offset)

    def _told(self, topic: str, state: Row) -> Row:
        tables = self.tables.of(state)
        if topic not in tables:
            raise Damaged(
                f"the journal does not say any more which columns {topic} had",
                hint="begin behind what retention has taken: the offset of a later transaction",
            )
        return tables[topic]

    def _read(self, table: "_Table", ends: Sequence[int], batch: _Batch) -> None:
        starts = self.offsets.get(table.topic.spec.name, [0] * len(ends))
        found = [each for p, (start, end) in enumerate(zip(starts, ends, strict=True)) for each in table.records(p, start, end)]
        if table.flat:
            found = self._numbered(table, [change for _, change in found], batch)
        for id, change in sorted(found, key=lambda each: each[1].order):  # over partitions; within one they are sorted already
            self.open.setdefault(id, {}).setdefault(table.name, []).append(change)

    def _numbered(self, table: "_Table", changes: Sequence[Change], batch: _Batch) -> list[tuple[str, Change]]:
        """Flat records do not name their transaction: the journal says how many each has of a table, one after the other."""
        counts = [(said["id"], self._left(said, table.name)) for _, said in batch.ended]
        ids = [id for id, count in counts for _ in range(count)]
        going_on = (batch.state["open"] or {}).get("id", "")
        return list(zip([*ids, *[going_on] * (len(changes) - len(ids))], changes, strict=True))

    def _left(self, said: Row, table: str) -> int:
        """How many changes of a table are still to come of a transaction."""
        all_of_it = {each["data_collection"]: each["event_count"] for each in said["data_collections"]}
        return int(all_of_it.get(table, 0)) - len(self.open.get(said["id"], {}).get(table, ()))


class _Table:
    """The topic of one table, and what its records say."""

    def __init__(self, topic: Topic, told: Row) -> None:
        self.topic, self.flat, self._key = topic, bool(told["flat"]), tuple(told["key"])
        self._schema = Schema.of(told["schema"])
        self.name = ".".join(part for part in told["table"] if part)
        if self.flat and topic.spec.partitions > 1:
            raise BadInput(
                f"transactions in {topic.spec.name} cannot be told apart: its records are flat, and it has several partitions",
                hint="follow the tables without --flat, or with one partition",
            )

    def records(self, partition: int, start: int, stop: int) -> Iterator[tuple[str, Change]]:
        """The id of the transaction and the change of each record; a record without a value says a delete once more."""
        for chunk in self.topic.read(partition, start, stop, [VALUE]) if start < stop else ():
            keys = values_in(chunk.rows.column(KEY), bytes)
            values: list[bytes | None] = chunk.rows.column(VALUE).to_pylist()
            for offset, key, value in zip(chunk.offsets.tolist(), keys, values, strict=True):
                if not start <= offset < stop:
                    continue
                if self.flat:
                    yield self._flat(key, value)
                elif value is not None:
                    yield _enveloped(key, value)

    def _flat(self, key: bytes, value: bytes | None) -> tuple[str, Change]:
        found = key_row(key, self._key, self._schema)
        named = dict.fromkeys(self._key, key.decode()) if isinstance(found, str) else found  # its column is of another type by now
        return "", Change("d" if value is None else "u", named, None, orjson.loads(value) if value else None, 0)


def _enveloped(key: bytes, value: bytes) -> tuple[str, Change]:
    said = orjson.loads(value)
    place = said["transaction"]
    return place["id"], Change(said["op"], orjson.loads(key), said["before"], said["after"], place["total_order"])


def _batches(journal: Topic, start: int, stop: int) -> Iterator[_Batch]:
    ended: list[tuple[int, Row]] = []
    for chunk in journal.read(0, start, stop) if start < stop else ():
        for offset, value, header in _records(chunk):
            if not start <= offset < stop:
                continue
            said = orjson.loads(value)
            if said["status"] == "END":
                ended.append((offset, said))
            if header and "intent" not in header:
                yield _Batch(ended, header)
                ended = []


def _records(chunk: Chunk) -> Iterator[tuple[int, bytes, Row | None]]:
    rows = chunk.rows
    headers = rows.column(HEADERS).to_pylist() if HEADERS in rows.schema.names else [None] * rows.num_rows
    for offset, value, pairs in zip(chunk.offsets.tolist(), values_in(rows.column(VALUE), bytes), headers, strict=True):
        text = dict(pairs).get(HEADER) if pairs else None
        yield offset, value, orjson.loads(text) if text else None


def _journal(log: Log, name: str) -> Topic:
    try:
        return log.topic(journal_name(name))
    except NotFound:
        raise NotFound(
            f"capture {name!r} has written nothing to this log",
            hint=f"run it first: penstock cdc run {name}; cdc status lists them",
        ) from None
