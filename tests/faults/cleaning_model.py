"""A partition as a list: what cleaning may take away, and what it must leave as it was."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.core.change import Op
from penstock.core.columns import BEFORE, KEY, OP
from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import NEVER, micros
from penstock.log.port import Appended, Sender, Topic, TopicSpec

SCHEMA = Schema.of("id long, at timestamp")
NOW = 1_700_000_000_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND


@dataclass(frozen=True)
class Row:
    id: int
    key: bytes | None
    time: int
    delete: bool = False


@dataclass(frozen=True)
class Stored:
    """A row as the log has it."""

    row: Row
    offset: int
    appended: int
    before: int  # greatest plausible time of the rows before it
    mark: int  # greatest mark at or before it


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = {
        "id": pa.array([r.id for r in rows], pa.int64()),
        "at": pa.array([r.time for r in rows], TIMESTAMP),
        KEY: pa.array([r.key for r in rows], pa.binary()),
        OP: pa.array([int(Op.DELETE) if r.delete else None for r in rows], pa.int8()),
    }
    return pa.record_batch(columns)


@dataclass
class Model:
    """All that was ever appended to one partition."""

    spec: TopicSpec
    rows: list[Stored] = field(default_factory=list)
    time: int = NEVER
    mark: int = NEVER
    appended: int = NEVER
    first: int = 0  # the greatest that was seen
    answers: dict[tuple[str, int, int], Appended] = field(default_factory=dict)
    removable: set[int] = field(default_factory=set)  # offsets that compaction or retention may have taken by now

    def append(self, topic: Topic, rows: list[Row], mark: int, sender: Sender | None, now: int, partition: int = 0) -> None:
        """Appends to both, and compares the answers."""
        answer = topic.append(partition, batch(rows) if rows else None, mark=mark, sender=sender)
        known = self.answers.get(sender[:3]) if sender else None
        if known:
            assert answer == known._replace(duplicate=True), "a retry is answered as before"
            return
        assert answer == Appended(len(self.rows), len(rows), False)
        if sender:
            self.answers[sender[:3]] = answer
        self.take(rows, mark, now)

    def take(self, rows: list[Row], mark: int, now: int) -> None:
        self.appended = max(self.appended, now)
        for row in rows:
            self.rows.append(Stored(row, len(self.rows), self.appended, self.time, self.mark))
            if self.spec.writer or row.time <= self.appended + micros(self.spec.future):
                self.time = max(self.time, row.time)
        self.mark = max(self.mark, mark)

    def cleaned(self, now: int) -> None:
        """A cleaning was begun: what may be gone from now on."""
        if self.spec.retain is not None:
            self.removable |= {s.offset for s in self.rows if s.appended + micros(self.spec.retain) <= now}
        if self.spec.compact:
            later: set[bytes] = set()
            for stored in reversed(self.rows):
                key = stored.row.key
                if key is not None and key in later:
                    self.removable.add(stored.offset)
                later |= {key} if key is not None else set()

    def tombstones_over(self) -> None:
        """Deletes may be gone, too."""
        self.removable |= {s.offset for s in self.rows if s.row.delete}

    def check(self, topic: Topic, partition: int = 0) -> list[int]:
        """What the topic gives is what the model has, but for what may be gone. The offsets that are there."""
        end = topic.ends()[partition]
        assert (end.next, end.time, end.mark) == (len(self.rows), self.time, self.mark)
        assert end.first >= self.first, "what was removed is back"
        self.first = end.first
        assert set(range(end.first)) <= self.removable, "retention took what is young"
        found = self._rows(topic, partition, end.first)
        missing = set(range(end.first, len(self.rows))) - set(found)
        assert missing <= self.removable, f"gone: {sorted(missing - self.removable)}"
        self._check_latest(found, end.first)
        return found

    def _rows(self, topic: Topic, partition: int, first: int) -> list[int]:
        found: list[int] = []
        for chunk in topic.read(partition, first):
            frame, offsets = chunk.frame, chunk.offsets.tolist()
            assert frame.count == chunk.rows.num_rows == len(offsets)
            assert frame.base <= offsets[0]
            assert offsets[-1] < frame.end
            assert offsets == sorted(offsets)
            assert not found or found[-1] < offsets[0]
            found += offsets
            self._check_rows([self.rows[o] for o in offsets], chunk)
        return found

    def _check_rows(self, expected: list[Stored], chunk: object) -> None:
        frame, rows = chunk.frame, chunk.rows  # type: ignore[attr-defined]
        assert rows.column("id").to_pylist() == [s.row.id for s in expected], "wrong rows"
        keys = rows.column(KEY).to_pylist() if KEY in rows.schema.names else [None] * len(expected)
        assert keys == [s.row.key for s in expected]
        ops = rows.column(OP).to_pylist() if OP in rows.schema.names else [None] * len(expected)
        assert [op == Op.DELETE for op in ops] == [s.row.delete for s in expected]
        assert chunk.appended.tolist() == [s.appended for s in expected]  # type: ignore[attr-defined]
        times = np.array([s.row.time for s in expected])
        assert (frame.least, frame.greatest) == (times.min(), times.max())
        assert known_before(self.spec, frame, times, chunk) == [s.before for s in expected], "the greatest earlier time"
        if not self.spec.writer:
            assert {s.mark for s in expected} == {frame.mark_before}, "a mark was moved"
        assert frame.mark_before <= min(s.mark for s in expected)

    def _check_latest(self, found: list[int], first: int) -> None:
        """The latest row of every key is there, unless it is a delete or was retained away."""
        newest = {s.row.key: s for s in self.rows if s.row.key is not None}
        present = set(found)
        for stored in newest.values():
            if not stored.row.delete and stored.offset >= first:
                assert stored.offset in present, f"the latest row of {stored.row.key!r} is gone"


def known_before(spec: TopicSpec, frame: object, times: np.ndarray, chunk: object) -> list[int]:
    """The greatest plausible time before each row, as a reader works it out."""
    appended, rows = chunk.appended, chunk.rows  # type: ignore[attr-defined]
    plausible = times if spec.writer else np.where(times <= appended + micros(spec.future), times, NEVER)
    known = np.concatenate([[frame.time_before], plausible[:-1]])  # type: ignore[attr-defined]
    if BEFORE in rows.schema.names:
        known = np.maximum(known, rows.column(BEFORE).to_numpy())
    return np.maximum.accumulate(known).tolist()
