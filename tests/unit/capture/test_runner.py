"""The run of a capture: it goes on by itself when the database, the disk or the broker come back, and stops for everything else."""

import threading
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from capture_scripted import USERS, Place, ScriptedEngine, Truncate, Work, Write, random_script
from capture_topics import check_journal, check_topics, said_at_ends
from penstock.capture.definition import CaptureDefinition
from penstock.capture.port import CREATE, READ, Batch, Json, Status
from penstock.capture.runner import CaptureRun, Progress
from penstock.errors import Fenced, InUse, SlotLost, Unreachable
from penstock.log.file.log import FileLog
from penstock.log.memory import MemoryLog
from penstock.log.port import Log
from penstock.storage.faulty import Failure, FaultyStorage
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.capture.records import journal_of
from penstock.testing.contracts.sink import Crash
from waiting import until

SHOP = CaptureDefinition("shop", "scripted", "script://", ())
NAMES = SHOP.names


def run_of(log: Log, engine: ScriptedEngine, fail: Callable[[str], None] = lambda point: None) -> CaptureRun:
    return CaptureRun(SHOP, log, MemoryStorage(), engine, fail=fail)


def written(log: Log, script: list[Work]) -> None:
    check_topics(log, NAMES, script)
    check_journal(log, NAMES, script)


def test_a_run_that_catches_up_ends_with_everything_written() -> None:
    log, script = MemoryLog(), random_script(Random(1), 20)
    engine = ScriptedEngine(script, Random(1))
    state = run_of(log, engine).run(catch_up=True)
    written(log, script)
    assert state.position == {"done": len(script), "steps": 0}


def test_a_run_counts_what_it_has_written_and_nothing_else() -> None:
    """A row of a copy that a change has told of is left out, a truncate is a delete of each key."""

    class Copying(ScriptedEngine):
        def next(self, wait: float) -> Batch | None:
            batch = super().next(wait)
            return replace(batch, copy=batch.transactions.xid[0] < 0) if batch else None

        def _stop(self) -> Place:
            return self.at[0] + 1, 0

    changed = Work("701:1", (Write(USERS, CREATE, 1, "new"),))
    copied = Work("snapshot:users", tuple(Write(USERS, READ, key, "old") for key in range(3)))
    script = [changed, copied, Work("702:2", (Truncate(USERS),))]
    run = run_of(MemoryLog(), Copying(script, Random(1)))
    run.run(catch_up=True)
    assert run.progress.changes == 1 + 2 + 3


def test_the_engine_is_told_what_is_durable_only_once_it_is() -> None:
    log, script, told = MemoryLog(), random_script(Random(2), 10), list[int]()

    class Looking(ScriptedEngine):
        def written(self, position: Json) -> None:
            check_journal(log, NAMES, script, whole=False)
            (said,) = [each for each in ends() if each["position"] == position]
            told.append(said["batch"])

    def ends() -> list[Json]:
        return list(said_at_ends(journal_of(log, "shop")))

    run_of(log, Looking(script, Random(2))).run(catch_up=True)
    assert told == list(range(1, len(ends()) + 1))


def test_a_database_that_is_away_is_waited_for() -> None:
    log, script = MemoryLog(), random_script(Random(3), 10)
    engine, waited = ScriptedEngine(script, Random(3), cut_off=[1, 3, 4]), list[str]()

    def seen(progress: Progress) -> None:
        if progress.waiting:
            waited.append(progress.waiting)

    CaptureRun(SHOP, log, MemoryStorage(), engine, seen).run(catch_up=True)
    written(log, script)
    assert engine.starts == 4
    assert waited == ["the script is away"] * 3


@pytest.mark.parametrize("kind", ["ENOSPC", "short"])
@pytest.mark.parametrize("nth", [1, 2, 5, 9, 14])
def test_a_full_disk_is_waited_for(nth: int, kind: str) -> None:
    script, storage = random_script(Random(nth), 6), FaultyStorage()
    failure = storage.arm(Failure("write", nth, kind))  # type: ignore[arg-type]
    log = FileLog(storage)
    run_of(log, ScriptedEngine(script, Random(nth))).run(catch_up=True)
    assert failure.met
    written(log, script)


def test_a_log_that_is_away_in_the_middle_of_a_batch_is_waited_for() -> None:
    script, points = random_script(Random(4), 6), 0

    def away(point: str) -> None:
        nonlocal points
        points += 1
        if points in (1, 4, 9):
            raise Unreachable("the broker is away")

    log = MemoryLog()
    engine = ScriptedEngine(script, Random(4))
    run_of(log, engine, away).run(catch_up=True)
    written(log, script)
    assert engine.starts == 4


def test_a_crash_of_the_run_at_any_point_is_gone_on_from() -> None:
    for nth in range(1, 12):
        script, log, left = random_script(Random(nth), 5), MemoryLog(), nth

        def crash(point: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Crash(point)

        with pytest.raises(Crash):
            run_of(log, ScriptedEngine(script, Random(1)), crash).run(catch_up=True)
        run_of(log, ScriptedEngine(script, Random(2))).run(catch_up=True)
        written(log, script)


def test_what_does_not_pass_ends_the_run_and_closes_the_engine() -> None:
    closed = threading.Event()

    class Lost(ScriptedEngine):
        def next(self, wait: float) -> Batch | None:
            raise SlotLost("the slot is gone")

        def close(self) -> None:
            closed.set()

    with pytest.raises(SlotLost):
        run_of(MemoryLog(), Lost([], Random(1))).run()
    assert closed.is_set()


def test_a_run_that_was_replaced_elsewhere_stops() -> None:
    log, script = MemoryLog(), random_script(Random(5), 5)

    def replaced(point: str) -> None:
        run_of(log, ScriptedEngine(script, Random(6))).run(catch_up=True)

    with pytest.raises(Fenced):
        run_of(log, ScriptedEngine(script, Random(5)), replaced).run(catch_up=True)
    written(log, script)


def test_a_capture_runs_once_on_a_machine() -> None:
    storage = MemoryStorage()

    class Idle(ScriptedEngine):
        def status(self) -> Status:
            return Status()

    first = CaptureRun(SHOP, MemoryLog(), storage, Idle([], Random(1)))
    runs = threading.Thread(target=first.run)
    runs.start()
    try:
        assert until(lambda: _in_use(storage), 30)
    finally:
        first.stop()
        runs.join(30)
    assert not runs.is_alive()
    CaptureRun(SHOP, MemoryLog(), storage, ScriptedEngine([], Random(1))).run(catch_up=True)


def _in_use(storage: MemoryStorage) -> bool:
    try:
        CaptureRun(SHOP, MemoryLog(), storage, ScriptedEngine([], Random(1))).run(catch_up=True)
    except InUse:
        return True
    return False


def test_progress_counts_what_was_written() -> None:
    script, seen = random_script(Random(7), 10, truncates=0), list[Progress]()
    CaptureRun(SHOP, MemoryLog(), MemoryStorage(), ScriptedEngine(script, Random(7)), seen.append).run(catch_up=True)
    assert seen[-1].changes == sum(len(work.steps) for work in script)
    assert seen[-1].tables == 3
    assert seen[-1].behind is not None
    assert seen[-1].status.caught_up
