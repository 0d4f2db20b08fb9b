"""Power loss and bad disks under an event store: what was acknowledged is there, once, under its version (G40)."""

import random

import pytest

from faults.events_ledger import Script, append_of, check_image, opened, power_losses
from faults.seeds import SEED, disks
from penstock.errors import DiskFull, StorageError
from penstock.events.on_log.verifying import verify
from penstock.storage.faulty import Failure, FaultyStorage

pytestmark = pytest.mark.faults


def test_no_acknowledged_event_is_lost_in_five_hundred_disks() -> None:
    """G40: an acknowledged event keeps its version, whatever becomes of what was not synced."""
    assert disks(500, power_losses) >= 500


@pytest.mark.long
def test_no_acknowledged_event_is_lost_in_twenty_thousand_disks() -> None:
    assert disks(20_000, lambda seed: power_losses(seed, steps=20)) >= 20_000


@pytest.mark.parametrize("operation", ["write", "sync", "open", "publish", "remove", "truncate"])
@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short"])
def test_an_append_that_fails_is_not_there_and_the_next_one_succeeds(operation: str, kind: str) -> None:
    for nth in range(1, 12):
        script = Script(FaultyStorage(), random.Random(SEED + nth))
        script.start()
        for _ in range(6):
            script.step()
        script.storage.arm(Failure(operation, nth, kind))  # type: ignore[arg-type]
        for _ in range(8):
            try:
                script.step()
            except (StorageError, DiskFull):
                continue
        script.storage.failures.clear()
        script.append(script.writers[0])
        script.ledger.check(script.writers[1])
        check_image(script.storage.crash(random.Random(nth)), script)


def test_a_disk_that_takes_no_index_costs_time_alone() -> None:
    storage = FaultyStorage()
    writer = opened(storage)
    storage.watch = lambda operation, path: refuse(path)
    for number in range(20):
        writer.append(append_of({"cart-1": (f"{number}",)}, {"cart-1": number}))
    assert verify(writer).wrong == []
    assert not [path for path in storage.list("topics/carts") if path.endswith(".index")]


def refuse(path: str) -> None:
    if path.endswith(".index"):
        raise DiskFull(f"no space left for {path}")
