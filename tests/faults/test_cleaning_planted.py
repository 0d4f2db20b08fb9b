"""Is the harness worth its word? Each test plants one bug in cleaning and shows that it is caught."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from faults.cleaning_script import crashes
from faults.test_cleaning_races import SPECS, Race
from faults.test_log_planted import CAUGHT, DiskWithoutSync
from penstock.core.columns import BEFORE
from penstock.core.hashing import hash64
from penstock.core.time import NEVER
from penstock.errors import NotFound
from penstock.log.cleaning import compaction, partition, retention, rewriting
from penstock.log.cleaning.rewriting import Rewriter
from penstock.log.cleaning.sources import Closed
from penstock.log.file import reader, topic
from penstock.log.file.manifest import Manifest
from penstock.log.port import Chunk, Frame
from penstock.log.producers import Producers
from penstock.storage.faulty import FaultyStorage
from unit.log.test_compaction import kept, naive, random_keys, tombstones_keep_their_time
from unit.log.test_compaction import (
    test_a_read_that_began_before_a_cleaning_goes_on_behind_it_without_a_row_twice as goes_on,
)

pytestmark = pytest.mark.faults
Patch = pytest.MonkeyPatch


def caught(share: float = 0.0, disk: type[FaultyStorage] = FaultyStorage) -> bool:
    """Whether a few random partitions show the bug; share: of the steps of their cleanings, how many the power is lost at."""
    for seed in range(8):
        try:
            crashes(seed, share, 15, disk)
        except CAUGHT:
            return True
    return False


def test_cleaning_without_a_planted_bug_passes() -> None:
    assert not caught()
    assert tombstones_keep_their_time()


def test_a_mark_that_is_dropped_is_caught(monkeypatch: Patch) -> None:
    real = Rewriter.add
    monkeypatch.setattr(Rewriter, "add", lambda self, frame, chunk, keep: real(self, replace(frame, mark=NEVER), chunk, keep))
    assert caught()


def test_a_mark_that_moves_is_caught(monkeypatch: Patch) -> None:
    def later(self: Rewriter, frame: Frame, chunk: Chunk | None, keep: object) -> object:
        spec, self._spec = self._spec, replace(self._spec, writer="flow")  # as if rows brought their watermarks along
        try:
            yield from list(real(self, frame, chunk, keep))
        finally:
            self._spec = spec

    real = Rewriter.add
    monkeypatch.setattr(Rewriter, "add", later)
    assert caught()


def test_the_greatest_earlier_time_that_is_dropped_is_caught(monkeypatch: Patch) -> None:
    real = Rewriter.with_own

    def without(self: Rewriter, rows: rewriting.Rows, frame: Frame) -> pa.Table:
        table = real(self, rows, frame)
        return table.drop_columns([BEFORE]) if BEFORE in table.column_names else table

    monkeypatch.setattr(Rewriter, "with_own", without)
    assert caught()


def test_a_header_that_forgets_what_was_before_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(partition, "tail_before", lambda source: (NEVER, NEVER, NEVER, NEVER))
    assert caught()


def test_old_files_that_go_before_the_manifest_is_there_are_caught(monkeypatch: Patch) -> None:
    real = partition.Cleaning.publish

    def publish(self: partition.Cleaning, made: Manifest, state: Closed, covered: int) -> None:
        for source in state.sources[:covered]:
            if not source.part:
                self._place.storage.remove(self._place.log(source.segment.name))
        real(self, made, state, covered)

    monkeypatch.setattr(partition.Cleaning, "publish", publish)
    assert caught(0.3)


def test_new_files_that_are_not_synced_are_caught() -> None:
    assert caught(0.3, DiskWithoutSync)


def test_keys_that_are_merged_by_their_hash_alone_are_caught(monkeypatch: Patch) -> None:
    def by_hash(keys: pa.Array) -> npt.NDArray[np.int64]:
        return (hash64([keys], len(keys)) % np.uint64(7)).astype(np.int64)

    monkeypatch.setattr(compaction, "numbered", by_hash)
    assert kept(random_keys(1)) != naive(random_keys(1))


def test_an_older_row_that_is_kept_instead_of_the_newer_is_caught(monkeypatch: Patch) -> None:
    real = compaction.together

    def reversed_(found: list[compaction.Keyed]) -> compaction.Keyed:
        keyed = real(found)
        back = slice(None, None, -1)
        keys = keyed.keys.take(pa.array(np.arange(len(keyed.keys))[back]))
        return compaction.Keyed(keys, keyed.places[back], keyed.offsets[back], keyed.deletes[back])

    monkeypatch.setattr(compaction, "together", reversed_)
    assert caught()


def test_deletes_that_go_before_their_time_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(partition.OldEnough, "__call__", lambda self, offsets: np.ones(len(offsets), np.bool_))
    assert not tombstones_keep_their_time()


def test_deletes_that_never_go_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(partition.OldEnough, "__call__", lambda self, offsets: np.zeros(len(offsets), np.bool_))
    assert not tombstones_keep_their_time()


def test_producers_that_are_forgotten_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(partition, "senders_behind", lambda *args: Producers())
    assert caught(0.1)


def test_retention_that_takes_what_is_young_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(retention, "over_age", lambda source, spec: NEVER if spec.retain else 2**62)
    assert caught()


def test_offsets_that_are_counted_instead_of_kept_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Rewriter, "with_own", lambda self, rows, frame: rows.table)
    assert caught()


def test_a_reader_that_takes_a_file_that_is_gone_for_the_end_is_caught(monkeypatch: Patch, tmp_path: Path) -> None:
    real = reader.PartitionReader.stretches

    def ending(self: reader.PartitionReader, start: int, stop: int) -> object:
        try:
            yield from real(self, start, stop)
        except NotFound:
            return

    monkeypatch.setattr(reader.PartitionReader, "stretches", ending)
    with pytest.raises(AssertionError):
        Race(tmp_path, SPECS["rewritten"]).run(3_000)


def test_a_reader_that_gives_rows_twice_after_a_cleaning_is_caught(monkeypatch: Patch, tmp_path: Path) -> None:
    goes_on(tmp_path / "right")
    monkeypatch.setattr(topic, "behind", lambda spec, chunk, after: chunk)
    with pytest.raises(AssertionError):
        goes_on(tmp_path / "wrong")
