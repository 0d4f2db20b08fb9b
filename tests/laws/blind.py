"""A log as Kafka is one: marks take offsets of their own, offsets have gaps, and nothing is known of times before rows are read."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.core.columns import APPENDED, OFFSET
from penstock.core.time import NEVER, Clock
from penstock.log.intake.checked import CheckedRows
from penstock.log.memory import MemoryLog, MemoryTopic
from penstock.log.port import Appended, Chunk, End, Frame, Part, Sender, TopicSpec

AFTER_A_MARK = 2  # offsets that a mark takes: its own, and one that nobody will ever see
PIECE = 3  # offsets that a frame is said to have


@dataclass(frozen=True)
class Stored:
    """A row, or a mark."""

    offset: int
    appended: int
    row: pa.RecordBatch | None
    mark: int = NEVER


class BlindTopic:
    """Keeps its records one by one, and a MemoryTopic beside them that checks what comes in and knows producers."""

    headers = False

    def __init__(self, inner: MemoryTopic) -> None:
        self._inner = inner
        self._stored: list[list[Stored]] = [[] for _ in range(inner.spec.partitions)]
        self._next = [0] * inner.spec.partitions
        self._guard = threading.RLock()

    @property
    def spec(self) -> TopicSpec:
        return self._inner.spec

    @property
    def id(self) -> str:
        return self._inner.id

    def append(
        self, partition: int, rows: pa.RecordBatch | CheckedRows | None, *, mark: int = NEVER, sender: Sender | None = None
    ) -> Appended:
        with self._guard:
            answer = self._inner.append(partition, rows, mark=mark, sender=sender)
            if not answer.duplicate:
                frame = self._inner.frames(partition)[-1]
                for chunk in self._inner.read(partition, answer.base) if answer.rows else ():
                    for i in range(chunk.rows.num_rows):
                        self._add(partition, chunk.rows.slice(i, 1), frame.appended, NEVER, 1)
                if mark > NEVER:
                    self._add(partition, None, frame.appended, mark, AFTER_A_MARK)
            return answer

    def append_together(self, parts: Sequence[Part], sender: Sender) -> None:
        with self._guard:
            for part in parts:
                self.append(part.partition, part.rows, mark=part.mark, sender=sender)

    def _add(self, partition: int, row: pa.RecordBatch | None, appended: int, mark: int, offsets: int) -> None:
        self._stored[partition].append(Stored(self._next[partition], appended, row, mark))
        self._next[partition] += offsets

    def frames(self, partition: int, start: int = 0, stop: int | None = None) -> Sequence[Frame]:
        end = self._next[partition] if stop is None else min(stop, self._next[partition])
        return [Frame(base, min(PIECE, end - base), *[NEVER] * 7) for base in range(start, end, PIECE)]

    def read(
        self, partition: int, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        found = [s for s in self._stored[partition] if s.offset >= start and (stop is None or s.offset < stop)]
        known, held, at = NEVER, list[Stored](), start
        for stored in found:
            if stored.row is not None:
                held.append(stored)
                continue
            yield _chunk(held, at, stored.offset + 1, known, stored.mark, columns)
            known, held, at = max(known, stored.mark), [], stored.offset + 1
        end = self._next[partition] if stop is None else min(stop, self._next[partition])
        if end > at:
            yield _chunk(held, at, end, known, NEVER, columns)

    def ends(self) -> dict[int, End]:
        return {p: End(0, next, self._stored[p][-1].appended if self._stored[p] else NEVER) for p, next in enumerate(self._next)}

    def senders(self, partition: int) -> Mapping[str, Sender]:
        return self._inner.senders(partition)


def _chunk(held: list[Stored], base: int, end: int, known: int, mark: int, columns: Sequence[str] | None) -> Chunk:
    """Rows of [base, end), and a mark behind them."""
    frame = Frame(base, len(held), held[-1].appended if held else NEVER, NEVER, NEVER, NEVER, mark, NEVER, known)
    frame = Frame(**{**vars(frame), "gap": end - base - len(held)})
    rows = [s.row for s in held if s.row is not None]
    table = pa.concat_tables([pa.Table.from_batches([r]) for r in rows], promote_options="default") if rows else pa.table({})
    if columns is not None:
        table = table.select([n for n in table.column_names if n in columns or n.startswith("__")])
    table = table.append_column(OFFSET, pa.array([s.offset for s in held], pa.int64()))
    table = table.append_column(APPENDED, pa.array([s.appended for s in held], pa.int64()))
    return Chunk(frame, pa.record_batch([c.combine_chunks() for c in table.columns], table.column_names))


class BlindLog:
    """Topics of a MemoryLog, read blindly."""

    def __init__(self, clock: Clock) -> None:
        self._log = MemoryLog(clock)
        self._topics: dict[str, BlindTopic] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def create(self, spec: TopicSpec) -> BlindTopic:
        made = self._topics[spec.name] = BlindTopic(self._log.create(spec))
        return made

    def topic(self, name: str) -> BlindTopic:
        self._log.topic(name)
        return self._topics[name]
