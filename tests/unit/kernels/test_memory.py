"""The runner in memory: levels of runs, buckets that change, epochs that are lost."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.core.columns import HASH
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import Changes, Prepared, State, Stepped


class Collects:
    """Keeps every row in slot 0 and gives the state's rows back when the frontier says so."""

    needs_position, gives_position = False, True

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        return Prepared(rows)

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        held = state.runs("rows", 0)
        changes = Changes({("rows", 0): rows[0]} if rows[0] is not None and rows[0].num_rows else {})
        if frontiers[0] > 0:
            changes.drop.add(("rows", 0))
        return Stepped(pa.concat_tables([table(), *held]) if frontiers[0] > 0 else table(), changes)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(runs)

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        return None


def table(*hashes: int) -> pa.Table:
    return pa.table({HASH: pa.array(hashes, pa.uint64())})


def hashes(rows: pa.Table) -> list[int]:
    return rows[HASH].to_pylist()


def test_eight_runs_of_a_level_become_one_of_the_next() -> None:
    runner = MemoryRunner(Collects())
    for i in range(17):
        runner.epoch([[table(i)]], [0])
    assert [run.num_rows for run in runner.state(0).runs("rows", 0)] == [8, 8, 1]
    assert hashes(runner.epoch([[]], [1]).rows) == list(range(17))


def test_runs_are_merged_up_through_the_levels_oldest_first() -> None:
    runner = MemoryRunner(Collects(), fanout=2)
    for i in range(7):
        runner.epoch([[table(i)]], [0])
    assert [hashes(run) for run in runner.state(0).runs("rows", 0)] == [[0, 1, 2, 3], [4, 5], [6]]


def test_a_run_changes_nothing_before_it_is_committed() -> None:
    runner = MemoryRunner(Collects())
    runner.epoch([[table(1)]], [0])
    lost = runner.run([[table(2)]], [1])
    assert hashes(lost.rows) == [1]
    assert [hashes(run) for run in runner.state(0).runs("rows", 0)] == [[1]]
    assert runner.state(0).frontiers == (0,)


def test_a_new_number_of_buckets_moves_every_row_to_where_its_hash_belongs() -> None:
    runner = MemoryRunner(Collects(), buckets=2)
    all_of_them = [int(h) for h in np.random.default_rng(0).integers(0, 2**64, 100, np.uint64)]
    runner.epoch([[table(*all_of_them)]], [0])
    runner.rebucket(5)
    parts = [sorted(h for run in runner.state(b).runs("rows", 0) for h in hashes(run)) for b in range(5)]
    assert all(a[-1] < b[0] for a, b in pairwise(parts))
    runner.rebucket(1)
    assert sorted(hashes(runner.epoch([[]], [1]).rows)) == sorted(all_of_them)
