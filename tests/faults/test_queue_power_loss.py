"""G22: what a queue on the log took is lent until it is acknowledged, and not after, whatever becomes of the disk."""

import random

import pytest

from faults.queue_ledger import Script, check, failing, power_losses
from faults.seeds import SEED, disks
from penstock.errors import Damaged
from penstock.queue.on_log import shared_journal
from penstock.storage.faulty import Failure, FaultyStorage, Kind, Operation
from penstock.storage.memory import MemoryStorage

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def _short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_journal, "ROLL", 1_500)  # so that new files are begun in every run


def test_no_message_is_lost_or_doubled_in_a_thousand_disks() -> None:
    assert disks(1_000, power_losses) >= 1_000


@pytest.mark.long
def test_no_message_is_lost_or_doubled_in_thirty_thousand_disks() -> None:
    assert disks(30_000, lambda seed: power_losses(seed, steps=60)) >= 30_000


@pytest.mark.parametrize("operation", ["write", "sync", "publish", "truncate", "open"])
@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short"])
def test_a_disk_that_fails_costs_a_call_and_no_message(operation: Operation, kind: Kind) -> None:
    met = 0
    for seed in range(SEED, SEED + 12):
        rng = random.Random(seed)
        script = Script(FaultyStorage(), rng)
        script.start()
        for _ in range(10):
            script.step()
        failure = script.storage.arm(Failure(operation, rng.randint(1, 4), kind))
        for _ in range(15):
            failing(script, script.step)
        met += failure.met
        script.storage.failures.clear()
        for _ in range(5):
            script.step()
        for image in script.storage.images(rng):
            check(image, script)
    assert met >= 6 or operation in ("publish", "truncate"), "the disk never failed"


def test_bytes_that_were_acknowledged_and_are_not_what_was_written_are_damage() -> None:
    script = Script(FaultyStorage(), random.Random(SEED))
    script.start()
    for _ in range(30):
        script.step()
    files = {path: bytes(file.content) for path, file in script.storage._files.items()}
    [journal] = [path for path in files if "queues/q/journal" in path]
    told = 0
    for at in range(0, len(files[journal]), 7):
        content = bytearray(files[journal])
        content[at] ^= 0x40
        try:
            check(MemoryStorage({**files, journal: bytes(content)}), script)
        except Damaged:
            told += 1
        except AssertionError:
            last = _last_record(files[journal])
            assert at >= last, f"byte {at} of {len(content)} was changed, and nothing was said"
    assert told > len(files[journal]) // 7 // 2


def _last_record(data: bytes) -> int:
    """Where the last record that was synced begins: nothing behind it can prove that it was whole."""
    return data.rfind(b"PNSj", 0, len(data))
