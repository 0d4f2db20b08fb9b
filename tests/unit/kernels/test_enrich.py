"""Enrich: each row with the version of a table that it sees, whatever the cut."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from amount import cases
from penstock import plan
from penstock.core.change import Op
from penstock.core.columns import APPEND_TIME, HASH, OP, POSITION, TIME, WATERMARK
from penstock.core.time import FOREVER, NEVER, moment
from penstock.kernels.asof.answered_rows import ANSWERED
from penstock.kernels.asof.enrich import EnrichKernel
from penstock.kernels.asof.versions import VERSIONS
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import State, position_needed
from penstock.kernels.registry import kernel_of
from penstock.kernels.waiting_rows import WaitingRows
from unit.kernels.cutting import Outcome, counted
from unit.kernels.enriching import (
    COLLIDING,
    MICRO,
    OUTPUT,
    PLAIN,
    STREAM,
    TABLE,
    Epoch,
    Row,
    Specification,
    Version,
    definitions,
    epoch_of,
    holds,
    kernel,
    ran,
    rows_table,
    some_epochs,
    told,
    versions_table,
)
from unit.kernels.sending import folded


@given(definitions(), some_epochs(), st.sampled_from([1, 2, 7]), st.sampled_from([2, 3, 8]))
@settings(max_examples=120, deadline=None)
def test_any_cut_gives_each_row_the_version_it_sees(definition: plan.Enrich, epochs: list[Epoch], width: int, fanout: int) -> None:
    holds(kernel(definition, width), definition, epochs, fanout)


@given(definitions(), some_epochs([COLLIDING]))
@settings(max_examples=cases(25), deadline=None)
def test_keys_that_share_a_hash_stay_apart(definition: plan.Enrich, epochs: list[Epoch]) -> None:
    holds(kernel(definition), definition, epochs)


@given(some_epochs())
@settings(max_examples=80, deadline=None)
def test_corrected_for_long_enough_it_is_the_as_of_join_of_everything(epochs: list[Epoch]) -> None:
    definition = replace(PLAIN, correct=True, allowed=1000 * MICRO)
    given = [replace(epoch, mark=NEVER) for epoch in epochs]
    whole = Specification(definition)
    whole.take(Epoch([r for e in epochs for r in e.rows], [v for e in epochs for v in e.versions]))
    assert counted(folded(ran(kernel(definition), given), [POSITION])) == counted(whole.output())


class SeesOneInstantTooEarly(EnrichKernel):
    """A version that comes late changes rows that were answered."""

    def step(self, state: State, rows: Any, frontiers: Sequence[int]) -> Any:
        return super().step(replace(state, answered=state.answered - 1), rows, frontiers)


class ForgetsTheMark(EnrichKernel):
    def step(self, state: State, rows: Any, frontiers: Sequence[int]) -> Any:
        return super().step(replace(state, answered=NEVER), rows, frontiers)


class TooOldTooEarly(EnrichKernel):
    def _too_old(self, rows: pa.Table) -> Any:
        old = rows.set_column(rows.column_names.index(TIME), TIME, pa.array(rows[TIME].to_numpy() - 1))
        return super()._too_old(old)


class PrunesWhatIsStillSeen(EnrichKernel):
    def _horizon(self, state: State, now: int) -> int:
        return super()._horizon(state, now) + 1


class PrunesForCorrectionsAsForRowsToCome(EnrichKernel):
    def _horizon(self, state: State, now: int) -> int:
        return super()._horizon(replace(state, answered=FOREVER), now)


class DropsAnswersTooEarly(EnrichKernel):
    def _remember(self, state: State, rows: Any, least: int, changes: Any) -> None:
        super()._remember(state, rows, least + 1, changes)


class NullFindsNull(EnrichKernel):
    def prepare(self, port: int, rows: pa.Table) -> Any:
        name = "key" if port else "k"
        return super().prepare(port, rows.set_column(rows.column_names.index(name), name, rows[name].fill_null("none")))


SHORT = replace(PLAIN, history=1 * MICRO)
BUGS: list[tuple[type[EnrichKernel], Any]] = [
    (SeesOneInstantTooEarly, definitions()),
    (ForgetsTheMark, definitions()),
    (TooOldTooEarly, definitions()),
    (PrunesWhatIsStillSeen, st.just(SHORT)),
    (PrunesForCorrectionsAsForRowsToCome, st.just(replace(SHORT, correct=True, allowed=2 * MICRO))),
    (DropsAnswersTooEarly, definitions()),
    (NullFindsNull, definitions()),
]


@pytest.mark.parametrize(("bug", "given_definitions"), BUGS)
def test_a_wrong_kernel_is_caught(bug: type[EnrichKernel], given_definitions: Any) -> None:
    @given(given_definitions, some_epochs())
    @settings(max_examples=2000, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    def found_out(definition: plan.Enrich, epochs: list[Epoch]) -> None:
        wait = 0 if definition.wait is None else definition.wait // MICRO
        made = bug(definition, STREAM, TABLE, OUTPUT, held=WaitingRows("held", wait, 2, 2), slot_us=1)
        holds(made, definition, epochs)

    with pytest.raises((AssertionError, KeyError)):
        found_out()


def test_a_row_sees_the_version_that_held_at_its_time_and_a_delete_is_one() -> None:
    runner = MemoryRunner(kernel())
    given = [Version(10, v=1), Version(20, v=None, number=1), Version(30, v=3, number=2), Version(0, "b", v=9, number=3)]
    out = epoch_of(runner, [Row(t, number=t) for t in (9, 10, 19, 20, 29, 30)], given)
    assert told(out.rows) == [(9, None), (10, 1), (19, 1), (20, None), (29, None), (30, 3)]
    assert out.fates == {"answered": 6, "version": 4}
    assert out.answered == 31


def test_of_one_instant_the_later_version_counts() -> None:
    given = [Version(10, v=1, number=5), Version(10, v=2, number=3), Version(10, v=3, number=4, partition=0)]
    assert told(epoch_of(MemoryRunner(kernel()), [Row(10)], given).rows) == [(10, 1)]


def test_a_version_that_comes_late_is_seen_by_rows_after_those_that_were_answered() -> None:
    runner = MemoryRunner(kernel())
    epoch_of(runner, [Row(10)], [Version(0, v=1)])
    late = epoch_of(runner, [Row(10, number=1), Row(11, number=2)], [Version(5, v=2, number=1)])
    assert told(late.rows) == [(10, 1), (11, 2)]


def test_the_version_that_was_used_is_told() -> None:
    (row,) = epoch_of(MemoryRunner(kernel()), [Row(10)], [Version(4, v=1, number=12, partition=3)]).rows.to_pylist()
    assert (row["since"], row["place"]) == (moment(4), "users/3@12")


def test_an_inner_enrich_leaves_out_rows_without_a_version_and_counts_them() -> None:
    made = kernel(replace(PLAIN, how="inner", history=5 * MICRO))
    out = epoch_of(MemoryRunner(made), [Row(10), Row(10, "b", number=1), Row(10, W=16, number=2)], [Version(0)])
    assert told(out.rows) == [(10, 1)]
    assert out.fates == {"answered": 1, "unmatched": 1, "too old": 1, "version": 1}


def test_a_row_waits_until_the_frontier_has_gone_far_enough_and_shows_meanwhile() -> None:
    made = kernel(replace(PLAIN, wait=5 * MICRO))
    runner = MemoryRunner(made)
    assert epoch_of(runner, [Row(10)], [Version(0, v=1)], 15).fates == {"held": 1, "version": 1}
    epoch_of(runner, [], [Version(10, v=2, number=1)], 15)
    opened = runner.open_rows()
    assert opened is not None
    assert told(opened) == [(10, 2)]
    assert opened.schema.names == [*OUTPUT.names, TIME, WATERMARK, POSITION, APPEND_TIME]
    out = epoch_of(runner, frontier=16)
    assert told(out.rows) == [(10, 2)]
    assert out.fates == {"held": -1, "answered": 1}
    assert [made.frontier([f, NEVER]) for f in (NEVER, 16, FOREVER)] == [NEVER, 11, FOREVER]


def test_rows_that_do_not_wait_are_never_open() -> None:
    made = kernel()
    assert made.open_rows(State()) is None
    assert made.frontier([16, NEVER]) == 16


def test_answers_are_corrected_and_come_and_go_under_inner() -> None:
    runner = MemoryRunner(kernel(replace(PLAIN, how="inner", correct=True, allowed=10 * MICRO)))
    assert epoch_of(runner, [Row(10)]).fates == {"unmatched": 1}
    first = epoch_of(runner, given=[Version(3, v=1)])
    assert first.fates == {"unmatched": -1, "answered": 1, "version": 1}
    second = epoch_of(runner, given=[Version(4, v=2, number=1)])
    third = epoch_of(runner, given=[Version(5, v=None, number=2)])
    ops = [[(r[OP], r["table_v"]) for r in out.rows.to_pylist()] for out in (first, second, third)]
    assert ops == [[(Op.INSERT, 1)], [(Op.UPDATE_BEFORE, 1), (Op.UPDATE_AFTER, 2)], [(Op.DELETE, 2)]]


def test_a_version_that_says_the_same_changes_nothing() -> None:
    runner = MemoryRunner(EnrichKernel(SILENT, STREAM, TABLE, SILENT_OUTPUT))
    epoch_of(runner, [Row(10)], [Version(3, v=1)])
    assert epoch_of(runner, given=[Version(4, v=1, number=1)]).rows.num_rows == 0


SILENT = replace(PLAIN, correct=True, allowed=10 * MICRO, version=None)
SILENT_OUTPUT = pa.schema(list(OUTPUT)[:-2])


def test_answered_rows_go_when_no_version_can_change_them() -> None:
    runner = MemoryRunner(kernel(replace(PLAIN, correct=True, allowed=4 * MICRO)))
    epoch_of(runner, [Row(t, number=t) for t in range(11)])
    assert runner.state(0).slots(ANSWERED) == [6, 8, 10]  # of the mark 11 less 4: those from 7 on
    epoch_of(runner, [Row(20, number=20)])
    assert runner.state(0).slots(ANSWERED) == [20]


def test_versions_go_when_every_row_to_come_sees_a_newer_one() -> None:
    runner = MemoryRunner(kernel(replace(PLAIN, history=5 * MICRO)), fanout=2)
    for t in range(8):
        epoch_of(runner, given=[Version(t, v=t, number=t)], frontier=t + 1)
    epoch_of(runner, given=[Version(1, "b", number=9)], frontier=12)
    kept = [r[TIME] for run in runner.state(0).runs(VERSIONS, 0) for r in run.to_pylist() if r["key"] == "a"]
    assert len(kept) < 8
    assert {3, 4, 5, 6, 7} <= set(kept)  # rows from 3 on may have come until the frontier was 8
    assert told(epoch_of(runner, [Row(7, W=12)], frontier=12).rows) == [(7, 7)]


def test_versions_that_came_together_go_at_once() -> None:
    runner = MemoryRunner(kernel(replace(PLAIN, history=5 * MICRO)))
    given = [Version(t, v=t, number=t) for t in range(100)]
    out = epoch_of(runner, [Row(3)], given, frontier=60)  # the row is older than the frontier after it: it sees its version
    assert told(out.rows) == [(3, 3)]
    assert sorted(runner.state(0).runs(VERSIONS, 0)[0][TIME].to_pylist()) == list(range(55, 100))


def test_a_delete_is_remembered_for_versions_that_come_after_it() -> None:
    runner = MemoryRunner(kernel(replace(PLAIN, history=0 * MICRO)), fanout=2)
    epoch_of(runner, given=[Version(5, v=1), Version(8, v=None, number=1)], frontier=20)
    epoch_of(runner, given=[Version(7, v=2, number=2)], frontier=21)
    epoch_of(runner, given=[Version(7, "b", v=2, number=3)], frontier=22)
    assert told(epoch_of(runner, [Row(30)], frontier=22).rows) == [(30, None)]


def test_as_of_now_goes_by_append_times() -> None:
    runner = MemoryRunner(kernel(replace(PLAIN, as_of="now")))
    out = epoch_of(runner, [Row(100, app=4), Row(0, app=5, number=1)], [Version(50, v=1, app=5), Version(60, v=2, app=4, number=1)])
    assert told(out.rows) == [(0, 1), (100, 2)]
    assert out.answered == 6


def test_runs_are_sorted_by_hash_and_hold_no_version_without_a_key() -> None:
    made = kernel(replace(PLAIN, correct=True, allowed=100 * MICRO, wait=5 * MICRO))
    rows = made.prepare(0, rows_table([Row(i, f"key{i % 7}", number=i) for i in range(40)])).rows
    known = made.prepare(1, versions_table([Version(i, f"key{i % 5}" if i % 3 else None, number=i) for i in range(40)]))
    assert known.fates == {"version": 40}
    changes = made.step(State(), [rows, known.rows], [20, NEVER]).changes
    assert {table for table, _ in changes.add} >= {VERSIONS, ANSWERED, "held0"}
    for run in changes.add.values():
        hashes = run[HASH].to_numpy()
        assert np.all(hashes[1:] >= hashes[:-1])
    assert changes.add[VERSIONS, 0].num_rows == 26


def test_positions_are_asked_for_where_they_are_needed() -> None:
    keeping, correcting = kernel(), kernel(replace(PLAIN, correct=True))
    assert keeping.needs_position == (True, True)
    keeping.gives_position = correcting.gives_position = False
    assert (position_needed(keeping, 0), position_needed(keeping, 1)) == (False, True)
    assert correcting.needs_position == (True, True)
    bare = rows_table([Row(10)]).drop_columns([POSITION, APPEND_TIME])
    out = MemoryRunner(keeping, buckets=2).epoch([[bare], [versions_table([Version(3)])]], [NEVER, NEVER])
    assert out.rows.column_names == [*OUTPUT.names, TIME, WATERMARK]
    assert told(out.rows) == [(10, 1)]


def test_a_flow_gets_the_kernel_it_describes() -> None:
    definition = replace(PLAIN, wait=timedelta(seconds=1), history=timedelta.max)
    made = kernel_of(definition, [STREAM, TABLE], OUTPUT)
    runner = MemoryRunner(made)
    assert epoch_of(runner, [Row(0, W=5)], [Version(0)], 1_000_000).rows.num_rows == 0
    assert told(epoch_of(runner, frontier=1_000_001).rows) == [(0, 1)]


def test_after_the_end_of_input_no_version_is_seen_and_no_row_is_kept() -> None:
    runner = MemoryRunner(kernel(replace(PLAIN, correct=True, allowed=10 * MICRO)))
    epoch_of(runner, [Row(10)], [Version(0, v=1)])
    runner.commit(runner.run([[], []], [FOREVER, NEVER], FOREVER))
    assert runner.state(0).slots(ANSWERED) == []
    assert epoch_of(runner, given=[Version(5, v=2, number=1)], frontier=FOREVER).rows.num_rows == 0
    late = epoch_of(runner, [Row(11, W=FOREVER, number=1)], frontier=FOREVER)
    assert [(r[OP], r["table_v"]) for r in late.rows.to_pylist()] == [(Op.INSERT, 1)]


@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_rows_get_what_an_as_of_join_of_a_database_gives(seed: int) -> None:
    rng = random.Random(seed)
    given = [
        Version(rng.randrange(500), f"key{rng.randrange(3000)}", v=rng.choice((None, *range(9))), number=i) for i in range(9000)
    ]
    rows = [Row(rng.randrange(500), f"key{rng.randrange(3000)}", number=i) for i in range(3000)]
    runner = MemoryRunner(kernel(replace(PLAIN, correct=True, allowed=1000 * MICRO), width=50), buckets=2)
    out = Outcome()
    at = [0, 0]
    for end in ((4000, 100), (8000, 150), (8100, 1200), (8150, 2800), (9000, 3000)):
        out.epochs.append(epoch_of(runner, rows[at[1] : end[1]], given[at[0] : end[0]]).rows.to_pylist())
        at = list(end)
    database = duckdb.connect()
    database.register("stream", rows_table(rows))
    database.register("versions", versions_table(given))
    newest = f"select * from versions qualify row_number() over (partition by key, {TIME} order by {POSITION} desc) = 1"
    same = f"r.k = v.key and r.{TIME} >= v.{TIME}"
    expected = database.sql(f"select r.v, v.v from stream r asof left join ({newest}) v on {same}").fetchall()
    assert Counter((r["v"], r["table_v"]) for r in folded(out, [POSITION])) == Counter(expected)
