"""Is the harness worth its word? Each test plants one bug in the event store and shows that it is caught."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from faults.events_ledger import append_of, opened, power_losses
from penstock.errors import PenstockError, StorageError
from penstock.events.event import Append, StoredEvent, Written
from penstock.events.on_log import judge, run_files
from penstock.events.on_log.index import PartitionIndex
from penstock.events.on_log.judge import Session
from penstock.events.on_log.recent import Recent
from penstock.events.on_log.run import Run
from penstock.events.on_log.verifying import verify
from penstock.log.file.topic import FileTopic
from penstock.log.intake.checked import CheckedRows
from penstock.log.port import Appended, Chunk, End, Judge
from penstock.storage.faulty import FaultyStorage
from penstock.storage.memory import MemoryStorage

pytestmark = pytest.mark.faults
Patch = pytest.MonkeyPatch
Since = Callable[[int], Iterator[Chunk]]
CAUGHT = (AssertionError, PenstockError)


def caught() -> bool:
    """Whether a few scripts of two writers show the bug, some of them after a power loss."""
    for seed in range(6):
        try:
            power_losses(seed, steps=20, share=0.03)
        except CAUGHT:
            return True
    return False


def test_the_store_without_a_planted_bug_passes() -> None:
    assert not caught()


def test_a_check_outside_the_lock_is_caught(monkeypatch: Patch) -> None:
    """The version is what was known before the lock was taken."""
    monkeypatch.setattr(PartitionIndex, "take", lambda self, end, since: None)
    assert caught()


def test_an_index_that_is_ahead_of_the_log_is_caught(monkeypatch: Patch) -> None:
    """It believes what was written into its files although the log does not hold it."""
    assert believed() == []
    monkeypatch.setattr(PartitionIndex, "fits", lambda self, run, first: True)
    assert believed()


def believed() -> list[str]:
    """What is wrong with a log that lost its end, and has grown again, while the files of its index stayed."""
    lost, grown = FaultyStorage(), FaultyStorage()
    for disk, stream, files in ((lost, "cart-1", True), (grown, "cart-2", False)):
        disk.watch = None if files else refuse_files
        writer = opened(disk)
        for number in range(30):
            writer.append(append_of({"cart-1" if number < 9 else stream: (f"{number}",)}))
    left = contents(grown)
    place = next(path for path in left if path.endswith(".log")).rpartition("/")[0]
    left |= {f"{place}/{path.rpartition('/')[2]}": data for path, data in contents(lost).items() if path.endswith(".index")}
    disk_after = MemoryStorage(left)
    opened(disk_after).append(append_of({"cart-1": ("after",)}))
    return verify(opened(disk_after)).wrong


def refuse_files(operation: str, path: str) -> None:
    if path.endswith(".index"):
        raise StorageError(f"cannot {operation} {path}")


def contents(storage: FaultyStorage, path: str = "topics") -> dict[str, bytes]:
    """The files below a directory."""
    names = storage.list(path)
    if not names:
        return {path: bytes(storage.read(path))} if "." in path else {}
    return {name: data for found in (contents(storage, f"{path}/{name}") for name in names) for name, data in found.items()}


def test_a_duplicate_id_that_is_given_a_new_version_is_caught(monkeypatch: Patch) -> None:
    def never(appends: Sequence[Append], there: Sequence[Sequence[StoredEvent]]) -> bool:
        return False

    monkeypatch.setattr(judge, "already", never)
    assert caught()


def test_ids_that_are_forgotten_once_they_are_in_a_file_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Run, "offsets_of", lambda self, key: [])
    assert caught()


def test_versions_that_are_not_checked_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(judge, "judge", lambda stream, expected, actual: None)
    assert caught()


def test_events_of_one_group_that_do_not_see_each_other_are_caught(monkeypatch: Patch) -> None:
    real = Session.take

    def blind(self: Session, appends: Sequence[Append]) -> list[Written]:
        self.heads.clear()
        return real(self, appends)

    monkeypatch.setattr(Session, "take", blind)
    writer = opened(FaultyStorage())
    session = Session("carts", 0, writer.index(0), End(0, 0), lambda start: iter(()), 0)
    found = [session.take(append_of({"cart-1": (id,)}))[0].version for id in ("a", "b")]
    assert found != [1, 2]


def test_an_append_that_is_cut_into_frames_is_caught(monkeypatch: Patch) -> None:
    """Each event in a frame of its own: a power loss leaves a part."""
    append_judged = FileTopic.append_judged

    def one_by_one(self: FileTopic, partition: int, ask: Judge) -> Appended | None:
        kept: list[CheckedRows] = []

        def first(end: End, since: Since) -> CheckedRows | None:
            rows = ask(end, since)
            kept.extend([rows.slice(at, 1) for at in range(rows.num_rows)] if isinstance(rows, CheckedRows) else [])
            return kept[0] if kept else None

        done = append_judged(self, partition, first)
        for row in kept[1:]:
            append_judged(self, partition, partial(given, row))
        return done

    monkeypatch.setattr(FileTopic, "append_judged", one_by_one)
    assert caught()


def given(rows: CheckedRows, end: End, since: Since) -> CheckedRows:
    return rows


def test_an_index_that_skips_what_others_appended_is_caught(monkeypatch: Patch) -> None:
    real = Recent.feed

    def half(self: Recent, chunk: Chunk) -> None:
        if chunk.frame.base % 3:
            real(self, chunk)
        self.next = max(self.next, chunk.frame.end)

    monkeypatch.setattr(Recent, "feed", half)
    assert caught()


def test_files_that_lose_streams_when_they_are_merged_are_caught(monkeypatch: Patch) -> None:
    real = run_files.merged
    monkeypatch.setattr(run_files, "merged", lambda runs: real(runs[1:]) if len(runs) > 1 else real(runs))
    storage = FaultyStorage()
    writer = opened(storage)
    for number in range(60):
        writer.append(append_of({f"cart-{number % 3 + 1}": (f"{number}",)}))
    assert verify(writer).wrong
