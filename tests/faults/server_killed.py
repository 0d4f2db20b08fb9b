"""A server that is killed while a sink writes to it. In every epoch all keys get its number, and a fifth of them go; so what the
server holds says of which epoch it is, and whether of one."""

import random
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from faults.seeds import SEED
from penstock.core.change import Op
from penstock.errors import SinkUnavailable
from penstock.testing.servers.processes import Server
from store_epochs import Build, Epochs, spec_of

CHANGING = spec_of("killed", "id int, n int", "id", updating=True)


@dataclass(frozen=True)
class Victim:
    """held: the numbers by key; OSError if the server is gone. whole: an epoch can be seen whole or not at all."""

    server: Server
    build: Build
    held: Callable[[], dict[int, int]]
    rows: int = 2_000
    whole: bool = True

    def has(self, epoch: int) -> bool:
        return self.held() == {i: epoch for i in range(self.rows) if i % 5 != epoch % 5}


def numbers(rows: Mapping[Any, Any], column: str | bytes) -> dict[int, int]:
    """What rows of a cache or an index have in the column, by their key."""
    return {int(key): int(row[column]) for key, row in rows.items()}


def changes_of(epoch: int, count: int) -> tuple[list[dict[str, int]], list[Op]]:
    rows = [{"id": i, "n": epoch} for i in range(count)]
    return rows, [Op.DELETE if i % 5 == epoch % 5 else Op.INSERT for i in range(count)]


def give_all(epochs: Epochs, victim: Victim, count: int, before: Callable[[], None] = lambda: None) -> int:
    """Delivers so many epochs, as the engine does: after a failure it opens the sink and gives what it lacks. How often that was
    needed."""
    failures = 0
    while epochs.last < count - 1:
        before()
        with suppress(SinkUnavailable):
            rows, ops = changes_of(epochs.last + 1, victim.rows)
            epochs.storage.files.pop(f"{epochs.last + 1}.arrow", None)
            epochs.give(*rows, ops=ops)
            continue
        failures += 1
        while not opened_again(epochs, victim):  # it may be killed meanwhile, too
            pass
    return failures


def opened_again(epochs: Epochs, victim: Victim) -> bool:
    """Whether the server was there long enough to be looked at."""
    if victim.server.process is None or victim.server.process.poll() is not None:
        victim.server.start()
    with suppress(SinkUnavailable, OSError):
        epochs.last = epochs.sink.open("life", 1)
        assert epochs.last < 0 or not victim.whole or victim.has(epochs.last), "rows and marker are not of one epoch"
        return True
    return False


def killed_at(point: str, victim: Victim) -> None:
    """The server dies in the second of four epochs, when the point is passed."""
    passed: list[str] = []

    def kill(name: str) -> None:
        passed.append(name)
        if name == point and passed.count(point) == 2:
            victim.server.kill()

    epochs = Epochs(victim.build, CHANGING, fail=kill)
    last = epochs.last + 4
    give_all(epochs, victim, last + 1)
    assert victim.has(last)
    assert passed.count(point) > 4 or point == "store.committed", "nobody was killed"


def killed_at_random(kills: int, victim: Victim, longest: float = 0.2) -> None:
    """The server dies so often, within so many seconds of the beginning of an epoch."""
    print(f"PENSTOCK_SEED={SEED}")
    chance, timers = random.Random(SEED), list[threading.Timer]()

    def kill_soon() -> None:
        if len(timers) < kills and victim.server.process:
            timers.append(threading.Timer(chance.uniform(0, longest), victim.server.process.kill))
            timers[-1].start()

    epochs = Epochs(victim.build, CHANGING)
    give_all(epochs, victim, epochs.last + kills + 4, kill_soon)
    assert len(timers) == kills
    for timer in timers:
        timer.join()
    victim.server.kill()
    victim.server.start()
    assert victim.has(epochs.last)
