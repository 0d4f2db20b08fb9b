"""Frames into partitions: rows, the mark behind them and the stamp of their producer, all or nothing."""

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.time import NEVER
from penstock.errors import LogError
from penstock.log.kafka.client import PerProcess, produce_one
from penstock.log.kafka.headers import mark_headers, sender_header
from penstock.log.kafka.read.fetching import Header
from penstock.log.kafka.read.ranges import read_range, settled, still_unseen, wait_until_seen
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.write.hanging import Partition, still_open
from penstock.log.kafka.write.recovery import Recovery
from penstock.log.kafka.write.senders import NAME, senders, stamp_of
from penstock.log.kafka.write.transactions import KafkaTransactions, Place, deliver, discarded
from penstock.log.port import Appended, Frame, Sender
from penstock.log.producers import Producers

_PROMPT = 1.0  # seconds in which readers see what was committed, unless something is wrong
Find = Callable[[int, Sender], Frame | None]


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
    def place(self) -> Partition:
        return self.topic, self.partition

    @property
    def records(self) -> int:
        return len(self.values) + (self.mark > NEVER)


class FrameWriter:
    """Writes the frames of one topic. alive: raises NotFound if the topic is gone, or another one has its name. find: looks for an
    old frame of a sender in the log."""

    def __init__(self, settings: KafkaSettings, alive: Callable[[], None], find: Find) -> None:
        self._settings, self._alive, self._find = settings, alive, find

    def append(self, frame: Outgoing) -> Appended:
        """A frame of nobody in particular: in a transaction of this process, or as a single record, which is there or not."""
        if frame.records == 1:
            return self._single(frame)
        id = f"penstock/{os.getpid()}/{_PROCESS.get('id', lambda: uuid.uuid4().hex)}"
        return deliver(self._settings, id, _Unsigned(self._settings, frame, self._alive, _PROCESS.get("doubtful", set)))

    def append_signed(self, frames: Sequence[Outgoing], sender: Sender) -> list[Appended]:
        """Frames of one sender, for one partition each, in one transaction with the stamps that tell of them."""
        senders(self._settings).make()
        recovery = Recovery(self._settings, frames[0].topic, frames[0].topic_id, sender.id)
        memory = _MEMORIES.get((self._settings, recovery.topic_id, sender.id), dict[int, Producers])
        work = _Signed(recovery, frames, sender, self._alive, self._find, memory)
        if work.known() and all(answers := work.answers()):
            self._alive()
            return [answer for answer in answers if answer]
        try:
            return deliver(self._settings, recovery.id, work)
        except LogError:  # the next producer of this id looks what became of it
            memory.clear()
            discarded(self._settings, recovery.id)
            raise

    def settle(self, recovery: Recovery, partition: int) -> None:
        """Ends what a producer has left open, without writing: for a reader of its last sequence."""
        discarded(self._settings, recovery.id)
        deliver(self._settings, recovery.id, _Settling(recovery, partition))

    def _single(self, frame: Outgoing) -> Appended:
        self._alive()
        headers = frame.headers[0] if frame.headers and frame.values else mark_headers(frame.mark) if frame.mark > NEVER else None
        value, key = frame.values[0] if frame.values else None, frame.keys[0] if frame.keys else None
        more = {"timestamp": frame.appended // 1000, "headers": list(headers or ())}
        try:
            offset = produce_one(self._settings, frame.topic, frame.partition, value, key, **more)
        except LogError:
            self._alive()  # a topic that was deleted meanwhile raises NotFound
            raise
        return Appended(offset, len(frame.values), duplicate=False)


@dataclass
class _Signed:
    """Frames of a sender, with their stamps. memory: what this process knows of the sender, by partition, as long as it is the only
    one that writes under its id: a partition that is not in it was not looked at yet."""

    recovery: Recovery
    frames: Sequence[Outgoing]
    sender: Sender
    alive: Callable[[], None]
    look_for: Find
    memory: dict[int, Producers]
    places: dict[Partition, list[Place]] = field(default_factory=dict)

    def known(self) -> bool:
        return all(frame.partition in self.memory for frame in self.frames)

    def find(self, transaction: KafkaTransactions, new: bool) -> list[Appended] | None:
        self.alive()
        if new:
            self.memory.clear()  # others may have written since
        unknown = [frame for frame in self.frames if frame.partition not in self.memory]
        self.recovery.stamps(transaction, [frame.partition for frame in unknown])
        stamps = senders(self.recovery.settings)
        found = {f.partition: stamps.get(stamp_of(f.topic_id, f.partition, self.sender.id)) for f in unknown}
        self.recovery.rows(transaction, found)
        self.memory.update(found)
        answers = self.answers()
        return answers if answers and all(answers) else None  # type: ignore[return-value]

    def answers(self) -> list[Appended | None]:
        """What the log has of these already; None where it has nothing. Raises Fenced and SequenceGap."""
        return [self.memory[f.partition].answer(self.sender, lambda s, p=f.partition: self.look_for(p, s)) for f in self.frames]  # type: ignore[misc]

    def write(self, transaction: KafkaTransactions) -> list[Appended]:
        answers = self.answers()
        new = [frame for frame, answer in zip(self.frames, answers, strict=True) if answer is None]
        header = {frame.partition: sender_header(self.sender, len(frame.values)) for frame in new}
        self.places = {frame.place: _write(transaction, frame, header[frame.partition]) for frame in new}
        transaction.flush()
        added = {frame.partition: Appended(self._base(frame), len(frame.values), duplicate=False) for frame in new}
        for frame in new:
            self._stamp(transaction, frame, added[frame.partition].base)
        self.alive()  # the rows are with the broker, and nothing is committed yet; the stamps go there meanwhile
        return [answer or added[frame.partition] for frame, answer in zip(self.frames, answers, strict=True)]

    def _stamp(self, transaction: KafkaTransactions, frame: Outgoing, base: int) -> None:
        after = self.memory[frame.partition].copy()
        after.remember(_frame(frame, base, self.sender))
        stamp = stamp_of(frame.topic_id, frame.partition, self.sender.id)
        written = transaction.produce(NAME, stamp.partition, [after.encode()], [stamp.key])
        self.places.setdefault((NAME, stamp.partition), []).append(written)
        self._after[frame.partition] = after

    def _base(self, frame: Outgoing) -> int:
        """Where a frame stands; one without records (a stamp alone) at the end."""
        places = self.places[frame.place]
        return places[0].offset if places else settled(self.recovery.settings, frame.topic, frame.partition)

    def seen(self, transaction: KafkaTransactions) -> None:
        _wait_until_seen(self.recovery.settings, transaction, self.places)
        self.memory.update(self._after)

    def __post_init__(self) -> None:
        self._after: dict[int, Producers] = {}


@dataclass
class _Unsigned:
    """A frame without a stamp. What came of an unclear commit is seen in the log itself. doubtful: partitions in which this process
    may have left something open."""

    settings: KafkaSettings
    frame: Outgoing
    alive: Callable[[], None]
    doubtful: set[Partition]
    places: list[Place] = field(default_factory=list)

    def known(self) -> bool:
        return self.frame.place not in self.doubtful

    def find(self, transaction: KafkaTransactions, new: bool) -> Appended | None:
        self.alive()
        if still_open(self.settings, [self.frame.place]):  # of what hangs there of ours nobody was notified
            transaction.end([self.frame.place], commit=False)
        self.doubtful.discard(self.frame.place)
        if not self.places or self.places[0].offset < 0 or not self._there(self.places[0].offset):
            return None
        return Appended(self.places[0].offset, len(self.frame.values), duplicate=False)

    def write(self, transaction: KafkaTransactions) -> Appended:
        self.doubtful.add(self.frame.place)
        self.places = _write(transaction, self.frame, None)
        transaction.flush()
        self.alive()
        return Appended(self.places[0].offset, len(self.frame.values), duplicate=False)

    def seen(self, transaction: KafkaTransactions) -> None:
        _wait_until_seen(self.settings, transaction, {self.frame.place: self.places})
        self.doubtful.discard(self.frame.place)

    def _there(self, offset: int) -> bool:
        """Whether the record at this offset was committed: an offset is given once."""
        name, partition = self.frame.place
        settled(self.settings, name, partition)
        pieces = read_range(self.settings, name, self.frame.topic_id, partition, offset, offset + 1)
        return any(len(piece) for piece in pieces)


@dataclass(frozen=True)
class _Settling:
    """Nothing is written."""

    recovery: Recovery
    partition: int

    def known(self) -> bool:
        return False

    def find(self, transaction: KafkaTransactions, new: bool) -> bool:
        self.recovery.stamps(transaction, [self.partition])
        return True

    def write(self, transaction: KafkaTransactions) -> bool:
        return True

    def seen(self, transaction: KafkaTransactions) -> None:
        return


_PROCESS = PerProcess()
_MEMORIES = PerProcess()


def _wait_until_seen(settings: KafkaSettings, transaction: KafkaTransactions, places: Mapping[Partition, Sequence[Place]]) -> None:
    """A commit is answered before readers see it: a writer reads what it wrote. A broker that was killed meanwhile may not
    have written to every partition: then it is committed once more. Stamps may stand behind somebody else's that hang; they are not
    waited for after that."""
    unseen = still_unseen(settings, {place: written[-1].last + 1 for place, written in places.items() if written}, _PROMPT)
    transaction.end(list(unseen), commit=True)
    wait_until_seen(settings, {place: end for place, end in unseen.items() if place[0] != NAME})


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
