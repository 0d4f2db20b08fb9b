"""The ledger of a queue on the log under fault: what was sent, what was acknowledged, and whether the queue agrees.

Every message has an id of its own. After any fault: what was sent and not acknowledged comes out once, of the queue or of its dead
letters; what was acknowledged comes out of neither; nothing comes out twice.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.core.time import FixedClock
from penstock.errors import DiskFull, NotFound, StorageError
from penstock.log.file.log import FileLog
from penstock.log.groups.leases import ManualClock
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.port import Consumer, Delivery, Fate, Message, QueueSpec, Settlement
from penstock.storage.faulty import FaultyStorage
from penstock.storage.port import Storage

NOW = 1_700_000_000_000_000
SPEC = QueueSpec("q", lease=timedelta(seconds=10), tries=3)
CONSUMERS = (Consumer("a"), Consumer("b"))


def open_queues(storage: Storage, leases: ManualClock) -> LogQueues:
    return LogQueues(FileLog(storage, FixedClock(NOW), segment_size=1_500), leases=leases)


@dataclass
class Script:
    """A random user of a queue, and what it was told."""

    storage: FaultyStorage
    rng: random.Random
    leases: ManualClock = field(default_factory=ManualClock)
    next_id: int = 0
    sent: set[str] = field(default_factory=set)  # told that it is in
    done: set[str] = field(default_factory=set)  # told that it is acknowledged
    unsure: set[str] = field(default_factory=set)  # nothing was told yet, or an error
    hands: list[Delivery] = field(default_factory=list)

    def start(self) -> None:
        self.queues = open_queues(self.storage, self.leases)
        self.queue = self.queues.create(SPEC)

    def step(self) -> None:
        act = self.rng.random()
        if act < 0.35:
            self.send()
        elif act < 0.6:
            self.hands += self.queue.receive(self.rng.choice(CONSUMERS), self.rng.randint(1, 3))
        elif act < 0.92:
            self.settle()
        elif act < 0.96:
            self.leases.advance(11)
        else:
            self.queues = open_queues(self.storage, self.leases)
            self.queue = self.queues.queue("q")

    def send(self) -> None:
        ids = [f"m{self.next_id + n}" for n in range(self.rng.randint(1, 3))]
        self.next_id += len(ids)
        self.unsure.update(ids)
        self.queue.send([Message(b"x" * self.rng.randint(0, 40), id, key=self.rng.choice(["k", None])) for id in ids])
        self.sent.update(ids)
        self.unsure.difference_update(ids)

    def settle(self) -> None:
        taken, self.hands = self.hands[:2], self.hands[2:]
        fates: list[Fate] = [self.rng.choice(["ack", "ack", "ack", "nack", "reject"]) for _ in taken]
        acked = {d.receipt: d.message.id for d, fate in zip(taken, fates, strict=True) if fate == "ack"}
        self.unsure |= set(acked.values())
        lost = self.queue.settle([Settlement(d.receipt, fate) for d, fate in zip(taken, fates, strict=True)])
        self.done |= {id for receipt, id in acked.items() if receipt not in lost}
        self.unsure -= set(acked.values())


def drained(queues: LogQueues, name: str) -> list[str]:
    """The ids of all that is in a queue; what others hold is waited for."""
    try:
        queue, found = queues.queue(name), list[str]()
    except NotFound:
        return []
    while got := queue.receive(Consumer("drain", prefetch=1_000), 100):
        found += [d.message.id for d in got]
        assert not queue.settle([Settlement(d.receipt, "ack") for d in got])
    return found


def check(storage: Storage, script: Script) -> None:
    """A disk as it was found, by a machine that was just started."""
    leases = ManualClock()
    leases.boot = "the next one"
    queues = open_queues(storage, leases)
    found = [*drained(queues, "q"), *drained(queues, "q.dead")]
    assert len(found) == len(set(found)), f"twice: {sorted(id for id in found if found.count(id) > 1)}"
    assert not set(found) & script.done, f"acknowledged, and there: {set(found) & script.done}"
    lost = script.sent - script.done - script.unsure - set(found)
    assert not lost, f"sent, and gone: {lost}"
    assert set(found) <= script.sent | script.unsure
    again = open_queues(storage, leases)
    assert not [*drained(again, "q"), *drained(again, "q.dead")], "what was acknowledged then is there"


def power_losses(seed: int, steps: int = 25, share: float = 0.15) -> int:
    """Runs a script and takes disks after a power loss before many of its steps. How many were looked at."""
    rng = random.Random(seed)
    script = Script(FaultyStorage(), rng)
    looked = 0

    def lose_power(operation: str, path: str) -> None:
        nonlocal looked
        if rng.random() < share:
            for image in script.storage.images(rng):
                check(image, script)
                looked += 1

    script.start()
    script.storage.watch = lose_power
    for _ in range(steps):
        script.step()
    script.storage.watch = None
    lose_power("end", "")
    return looked


def failing(script: Script, act: Callable[[], None]) -> bool:
    """Does something on a disk that fails; whether it did."""
    try:
        act()
    except (StorageError, DiskFull):
        return True
    return False
