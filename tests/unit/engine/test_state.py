"""State files: written once, merged eight by eight, cut anew for another number of buckets, never read damaged."""

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.core.columns import HASH
from penstock.core.hashing import bucket_of
from penstock.engine.state import runs as state
from penstock.engine.state.refs import RunRef
from penstock.engine.state.runs import FAN, StateWriter, apply_changes, load_state, read_arrow, read_run, rebucket, write_arrow
from penstock.errors import Damaged
from penstock.kernels.port import Changes
from penstock.storage.local import LocalStorage
from penstock.storage.memory import MemoryStorage
from penstock.storage.sealed import read_sealed

PLACE = ("open", 60)


class Sums:
    """A kernel as far as state is concerned: runs of (hash, n) that are added up."""

    merged = 0

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        self.merged += 1
        return folded(runs)


def folded(runs: Sequence[pa.Table]) -> pa.Table:
    out = pa.concat_tables(runs).group_by(HASH).aggregate([("n", "sum")]).rename_columns([HASH, "n"])
    return out.sort_by(HASH)


def run_of(*pairs: tuple[int, int]) -> pa.Table:
    hashes, numbers = zip(*sorted(pairs), strict=True)
    return pa.table({HASH: pa.array(hashes, pa.uint64()), "n": pa.array(numbers, pa.int64())})


def epoch(kernel: Any, storage: MemoryStorage, refs: list[RunRef], number: int, changes: Changes, **options: int) -> list[RunRef]:
    writer = StateWriter(storage, number, **options)  # type: ignore[arg-type]
    return [*apply_changes(kernel, storage, writer, refs, 0, "sales", changes), *writer.write()]


def total(storage: MemoryStorage, refs: Sequence[RunRef]) -> dict[int, int]:
    runs = [r for slot in load_state(storage, refs, ()).slots("open") for r in load_state(storage, refs, ()).runs("open", slot)]
    table = folded(runs)
    return dict(zip(table[HASH].to_pylist(), table["n"].to_pylist(), strict=True))


def test_runs_are_merged_eight_by_eight_level_by_level() -> None:
    kernel, storage, refs = Sums(), MemoryStorage(), list[RunRef]()
    for number in range(FAN * FAN):
        refs = epoch(kernel, storage, refs, number, Changes({PLACE: run_of((1, 1), (number + 2, 1))}))
        levels = [sum(r.level == level for r in refs) for level in range(3)]
        assert levels == [(number + 1) % FAN, (number + 1) // FAN % FAN, (number + 1) // FAN**2]
    assert total(storage, refs) == {1: FAN * FAN} | {n + 2: 1 for n in range(FAN * FAN)}
    assert kernel.merged == FAN, "seven times eight into one, and once all the way up"


class Newest:
    """A kernel whose newest run counts."""

    def __init__(self) -> None:
        self.rows = 0

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        newest: dict[int, int] = {}
        for run in runs:
            self.rows += run.num_rows
            newest |= dict(zip(run[HASH].to_pylist(), run["n"].to_pylist(), strict=True))
        return run_of(*newest.items())


def test_a_large_run_is_not_rewritten_for_few_small_ones_and_newer_runs_stay_newer() -> None:
    rng = np.random.default_rng(3)
    kernel, storage, refs, held = Newest(), MemoryStorage(), list[RunRef](), dict[int, int]()
    sizes = [200, *[2] * 20, 30, *[2] * 9, 600, *[3] * 30]
    for number, size in enumerate(sizes):
        changed = {int(h): number for h in rng.choice(1000, size, replace=False)}
        held |= changed
        refs = epoch(kernel, storage, refs, number, Changes({PLACE: run_of(*changed.items())}), small=10)
        runs = load_state(storage, refs, ()).runs("open", PLACE[1])
        found: dict[int, int] = {}
        for run in runs:
            found |= dict(zip(run[HASH].to_pylist(), run["n"].to_pylist(), strict=True))
        assert found == held
        levels = [r.level for r in refs]
        assert levels == sorted(levels, reverse=True), "what lies lower is newer"
    assert kernel.rows < 1_500, "the large runs are taken in once by a larger one, and not for every eight small ones"


def test_what_is_dropped_is_gone_and_an_addition_to_it_with_it() -> None:
    storage = MemoryStorage()
    refs = epoch(Sums(), storage, [], 0, Changes({PLACE: run_of((1, 1)), ("open", 120): run_of((2, 5))}))
    refs = epoch(Sums(), storage, refs, 1, Changes({PLACE: run_of((1, 7))}, drop={PLACE}))
    assert total(storage, refs) == {2: 5}


def test_nothing_is_written_where_nothing_changed() -> None:
    storage = MemoryStorage()
    refs = epoch(Sums(), storage, [], 0, Changes({PLACE: run_of((1, 1))}))
    files = dict(storage.files)
    assert epoch(Sums(), storage, refs, 1, Changes({PLACE: run_of((1, 1)).slice(0, 0)})) == refs
    assert storage.files == files


def cut(storage: MemoryStorage, refs: Sequence[RunRef], buckets: int, number: int) -> list[RunRef]:
    writer = StateWriter(storage, number)
    for bucket in range(buckets):
        rebucket(storage, writer, refs, "sales", bucket, buckets)
    return writer.write()


def test_another_number_of_buckets_holds_the_same_rows_each_in_its_bucket() -> None:
    rng, storage = np.random.default_rng(5), MemoryStorage()
    hashes = rng.integers(0, 2**64, 300, np.uint64)
    refs: list[RunRef] = []
    for number in range(3):
        refs = epoch(Sums(), storage, refs, number, Changes({PLACE: run_of(*((int(h), number + 1) for h in hashes))}))
    before = total(storage, refs)
    for number, buckets in enumerate((3, 2, 7, 1)):
        refs = cut(storage, refs, buckets, 10 + number)
        assert total(storage, refs) == before
        for ref in refs:
            rows = read_run(storage, ref)
            assert set(bucket_of(rows[HASH].to_numpy(), buckets).tolist()) == {ref.bucket}
            assert pc.all(pc.equal(rows[HASH], rows.sort_by(HASH)[HASH])).as_py(), "runs stay sorted by hash"
            assert ref.rows == rows.num_rows


def a_run(storage: MemoryStorage) -> RunRef:
    (ref,) = epoch(Sums(), storage, [], 0, Changes({PLACE: run_of(*((n, n) for n in range(50)))}))
    state.forget()
    return ref


def test_a_missing_state_file_is_named() -> None:
    storage = MemoryStorage()
    ref = a_run(storage)
    storage.remove(ref.file)
    with pytest.raises(Damaged, match=ref.file):
        read_run(storage, ref)


def test_a_state_file_cut_anywhere_is_refused() -> None:
    storage = MemoryStorage()
    ref = a_run(storage)
    whole = bytes(storage.files[ref.file])
    for size in range(0, len(whole), 7):
        storage.files[ref.file][:] = whole[:size]
        state.forget()
        with pytest.raises(Damaged, match=ref.file):
            read_run(storage, ref)


def test_every_flipped_bit_of_a_state_file_is_noticed() -> None:
    storage = MemoryStorage()
    ref = a_run(storage)
    content = storage.files[ref.file]
    for at in range(len(content) * 8):
        content[at // 8] ^= 1 << at % 8
        with pytest.raises(Damaged, match="is damaged"):
            read_sealed(storage, ref.file)
        content[at // 8] ^= 1 << at % 8
    assert read_run(storage, ref).num_rows == 50


def test_a_batch_that_is_not_in_the_file_is_refused() -> None:
    storage = MemoryStorage()
    with pytest.raises(Damaged):
        read_run(storage, a_run(storage)._replace(batch=9))


def test_two_attempts_of_one_task_write_two_files() -> None:
    storage = MemoryStorage()
    (one, size), (two, _) = (write_arrow(storage, "staged/3-out", [run_of((1, 1))]) for _ in range(2))
    assert one != two
    assert len(storage.files[one]) == size
    assert read_arrow(storage, one).read_all() == read_arrow(storage, two).read_all()


def test_a_file_of_no_rows_can_be_read() -> None:
    storage = MemoryStorage()
    path, _ = write_arrow(storage, "staged/3-out", [run_of((1, 1)).slice(0, 0)])
    assert read_arrow(storage, path).read_all().num_rows == 0


def test_state_files_that_stay_open_keep_no_directories_open(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    refs = [epoch(Sums(), storage, [], number, Changes({PLACE: run_of((1, 1))}))[0] for number in range(40)]  # type: ignore[arg-type]
    before = len(os.listdir("/proc/self/fd"))
    for ref in refs:
        read_run(pickle.loads(pickle.dumps(storage)), ref)  # noqa: S301  as each task gets it
    assert len(os.listdir("/proc/self/fd")) < before + 4
