"""Frames into partitions: rows, the mark behind them and the stamp of their producer, all or nothing."""

import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.core.time import NEVER
from penstock.errors import LogError
from penstock.log.kafka.client import PerProcess, produce_one
from penstock.log.kafka.fetching import Header
from penstock.log.kafka.hanging import patience, still_open
from penstock.log.kafka.headers import mark_headers, sender_header
from penstock.log.kafka.reading import read_range, settled, wait_until_seen
from penstock.log.kafka.senders import NAME, senders, stamp_of
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.transactions import KafkaTransactions, Place, deliver, discarded
from penstock.log.port import Appended, Frame, Sender
from penstock.log.producers import Producers


@dataclass(frozen=True)
class Outgoing:
    """A frame as records of one partition."""

    topic: str  # by its name on the broker
    topic_id: str
    partition: int
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Sequence[Header] | None] | None
    appended: int  # microseconds
    mark: int = NEVER

    @property
    def records(self) -> int:
        return len(self.values) + (self.mark > NEVER)


class FrameWriter:
    """Writes the frames of one topic. alive: raises NotFound if the topic is gone, or another one has its name. find: looks for an
    old frame of a sender in the log."""

    def __init__(self, settings: KafkaSettings, alive: Callable[[], None], find: Callable[[int, Sender], Frame | None]) -> None:
        self._settings, self._alive, self._find = settings, alive, find

    def append(self, frame: Outgoing) -> Appended:
        """A frame of nobody in particular."""
        return self._unsigned(frame) if frame.records > 1 else self._single(frame)

    def append_signed(self, frames: Sequence[Outgoing], sender: Sender) -> list[Appended]:
        """Frames of one sender, for one partition each, in one transaction with the stamps that tell of them."""
        senders(self._settings).make()
        id = f"penstock/{frames[0].topic}/{sender.id}"
        memory = _MEMORIES.get((self._settings, id), dict[int, Producers])
        places: dict[int, list[Place]] = {}

        def find(transaction: KafkaTransactions) -> list[Appended] | None:
            self._alive()
            memory.clear()  # others may have written since
            self._free_stamps(transaction, frames, sender)
            answers = self._answers(frames, sender, memory)
            self._free(transaction, frames, answers)
            return answers if answers and all(answers) else None  # type: ignore[return-value]

        def write(transaction: KafkaTransactions) -> list[Appended]:
            return self._write_signed(transaction, frames, sender, memory, places)

        if memory:
            known = self._answers(frames, sender, memory)
            if all(known):
                self._alive()
                return [answer for answer in known if answer]
        places.clear()
        result = deliver(self._settings, id, write, find)
        try:
            for frame, answer in zip(frames, result, strict=True):
                if not answer.duplicate:
                    memory[frame.partition].remember(_frame(frame, answer.base, sender))
                    self._wait_until_seen(frame, places.get(frame.partition, ()))
        except LogError:  # committed, and not there for readers: the next producer of this id looks what became of it
            memory.clear()
            discarded(self._settings, id)
            raise
        return result

    def _free_stamps(self, transaction: KafkaTransactions, frames: Sequence[Outgoing], sender: Sender) -> None:
        """Stamps that hang tell nobody whether their frames were committed. Where the frames hang with them, nothing was
        acknowledged, and all of it is given up; else nobody knows, and it is waited for."""
        stamps = [(NAME, stamp_of(frame.topic_id, frame.partition, sender.id).partition) for frame in frames]
        hanging = still_open(self._settings, list(dict.fromkeys(stamps)), patience(self._settings))
        rows = [(frame.topic, frame.partition) for frame in frames]
        if hanging and still_open(self._settings, rows) == rows:
            transaction.end([*hanging, *rows], commit=False)

    def _free(self, transaction: KafkaTransactions, frames: Sequence[Outgoing], answers: Sequence[Appended | None]) -> None:
        """Rows that hang are committed where their stamps are, and given up where there are none."""
        hanging = still_open(self._settings, [(frame.topic, frame.partition) for frame in frames])
        known = [(f.topic, f.partition) for f, answer in zip(frames, answers, strict=True) if answer]
        transaction.end([p for p in hanging if p not in known], commit=False)
        transaction.end([p for p in hanging if p in known], commit=True)

    def _answers(self, frames: Sequence[Outgoing], sender: Sender, memory: dict[int, Producers]) -> list[Appended | None]:
        """What the log has of these already; None where it has nothing. Raises Fenced and SequenceGap."""
        out = []
        for frame in frames:
            if frame.partition not in memory:
                memory[frame.partition] = senders(self._settings).get(stamp_of(frame.topic_id, frame.partition, sender.id))
            out.append(memory[frame.partition].answer(sender, lambda s, p=frame.partition: self._find(p, s)))  # type: ignore[misc]
        return out

    def _write_signed(
        self,
        transaction: KafkaTransactions,
        frames: Sequence[Outgoing],
        sender: Sender,
        memory: dict[int, Producers],
        places: dict[int, list[Place]],
    ) -> list[Appended]:
        answers = self._answers(frames, sender, memory)
        new = [frame for frame, answer in zip(frames, answers, strict=True) if answer is None]
        for frame in new:
            places[frame.partition] = _write(transaction, frame, sender_header(sender, len(frame.values)))
        transaction.flush()
        self._alive()
        bases = {frame.partition: self._base(frame, places[frame.partition]) for frame in new}
        for frame in new:
            after = memory[frame.partition].copy()
            after.remember(_frame(frame, bases[frame.partition], sender))
            stamp = stamp_of(frame.topic_id, frame.partition, sender.id)
            transaction.produce(NAME, stamp.partition, [after.encode()], [stamp.key])
        added = {frame.partition: Appended(bases[frame.partition], len(frame.values), duplicate=False) for frame in new}
        return [answer or added[frame.partition] for frame, answer in zip(frames, answers, strict=True)]

    def _base(self, frame: Outgoing, places: Sequence[Place]) -> int:
        """Where a frame stands; one without records (a stamp alone) at the end."""
        return places[0].offset if places else settled(self._settings, frame.topic, frame.partition)

    def _unsigned(self, frame: Outgoing) -> Appended:
        """A transaction of this process. What came of an unclear commit is seen in the log itself."""
        places: list[Place] = []

        def find(transaction: KafkaTransactions) -> Appended | None:
            self._alive()
            if not places or places[0].offset < 0 or not self._there(frame, places[0].offset):
                return None
            return Appended(places[0].offset, len(frame.values), duplicate=False)

        def write(transaction: KafkaTransactions) -> Appended:
            places[:] = _write(transaction, frame, None)
            transaction.flush()
            self._alive()
            return Appended(places[0].offset, len(frame.values), duplicate=False)

        id = f"penstock/{os.getpid()}/{_PROCESS.get('id', lambda: uuid.uuid4().hex)}"
        result = deliver(self._settings, id, write, find)
        self._wait_until_seen(frame, places)
        return result

    def _wait_until_seen(self, frame: Outgoing, places: Sequence[Place]) -> None:
        """A commit is answered before readers see it: whoever appended reads what it wrote."""
        if places and places[-1].last >= 0:
            wait_until_seen(self._settings, frame.topic, frame.partition, places[-1].last + 1)

    def _there(self, frame: Outgoing, offset: int) -> bool:
        """Whether the record at this offset was committed: an offset is given once."""
        settled(self._settings, frame.topic, frame.partition)
        pieces = read_range(self._settings, frame.topic, frame.topic_id, frame.partition, offset, offset + 1)
        return any(len(piece) for piece in pieces)

    def _single(self, frame: Outgoing) -> Appended:
        """One record needs no transaction: it is there or not."""
        self._alive()
        headers = frame.headers[0] if frame.headers and frame.values else mark_headers(frame.mark) if frame.mark > NEVER else None
        value, key = frame.values[0] if frame.values else None, frame.keys[0] if frame.keys else None
        more = {"timestamp": frame.appended // 1000, "headers": list(headers or ())}
        try:
            offset = produce_one(self._settings, frame.topic, frame.partition, value, key, **more)
        except LogError:
            self._alive()  # a topic that was deleted meanwhile is told as such
            raise
        return Appended(offset, len(frame.values), duplicate=False)


_PROCESS = PerProcess()
# What this process knows of a sender, by partition, as long as it is the only one that writes under its id.
_MEMORIES = PerProcess()


def _write(transaction: KafkaTransactions, frame: Outgoing, stamp: Header | None) -> list[Place]:
    """The records of a frame; where rows and mark came to stand."""
    time, places = frame.appended // 1000, list[Place]()
    first = [stamp] if stamp else []
    if frame.values:
        places.append(transaction.produce(frame.topic, frame.partition, frame.values, frame.keys, frame.headers, time, first))
        first = []
    if frame.mark > NEVER:
        headers = [*first, *mark_headers(frame.mark)]
        places.append(transaction.produce(frame.topic, frame.partition, [None], None, [headers], time))
    return places


def _frame(frame: Outgoing, base: int, sender: Sender) -> Frame:
    return Frame(base, len(frame.values), frame.appended, NEVER, NEVER, NEVER, frame.mark, NEVER, NEVER, sender)
