"""A random partition to clean, and what must hold of the disk whenever a cleaning ends before its time."""

import random
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta

from faults.cleaning_model import DAY, NOW, SCHEMA, SECOND, Model, Row
from penstock.core.time import NEVER, FixedClock
from penstock.log.file.log import FileLog
from penstock.log.file.topic import FileTopic
from penstock.log.port import Sender, TopicSpec
from penstock.storage.faulty import FaultyStorage
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage

SEGMENT = 1_500
SPECS = (
    TopicSpec("t", schema=SCHEMA, time="at", compact=True, tombstones=timedelta(0)),
    TopicSpec("t", schema=SCHEMA, time="at"),
    TopicSpec("t", schema=SCHEMA, time="at", compact=True, retain=timedelta(seconds=40), hold=timedelta(0)),
    TopicSpec("t", schema=SCHEMA, time="at", retain=timedelta(seconds=40), hold=timedelta(0)),
)
KEYS = [None, b"a", b"b", b"c", b"d", b""]


class Script:
    """Appends at random, then cleanings."""

    def __init__(self, seed: int, storage: Storage | None = None) -> None:
        self.rng, self.storage, self.clock = random.Random(seed), storage or FaultyStorage(), FixedClock(NOW)
        self.model, self.ids, self.sequence = Model(SPECS[seed % len(SPECS)]), 0, 0
        self.topic = self.log().create(self.model.spec)

    def log(self, storage: Storage | None = None) -> FileLog:
        return FileLog(storage or self.storage, self.clock, SEGMENT)

    def rows(self, count: int) -> list[Row]:
        made = []
        for _ in range(count):
            key = self.rng.choice(KEYS)
            far = 3 * DAY if self.rng.random() < 0.05 else 0
            made.append(
                Row(self.ids, key, NOW + self.rng.randrange(-20, 80) * SECOND + far, key is not None and self.rng.random() < 0.2)
            )
            self.ids += 1
        return made

    def append(self, topic: FileTopic | None = None) -> None:
        self.clock.set(self.clock.now() + self.rng.randrange(3) * SECOND)
        mark = NOW + self.rng.randrange(60) * SECOND if self.rng.random() < 0.2 else NEVER
        rows = self.rows(self.rng.randint(0 if mark > NEVER else 1, 4))
        sender = Sender("p", 0, self.sequence) if self.rng.random() < 0.5 else None
        self.model.append(topic or self.topic, rows, mark, sender, self.clock.now())
        self.sequence += sender is not None

    def fill(self, appends: int) -> None:
        for _ in range(appends):
            self.append()

    def about_to_clean(self) -> None:
        self.model.cleaned(self.clock.now())
        self.model.tombstones_over()

    def clean(self) -> None:
        self.about_to_clean()
        self.topic.clean()


def check_disk(script: Script, storage: Storage) -> None:
    """Whatever a crash left: all is there that must be, it can be written on, and the next cleaning ends well."""
    model, rng_state = deepcopy(script.model), script.rng.getstate()
    topic = script.log(storage).topic("t")
    model.check(topic)
    if script.sequence:
        last = Sender("p", 0, script.sequence - 1)
        model.append(topic, [Row(-1, None, NOW)], NEVER, last, script.clock.now())
    model.append(topic, [Row(10_000_000, b"a", NOW)], NEVER, Sender("q", 0, 0), script.clock.now())
    model.check(topic)
    model.cleaned(script.clock.now())
    topic.clean()
    model.check(topic)
    model.check(script.log(storage).topic("t"))
    leftovers_are_gone(topic, storage)
    script.rng.setstate(rng_state)


def leftovers_are_gone(topic: FileTopic, storage: Storage) -> None:
    files = storage.list(f"topics/t/{topic.id}/0")
    assert sum(name.endswith(".manifest") for name in files) <= 1
    assert sum(name.endswith((".part", ".log")) for name in files) == topic.describe()["segments"]


def crashes(seed: int, share: float = 1.0, appends: int = 25, disk: Callable[[], FaultyStorage] = FaultyStorage) -> int:
    """Two cleanings with appends between, the power lost before many of their steps. How many disks were looked at."""
    storage = disk()
    script = Script(seed, storage)
    looked, rng = 0, random.Random(seed)

    def lose_power(operation: str, path: str) -> None:
        nonlocal looked
        if rng.random() < share:
            for image in storage.images(rng):
                check_disk(script, image)
                looked += 1

    for _ in range(2):
        script.fill(appends)
        script.about_to_clean()
        storage.watch = lose_power
        script.topic.clean()
        lose_power("end", "")
        storage.watch = None
        script.model.check(script.topic)
    return looked


def reopened(image: MemoryStorage) -> FaultyStorage:
    return FaultyStorage({path: bytes(content) for path, content in image.files.items()})
