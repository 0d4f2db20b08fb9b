"""Power loss: what was acknowledged is there, whatever became of the bytes that were not synced."""

import random

import pyarrow as pa
import pytest

from faults.log_ledger import Script, check_image, open_log, power_losses, reopened, rows_of
from faults.seeds import SEED, disks
from penstock.errors import Damaged
from penstock.log.port import TopicSpec
from penstock.storage.faulty import FaultyStorage
from penstock.storage.memory import MemoryStorage

pytestmark = pytest.mark.faults


def test_no_acknowledged_record_is_lost_in_two_thousand_disks() -> None:
    """G: an acknowledged record survives a power loss."""
    assert disks(2_000, power_losses) >= 2_000


@pytest.mark.long
def test_no_acknowledged_record_is_lost_in_fifty_thousand_disks() -> None:
    assert disks(50_000, lambda seed: power_losses(seed, steps=20)) >= 50_000


def test_a_second_power_loss_while_the_first_is_repaired_loses_nothing() -> None:
    looked = 0
    for seed in range(SEED, SEED + 6):
        print(f"PENSTOCK_SEED={seed}")
        rng = random.Random(seed)
        script = Script(FaultyStorage(), rng)
        script.start()
        for _ in range(8):
            script.step()
        script.in_flight = None
        looked += crash_twice(script, rng)
    assert looked >= 100


def crash_twice(script: Script, rng: random.Random) -> int:
    """Crashes in the middle of an append, and again at every step of the repair that follows."""
    looked = 0

    def crash(operation: str, path: str) -> None:
        nonlocal looked
        second = reopened(script.storage.crash(rng))

        def crash_again(operation: str, path: str) -> None:
            nonlocal looked
            check_image(second.crash(rng), script)
            looked += 1

        second.watch = crash_again
        ids = [script.next_id + 500]
        script.ledger.unknown += ids
        open_log(second).topic("t").append(0, rows_of(ids))
        second.watch = None

    script.storage.watch = crash
    script.append(stamped=True)
    script.storage.watch = None
    return looked


def test_a_topic_that_promises_less_is_cut_where_the_disk_tore_it_or_says_that_it_is_damaged() -> None:
    for seed in range(SEED, SEED + 40):
        rng = random.Random(seed)
        storage = FaultyStorage()
        topic = open_log(storage).create(TopicSpec("t", durability="os"))
        values = [f"{seed}-{i}".encode() for i in range(10)]
        for value in values:
            topic.append(0, raw(value))
        for image in storage.images(rng):
            check_prefix(image, values)


def check_prefix(image: MemoryStorage, values: list[bytes]) -> None:
    topic = open_log(image).topic("t")
    try:
        found = [v for _, rows in topic.read(0) for v in rows.column("value").to_pylist()]
    except Damaged:
        return
    assert found == values[: len(found)]
    topic.append(0, raw(b"more"))
    assert [v for _, rows in topic.read(0) for v in rows.column("value").to_pylist()] == [*found, b"more"]


def raw(value: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([value], pa.binary())})
