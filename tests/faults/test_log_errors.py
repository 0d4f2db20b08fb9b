"""The disk fails at the Nth call: nothing acknowledged is lost, nothing refused is stored, and writing goes on afterwards."""

import random

import pytest

from faults.log_ledger import SPEC, Ledger, Script, check_image, open_log, rows_of
from faults.seeds import SEED
from penstock.errors import DiskFull, StorageError
from penstock.log.port import Sender
from penstock.storage.faulty import Failure, FaultyStorage, Kind, Operation

pytestmark = pytest.mark.faults
OPERATIONS: tuple[Operation, ...] = ("open", "write", "sync", "truncate", "publish", "remove")


def run(seed: int, failure: Failure, steps: int = 14) -> Script:
    """A script that meets the failure. Errors are answers, not the end; a lasting failure is repaired after a while."""
    print(f"PENSTOCK_SEED={seed} {failure}")
    script = Script(FaultyStorage(), random.Random(seed))
    script.start()
    script.storage.arm(failure)
    for at in range(steps):
        if at == steps * 2 // 3:
            script.storage.failures.clear()
        try:
            script.step()
        except (StorageError, DiskFull):
            if failure.met < 3:
                script.topic.ends()  # readers go on
    return script


def check(script: Script) -> None:
    for topic in (script.topic, open_log(script.storage).topic("t")):
        script.ledger.check(topic)
    script.append(stamped=True)
    script.append(stamped=False)
    script.ledger.check(script.topic)
    script.ledger.unknown += script.ledger.refused  # the error said "not stored"; power was lost before that was durable
    script.ledger.refused = []
    for image in script.storage.images(script.rng):
        check_image(image, script)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for a while"])
@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_error_at_any_call_costs_that_append_alone(operation: Operation, kind: Kind, forever: bool) -> None:
    nth, met = 1, True
    while met:
        failure = Failure(operation, nth, kind, forever)
        check(run(SEED, failure))
        nth, met = nth + 1, failure.met > 0
    assert nth > 2 or operation == "truncate", "the failure was never met"


def torn() -> tuple[FaultyStorage, Ledger]:
    """A disk with two acknowledged records and half a third one behind them."""
    storage = FaultyStorage()
    topic = open_log(storage).create(SPEC)
    ledger = Ledger({id: topic.append(0, rows_of([id])).base for id in (1, 2)})
    directory = f"topics/t/{topic.id}/0"
    [path] = [f"{directory}/{name}" for name in storage.list(directory) if name.endswith(".log")]
    appender = storage.append(path)
    appender.write(bytes(storage.read(path))[128:300])
    appender.sync()
    return storage, ledger


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_error_while_a_torn_tail_is_repaired_hides_nothing_and_the_repair_is_done_later(operation: Operation, nth: int) -> None:
    storage, ledger = torn()
    storage.arm(Failure(operation, nth))
    ledger.check(open_log(storage).topic("t"))
    try:
        ledger.acked[3] = open_log(storage).topic("t").append(0, rows_of([3])).base
    except StorageError:
        ledger.refused.append(3)
    storage.failures.clear()
    ledger.acked[4] = open_log(storage).topic("t").append(0, rows_of([4])).base
    ledger.check(open_log(storage).topic("t"))
    assert open_log(storage).topic("t").describe()["torn_bytes_cut"] == 172


def test_a_full_disk_is_told_as_such_and_writing_goes_on_by_itself() -> None:
    script = Script(FaultyStorage(), random.Random(SEED))
    script.start()
    script.append(stamped=True)
    for kind in ("ENOSPC", "short"):
        script.storage.failures = [Failure("write", 1, kind, forever=True)]  # type: ignore[arg-type]
        for _ in range(5):
            with pytest.raises(DiskFull):
                script.append(stamped=True)
            script.ledger.check(script.topic)
        script.storage.failures = []
        script.append(stamped=True)
        script.ledger.check(open_log(script.storage).topic("t"))


def test_a_failed_sync_is_not_tried_again_on_the_same_file() -> None:
    script = Script(FaultyStorage(), random.Random(SEED))
    script.start()
    script.append(stamped=True)
    synced: list[str] = []
    script.storage.watch = lambda operation, path: synced.append(path) if operation == "sync" else None
    script.storage.arm(Failure("sync"))
    with pytest.raises(StorageError):
        script.append(stamped=True)
    [failed] = synced
    for _ in range(3):
        script.append(stamped=True)
    assert failed not in synced[1:]
    script.ledger.check(script.topic)


def test_other_processes_leave_a_failed_segment_too() -> None:
    script = Script(FaultyStorage(), random.Random(SEED))
    script.start()
    other = open_log(script.storage).topic("t")
    assert other.append(0, rows_of([10_001])).base == 0
    script.ledger.acked[10_001] = 0
    script.append(stamped=True)
    script.storage.arm(Failure("sync"))
    with pytest.raises(StorageError):
        script.append(stamped=True)
    synced: list[str] = []
    script.storage.watch = lambda operation, path: synced.append(path) if operation == "sync" else None
    script.ledger.acked[10_002] = other.append(0, rows_of([10_002]), sender=Sender("other", 0, 0)).base
    assert all("00000000000000000000-00000000" not in path for path in synced)
    script.ledger.check(script.topic)
