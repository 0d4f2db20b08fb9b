"""The ledger of a log under fault: what was sent, what was acknowledged, and whether the log agrees.

Every row has an id of its own. After any fault: every acknowledged row is there, at the offset that was answered; nothing that
was refused is there; no id stands twice; offsets are dense; the rows of one producer stand in the order they were sent.
"""

import random
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import NEVER, FixedClock
from penstock.errors import DiskFull, PenstockError, StorageError
from penstock.log.file.log import FileLog
from penstock.log.port import Sender, Topic, TopicSpec
from penstock.storage.faulty import FaultyStorage
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage

NOW = 1_700_000_000_000_000
SPEC = TopicSpec("t", schema=Schema.of("id long, pad string, at timestamp"), time="at")
SMALL_SEGMENT = 1_500


def rows_of(ids: list[int]) -> pa.RecordBatch:
    """The rows that these ids stand for."""
    return _rows_of(tuple(ids))


@lru_cache(maxsize=4096)
def _rows_of(ids: tuple[int, ...]) -> pa.RecordBatch:
    pads = ["x" * (7 * i % 40) for i in ids]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "pad": pads, "at": pa.array([NOW + i for i in ids], TIMESTAMP)})


def open_log(storage: Storage, segment_size: int = SMALL_SEGMENT) -> FileLog:
    return FileLog(storage, FixedClock(NOW), segment_size)


@dataclass
class Ledger:
    """Ids by their fate."""

    acked: dict[int, int] = field(default_factory=dict)  # id: offset
    unknown: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def copy(self) -> "Ledger":
        return Ledger(dict(self.acked), list(self.unknown), list(self.refused))

    def check(self, topic: Topic, partition: int = 0) -> dict[int, int]:
        """Compares the log with the ledger; the offset of every id."""
        found: dict[int, int] = {}
        next_offset = 0
        for frame, rows in topic.read(partition):
            assert frame.base == next_offset, "offsets are dense"
            next_offset = frame.end
            ids = rows.column("id").to_pylist()
            assert rows.equals(rows_of(ids)), "rows are what was sent"
            for at, id in enumerate(ids):
                assert id not in found, f"{id} stands twice"
                found[id] = frame.base + at
        assert topic.ends()[partition].next == next_offset
        lost = {id: offset for id, offset in self.acked.items() if found.get(id) != offset}
        assert not lost, f"acknowledged and not there: {lost}"
        assert not set(self.refused) & set(found), "refused and there"
        assert set(found) <= set(self.acked) | set(self.unknown), "never sent"
        return found


@dataclass
class Script:
    """A random writer: rows with and without a producer's stamp, marks, and a new writer now and then."""

    storage: FaultyStorage
    rng: random.Random
    ledger: Ledger = field(default_factory=Ledger)
    sequence: int = 0
    next_id: int = 0
    in_flight: tuple[list[int], Sender | None] | None = None
    last_stamped: tuple[list[int], Sender] | None = None

    def start(self) -> None:
        self.log = open_log(self.storage)
        self.topic = self.log.create(SPEC)

    def step(self) -> None:
        act = self.rng.random()
        if act < 0.15:
            self.topic.append(0, None, mark=NOW + self.rng.randrange(1000))
        elif act < 0.25:
            self.topic = self.log.topic("t")
        else:
            self.append(stamped=act < 0.7)

    def append(self, stamped: bool) -> None:
        """One append; what fails is refused, for the log promises that it is not there."""
        ids = list(range(self.next_id, self.next_id + self.rng.randint(1, 4)))
        self.next_id += len(ids)
        sender = Sender("p", 0, self.sequence) if stamped else None
        self.in_flight = (ids, sender)
        self.ledger.unknown += ids
        try:
            answer = self.topic.append(0, rows_of(ids), mark=NEVER, sender=sender)
            self.acknowledge(ids, answer.base)
            if sender:
                assert not answer.duplicate
                self.sequence, self.last_stamped = self.sequence + 1, (ids, sender)
        except (StorageError, DiskFull):
            self.refuse(ids)
            raise
        finally:
            self.in_flight = None

    def acknowledge(self, ids: list[int], base: int) -> None:
        self.ledger.acked |= {id: base + at for at, id in enumerate(ids)}
        self.ledger.unknown = [id for id in self.ledger.unknown if id not in ids]

    def refuse(self, ids: list[int]) -> None:
        self.ledger.refused += ids
        self.ledger.unknown = [id for id in self.ledger.unknown if id not in ids]


def check_image(image: Storage, script: Script) -> None:
    """A disk after a power loss: nothing acknowledged is lost, and writing goes on, the record in flight stored once."""
    ledger = script.ledger.copy()
    try:
        topic = open_log(image).topic("t")
    except PenstockError:
        assert not ledger.acked, "the topic is gone"
        return
    if script.rng.random() < 0.5:  # a reader comes first, or a writer
        ledger.check(topic)
    if script.last_stamped:
        ids, last = script.last_stamped
        answer = topic.append(0, rows_of(ids), sender=last)
        assert (answer.base, answer.duplicate) == (ledger.acked[ids[0]], True), "a retry is answered as before"
    if script.in_flight:
        ids, sender = script.in_flight
        there = ledger.check(open_log(image).topic("t"))
        answer = topic.append(0, rows_of(ids), sender=sender)
        if sender:
            assert answer.duplicate == (ids[0] in there), "a retry is stored once"
        elif ids[0] in there:
            return  # without a stamp a retry is a second record: the ids would stand twice
        ledger.acked |= {id: answer.base + at for at, id in enumerate(ids)}
    fresh = script.next_id + 1000
    answer = topic.append(0, rows_of([fresh]), sender=Sender("after", 0, 0))
    ledger.acked[fresh] = answer.base
    ledger.check(topic)
    again = open_log(image).topic("t")
    ledger.check(again)
    assert again.append(0, rows_of([fresh]), sender=Sender("after", 0, 0)).duplicate


def power_losses(seed: int, storage: FaultyStorage | None = None, steps: int = 12, share: float = 0.25) -> int:
    """Runs a script and takes disks after a power loss before many of its steps. How many were looked at."""
    rng = random.Random(seed)
    storage = storage or FaultyStorage()
    script = Script(storage, rng)
    looked = 0

    def lose_power(operation: str, path: str) -> None:
        nonlocal looked
        if rng.random() < share:
            for image in storage.images(rng):
                check_image(image, script)
                looked += 1

    script.start()
    storage.watch = lose_power
    for _ in range(steps):
        script.step()
    lose_power("end", "")
    return looked


def reopened(image: MemoryStorage) -> FaultyStorage:
    """A disk that was found after a power loss, in use again."""
    return FaultyStorage({path: bytes(content) for path, content in image.files.items()})
