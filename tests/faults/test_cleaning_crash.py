"""A cleaning that is cut short leaves the partition as it was, or as it should be."""

import os
import random
import signal
from pathlib import Path

import pytest

from amount import cases
from faults.cleaning_script import Script, check_disk, crashes, reopened
from faults.seeds import SEED, disks
from penstock.errors import DiskFull, StorageError
from penstock.storage.faulty import Failure, FaultyStorage, Operation
from penstock.storage.local import LocalAppender, LocalStorage
from penstock.storage.memory import MemoryStorage

pytestmark = pytest.mark.faults


def test_a_power_loss_at_any_step_of_a_cleaning_loses_nothing_that_must_stay() -> None:
    assert disks(cases(250), lambda seed: crashes(seed, share=0.2, appends=12)) >= cases(250)


@pytest.mark.long
def test_power_losses_at_every_step_of_many_cleanings_lose_nothing() -> None:
    assert disks(50_000, crashes) >= 50_000


def test_a_second_power_loss_while_the_next_cleaning_tidies_up_loses_nothing() -> None:
    assert sum(crash_twice(seed, every=7) for seed in range(SEED, SEED + 4)) > 100


@pytest.mark.long
def test_second_power_losses_after_any_first_one_lose_nothing() -> None:
    assert sum(crash_twice(seed, every=1) for seed in range(SEED, SEED + 20)) > 10_000


def crash_twice(seed: int, every: int) -> int:
    """The power is lost in a cleaning, and again in the one that tidies up. How many disks were looked at."""
    print(f"PENSTOCK_SEED={seed}")
    storage, rng = FaultyStorage(), random.Random(seed)
    script = Script(seed, storage)
    script.fill(12)
    script.about_to_clean()
    disks: list[MemoryStorage] = []
    storage.watch = lambda operation, path: disks.append(storage.crash(rng))
    script.topic.clean()
    looked = 0
    for disk in disks[::every]:
        second = reopened(disk)
        seconds: list[MemoryStorage] = []
        second.watch = lambda operation, path, second=second, seconds=seconds: seconds.append(second.crash(rng))
        script.log(second).topic("t").clean()
        for left in seconds[:: (every + 1) // 2]:
            check_disk(script, left)
            looked += 1
    return looked


@pytest.mark.parametrize("operation", ["open", "write", "sync", "publish", "remove"])
@pytest.mark.parametrize("kind", ["EIO", "ENOSPC"])
def test_an_error_at_any_step_of_a_cleaning_is_told_and_harms_nothing(operation: Operation, kind: str) -> None:
    failed = 0
    for nth in range(1, 12):
        storage = FaultyStorage()
        script = Script(SEED + nth, storage)
        script.fill(20)
        script.about_to_clean()
        failure = storage.arm(Failure(operation, nth, kind))  # type: ignore[arg-type]
        try:
            script.topic.clean()
        except (StorageError, DiskFull):
            failed += 1
        storage.failures.clear()
        assert failure.met <= 1
        check_disk(script, storage)
    assert failed >= 1


class Deadly(LocalStorage):
    """Kills its process before the nth step that changes the disk."""

    left = 0

    def step(self) -> None:
        Deadly.left -= 1
        if Deadly.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def append(self, path: str) -> LocalAppender:
        self.step()
        made = super().append(path)
        appender = DeadlyAppender(self, path, os.dup(made.fileno()))
        made.close()
        return appender

    def publish(self, path: str, data: bytes) -> None:
        self.step()
        super().publish(path, data)

    def remove(self, path: str, durable: bool = True) -> None:
        self.step()
        super().remove(path, durable)


class DeadlyAppender(LocalAppender):
    def write(self, data: bytes) -> None:
        self._storage.step()  # type: ignore[attr-defined]
        super().write(data)

    def sync(self) -> None:
        self._storage.step()  # type: ignore[attr-defined]
        super().sync()


def killed_cleaning(script: Script, root: Path, nth: int) -> bool:
    """Cleans in a process that is killed before its nth step; whether it was."""
    pid = os.fork()
    if not pid:
        try:
            Deadly.left = nth
            script.log(Deadly(root, sync=False)).topic("t").clean()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def kill_everywhere(root: Path, seed: int) -> int:
    """A cleaner killed before each of its steps, rows coming between."""
    print(f"PENSTOCK_SEED={seed}")
    script = Script(seed, LocalStorage(root, sync=False))
    script.fill(15)
    kills = nth = 0
    reader = script.log().topic("t")
    while True:
        nth += 1
        script.fill(2)
        script.about_to_clean()
        if not killed_cleaning(script, root, nth):
            break
        kills += 1
        script.model.check(reader)
        script.model.check(script.log().topic("t"))
    script.model.check(reader)
    return kills


def test_a_cleaner_killed_before_any_of_its_steps_loses_nothing(tmp_path: Path) -> None:
    assert kill_everywhere(tmp_path / "log", SEED) >= 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEED, SEED + 40))
def test_cleaners_killed_again_and_again_lose_nothing(tmp_path: Path, seed: int) -> None:
    assert kill_everywhere(tmp_path / "log", seed) >= 10
