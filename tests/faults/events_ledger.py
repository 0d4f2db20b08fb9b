"""The ledger of an event store under fault: what was appended, what was acknowledged, and whether the store agrees.

After any fault: every acknowledged event is there, with the version and at the position that was answered; the versions of a stream
are dense; no id stands twice in it; an append is there whole or not at all; and the index says what the log says.
"""

import random
from dataclasses import dataclass, field

from penstock.core.time import FixedClock
from penstock.errors import DiskFull, PenstockError, StorageError, VersionConflict
from penstock.events.event import Append, NewEvent, Written
from penstock.events.expected import ANY, Version
from penstock.events.on_log.streams import LogStreams, open_streams
from penstock.events.on_log.verifying import verify
from penstock.log.file.log import FileLog
from penstock.storage.faulty import FaultyStorage
from penstock.storage.port import Storage

NOW = 1_700_000_000_000_000
STREAMS = ("cart-1", "cart-2", "cart-3")
Ids = dict[str, tuple[str, ...]]  # of one append: by stream


def opened(storage: Storage) -> LogStreams:
    """Tiny segments and tiny files of the index: borders are crossed all the time."""
    clock = FixedClock(NOW)
    return open_streams(FileLog(storage, clock, segment_size=1_500), "carts", clock=clock, flush=3)


def append_of(ids: Ids, expected: dict[str, Version] | None = None) -> list[Append]:
    def events(stream: str) -> tuple[NewEvent, ...]:
        return tuple(NewEvent("Added", 1, f'{{"id":"{id}"}}', id, None) for id in ids[stream])

    return [Append(stream, events(stream), (expected or {}).get(stream, ANY)) for stream in ids]


@dataclass
class Ledger:
    """Appends by their fate."""

    acked: list[tuple[Ids, list[Written]]] = field(default_factory=list)
    refused: list[Ids] = field(default_factory=list)
    in_flight: Ids | None = None

    def check(self, streams: LogStreams) -> dict[str, list[str]]:
        """Compares the store with the ledger; the ids of every stream."""
        assert verify(streams).wrong == []
        found = {name: [event.id for event in streams.read(name)] for name in STREAMS}
        known = {(name, id) for name, ids in found.items() for id in ids}
        for ids, answers in self.acked:
            for (name, mine), answer in zip(ids.items(), answers, strict=True):
                last = answer.version
                assert tuple(found[name][last - len(mine) : last]) == mine, f"acknowledged and not there: {mine}"
                assert streams.read(name, last, last)[0].position == answer.position
        assert not known & {pair for ids in self.refused for pair in _pairs(ids)}, "refused and there"
        sent = {pair for ids, _ in self.acked for pair in _pairs(ids)} | set(_pairs(self.in_flight or {}))
        assert known <= sent, "never appended"
        if self.in_flight:
            assert len(known & set(_pairs(self.in_flight))) in (0, len(_pairs(self.in_flight))), "an append is there in part"
        return found


def _pairs(ids: Ids) -> list[tuple[str, str]]:
    return [(name, id) for name, some in ids.items() for id in some]


@dataclass
class Script:
    """Random writers: two processes, one or several streams an append, right and wrong versions, retries, new processes."""

    storage: FaultyStorage
    rng: random.Random
    ledger: Ledger = field(default_factory=Ledger)
    next_id: int = 0

    def start(self) -> None:
        self.writers = [opened(self.storage), opened(self.storage)]

    def step(self) -> None:
        act = self.rng.random()
        if act < 0.1:
            self.writers[self.rng.randrange(2)] = opened(self.storage)
        elif act < 0.2 and self.ledger.acked:
            self.retry(self.rng.choice(self.writers), *self.rng.choice(self.ledger.acked))
        else:
            self.append(self.rng.choice(self.writers))

    def append(self, writer: LogStreams) -> None:
        names = self.rng.sample(STREAMS, self.rng.choice([1, 1, 1, 2]))
        ids = {name: tuple(self.new_id() for _ in range(self.rng.randint(1, 3))) for name in names}
        versions = {name: len(self.known()[name]) for name in names}
        wrong = self.rng.random() < 0.2
        expected: dict[str, Version] = {name: version + wrong for name, version in versions.items()}
        if self.rng.random() < 0.3 and not wrong:
            expected = {}
        self.ledger.in_flight = ids
        try:
            answers = writer.append(append_of(ids, expected))
            assert not wrong, "a wrong version was accepted"
            assert [a.version for a in answers] == [versions[name] + len(ids[name]) for name in names]
            assert not any(answer.duplicate for answer in answers)
            self.ledger.acked.append((ids, answers))
        except VersionConflict as conflict:
            assert wrong, f"a right version was refused: {conflict}"  # noqa: PT017
            self.ledger.refused.append(ids)
        except (StorageError, DiskFull):
            self.ledger.refused.append(ids)
            raise
        finally:
            self.ledger.in_flight = None

    @staticmethod
    def retry(writer: LogStreams, ids: Ids, answers: list[Written]) -> None:
        again = writer.append(append_of(ids, dict.fromkeys(ids, 99)))
        assert [(a.version, a.position, a.duplicate) for a in again] == [(a.version, a.position, True) for a in answers]

    def known(self) -> dict[str, list[str]]:
        """What every stream holds, by the ledger."""
        found: dict[str, list[str]] = {name: [] for name in STREAMS}
        for ids, _ in self.ledger.acked:
            for name, mine in ids.items():
                found[name] += mine
        return found

    def new_id(self) -> str:
        self.next_id += 1
        return f"id-{self.next_id}"


def check_image(image: Storage, script: Script) -> None:
    """A disk after a power loss: nothing acknowledged is lost, and a retry of what was in flight is stored once."""
    try:
        streams = opened(image)
    except PenstockError:
        assert not script.ledger.acked, "the store is gone"
        return
    found = script.ledger.check(streams)
    flight = script.ledger.in_flight
    if script.ledger.acked:
        script.retry(streams, *script.ledger.acked[-1])
    if flight:
        there = all(id in found[name] for name, id in _pairs(flight))
        assert all(answer.duplicate == there for answer in streams.append(append_of(flight)))
    streams.append(append_of({"cart-1": ("after",)}, {"cart-1": streams.version("cart-1")}))
    for again in (streams, opened(image)):
        assert verify(again).wrong == []
        assert [event.id for event in again.read("cart-1")][-1] == "after"


def power_losses(seed: int, storage: FaultyStorage | None = None, steps: int = 12, share: float = 0.1) -> int:
    """Runs a script and takes disks after a power loss before many of its steps. How many were looked at."""
    rng = random.Random(seed)
    storage = storage or FaultyStorage()
    script, looked = Script(storage, rng), 0

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
    storage.watch = None
    script.ledger.check(script.writers[0])
    return looked
