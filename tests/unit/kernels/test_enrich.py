"""Enrich: each row with the version of a table that it sees, whatever the cut."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.core.change import APPENDED, HASH, OP, POSITION, TIME, WATERMARK, Op
from penstock.core.hashing import hash64
from penstock.core.position import Position
from penstock.core.time import FOREVER, NEVER, moment
from penstock.flow import plan
from penstock.kernels import enrich, versions
from penstock.kernels.answered_rows import ANSWERED
from penstock.kernels.enrich import EnrichKernel
from penstock.kernels.families import kernel_of
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import Kernel, State, position_needed
from penstock.kernels.versions import VERSIONS
from penstock.kernels.waiting_rows import WaitingRows
from unit.kernels.cutting import TIMESTAMP, Outcome, counted, few_hashes
from unit.kernels.sending import folded

STREAM = pa.schema([("k", pa.string()), ("x", pa.float64()), ("v", pa.int64())])
TABLE = pa.schema([("key", pa.string()), ("kx", pa.float64()), ("v", pa.int64()), ("name", pa.string())])
OUTPUT = pa.schema([*STREAM, ("table_v", pa.int64()), ("name", pa.string()), ("since", TIMESTAMP), ("place", pa.string())])
MICRO = timedelta(microseconds=1)
PLAIN = plan.Enrich(("k",), ("key",), "left", "event", (("table_v", "v"), ("name", "name")), version=("since", "place"))


class Row(NamedTuple):
    t: int
    k: str | None = "a"
    x: float | None = 0.0
    app: int = 0
    W: int = NEVER
    number: int = 0

    @property
    def position(self) -> bytes:
        return Position("stream", 0, self.number).encode()


class Version(NamedTuple):
    t: int
    k: str | None = "a"
    x: float | None = 0.0
    v: int | None = 1  # None: a delete
    app: int = 0
    number: int = 0
    partition: int = 0

    @property
    def place(self) -> Position:
        return Position("users", self.partition, self.number)


@dataclass(frozen=True)
class Epoch:
    rows: Sequence[Row] = ()
    versions: Sequence[Version] = ()
    frontier: int = NEVER
    mark: int = NEVER
    slices: int = 1
    lost: bool = False
    buckets: int = 1


def rows_table(rows: Sequence[Row]) -> pa.Table:
    columns = {"k": [r.k for r in rows], "x": [r.x for r in rows], "v": [r.number for r in rows]}
    columns |= {TIME: [r.t for r in rows], WATERMARK: [r.W for r in rows], POSITION: [r.position for r in rows]}
    types = pa.schema([*STREAM, (TIME, pa.int64()), (WATERMARK, pa.int64()), (POSITION, pa.binary()), (APPENDED, pa.int64())])
    return pa.table(columns | {APPENDED: [r.app for r in rows]}, schema=types)


def versions_table(given: Sequence[Version]) -> pa.Table:
    columns: dict[str, list[Any]] = {"key": [v.k for v in given], "kx": [v.x for v in given], "v": [v.v for v in given]}
    columns |= {"name": [None if v.v is None else f"name {v.v}" for v in given], TIME: [v.t for v in given]}
    columns |= {POSITION: [v.place.encode() for v in given], APPENDED: [v.app for v in given]}
    columns[OP] = [Op.DELETE if v.v is None else Op.INSERT for v in given]
    system = [(TIME, pa.int64()), (POSITION, pa.binary()), (APPENDED, pa.int64()), (OP, pa.int8())]
    return pa.table(columns, schema=pa.schema([*TABLE, *system]))


def kernel(definition: plan.Enrich = PLAIN, width: int = 2) -> EnrichKernel:
    wait = 0 if definition.wait is None else definition.wait // MICRO
    return EnrichKernel(definition, STREAM, TABLE, OUTPUT, held=WaitingRows("held", wait, width, 2), slot_us=width)


def ran(made: Kernel, epochs: Sequence[Epoch], fanout: int = 2) -> Outcome:
    runner, out = MemoryRunner(made, fanout=fanout), Outcome()
    for epoch in epochs:
        runner.rebucket(epoch.buckets)
        given = [sliced(rows_table(epoch.rows), epoch.slices), sliced(versions_table(epoch.versions), epoch.slices)]
        if epoch.lost:
            runner.run(given, [epoch.frontier, NEVER], FOREVER)
        done = runner.run(given, [epoch.frontier, NEVER], epoch.mark)
        runner.commit(done)
        out.epochs.append(done.rows.to_pylist())
        out.rows += out.epochs[-1]
        out.fates.update(done.fates)
    return out


def sliced(table: pa.Table, slices: int) -> list[pa.Table]:
    size = max(1, -(-table.num_rows // slices))
    return [table.slice(at, size) for at in range(0, table.num_rows, size)]


@dataclass
class Specification:
    """By the definition: all rows, all versions with the mark at each, the frontier at the end."""

    definition: plan.Enrich
    rows: list[Row] = field(default_factory=list)
    versions: list[tuple[Version, int]] = field(default_factory=list)
    frontier: int = NEVER
    mark: int = NEVER

    def take(self, epoch: Epoch) -> None:
        self.mark = max(self.mark, epoch.mark)
        self.versions += [(v, self.mark) for v in epoch.versions]
        self.rows += epoch.rows
        self.frontier = epoch.frontier
        self.mark = max([self.mark, *(self.clock(r) + 1 for r in self.rows if self.ready(r))])

    def clock(self, of: Row | Version) -> int:
        return of.t if self.definition.as_of == "event" else of.app

    def ready(self, r: Row) -> bool:
        return self.definition.wait is None or self.frontier > r.t + self.definition.wait // MICRO

    def answer(self, r: Row) -> Version | None:
        allowed = self.definition.allowed // MICRO if self.definition.correct else 0
        mine = [(v, M) for v, M in self.versions if self.same_key(r, v)]
        seen = [v for v, M in mine if self.clock(r) >= max(self.clock(v), M - allowed)]
        best = max(seen, key=lambda v: (self.clock(v), v.t, v.place), default=None)
        return None if best is None or best.v is None or self.too_old(r) else best

    def same_key(self, r: Row, v: Version) -> bool:
        pairs = [(r.k, v.k), (r.x, v.x)][: len(self.definition.on)]
        return all(a is not None and b is not None and (a == b or (a != a and b != b)) for a, b in pairs)

    def too_old(self, r: Row) -> bool:
        return self.definition.history is not None and r.t < r.W - self.definition.history // MICRO

    def fate(self, r: Row) -> str:
        if not self.ready(r):
            return "held"
        if self.too_old(r):
            return "too old"
        return "unmatched" if self.definition.how == "inner" and self.answer(r) is None else "answered"

    def shown(self, r: Row) -> dict[str, Any]:
        v = self.answer(r)
        told = {"k": r.k, "x": r.x, "v": r.number, "table_v": v and v.v, "name": v and f"name {v.v}"}
        told |= {"since": v and moment(v.t), "place": v and str(v.place)}
        return told | {TIME: r.t, WATERMARK: r.W, POSITION: r.position, APPENDED: r.app}

    def output(self) -> list[dict[str, Any]]:
        ready = [r for r in self.rows if self.ready(r)]
        return [self.shown(r) for r in ready if self.definition.how == "left" or self.answer(r) is not None]

    def fates(self) -> Counter[str]:
        return Counter(map(self.fate, self.rows)) + Counter(version=len(self.versions))


def specified(definition: plan.Enrich, epochs: Sequence[Epoch]) -> Specification:
    made = Specification(definition)
    for epoch in epochs:
        made.take(epoch)
    return made


VALUES = st.sampled_from([None, 1, 2, 3])
DOUBLES = st.sampled_from([0.0, 0.0, -0.0, math.nan, 1.5, None])
SLICES = st.sampled_from([1, 1, 2, 3])
SPANS = st.sampled_from([0, 1, 2, 4, 9, 10**14])
# Many keys and times; or one key and few instants, where ties with horizons and marks are the rule.
WIDE = (st.sampled_from(["a", "a", "a", "b", "c", None]), st.integers(-6, 20), range(-4, 24, 3))
TIGHT = (st.just("a"), st.integers(0, 5), range(8))


@st.composite
def some_epochs(draw: st.DrawFn) -> list[Epoch]:
    """Rows that come have t >= F or W >= F, by the frontier of the epoch before; everything else is as it may be."""
    keys, times, frontiers = draw(st.sampled_from([WIDE, TIGHT]))
    row = st.tuples(times, keys, DOUBLES, times, st.sampled_from([None, 0, 1, 3, -2]))
    version = st.tuples(times, keys, DOUBLES, VALUES, times, st.integers(0, 1))
    epochs: list[Epoch] = []
    frontier, rows, places = NEVER, 0, [0, 0]
    for _ in range(draw(st.integers(1, 6))):
        some, known = [], []
        for t, k, x, app, ahead in draw(st.lists(row, max_size=6)):
            least = NEVER if t >= frontier else frontier
            some.append(Row(t, k, x, app, least if ahead is None else max(least, t + ahead), rows))
            rows += 1
        for t, k, x, v, app, p in draw(st.lists(version, max_size=6)):
            known.append(Version(t, k, x, v, app, places[p], p))
            places[p] += 1
        frontier = max(frontier, draw(st.sampled_from([NEVER, frontier, *frontiers])))
        lost = draw(st.integers(0, 9)) == 0
        epochs.append(Epoch(some, known, frontier, slices=draw(SLICES), lost=lost, buckets=draw(st.integers(1, 3))))
    if draw(st.integers(0, 3)) == 0:
        return [*epochs, Epoch(frontier=FOREVER, mark=FOREVER)]
    return epochs


@st.composite
def definitions(draw: st.DrawFn) -> plan.Enrich:
    two, history, wait = draw(st.booleans()), draw(st.one_of(st.none(), SPANS)), draw(st.one_of(st.none(), SPANS))
    return replace(
        PLAIN,
        on=("k", "x") if two else ("k",),
        key=("key", "kx") if two else ("key",),
        how=draw(st.sampled_from(["left", "inner"])),
        as_of=draw(st.sampled_from(["event", "event", "now"])),
        correct=draw(st.booleans()),
        allowed=draw(SPANS) * MICRO,
        wait=None if wait is None else wait * MICRO,
        history=None if history is None else history * MICRO,
    )


def holds(made: Kernel, definition: plan.Enrich, epochs: Sequence[Epoch], fanout: int = 2) -> None:
    out, wanted = ran(made, epochs, fanout), specified(definition, epochs)
    rows = folded(out, [POSITION]) if definition.correct else out.rows
    assert counted(rows) == counted(wanted.output())
    assert Counter({fate: n for fate, n in out.fates.items() if n}) == wanted.fates()


@given(definitions(), some_epochs(), st.sampled_from([1, 2, 7]), st.sampled_from([2, 3, 8]))
@settings(max_examples=250, deadline=None)
def test_any_cut_gives_each_row_the_version_it_sees(definition: plan.Enrich, epochs: list[Epoch], width: int, fanout: int) -> None:
    holds(kernel(definition, width), definition, epochs, fanout)


@given(definitions(), some_epochs())
@settings(max_examples=60, deadline=None)
def test_keys_that_share_a_hash_stay_apart(definition: plan.Enrich, epochs: list[Epoch]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enrich, "hash64", few_hashes(hash64))
        patch.setattr(versions, "hash64", few_hashes(hash64))
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


def told(rows: pa.Table) -> list[tuple[int, Any]]:
    return sorted((r[TIME], r["table_v"]) for r in rows.to_pylist())


def epoch_of(runner: MemoryRunner, rows: Sequence[Row] = (), given: Sequence[Version] = (), frontier: int = NEVER) -> Any:
    return runner.epoch([[rows_table(rows)], [versions_table(given)]], [frontier, NEVER])


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
    assert opened.schema.names == [*OUTPUT.names, TIME, WATERMARK, POSITION, APPENDED]
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
    bare = rows_table([Row(10)]).drop_columns([POSITION, APPENDED])
    out = MemoryRunner(keeping, buckets=2).epoch([[bare], [versions_table([Version(3)])]], [NEVER, NEVER])
    assert out.rows.column_names == [*OUTPUT.names, TIME, WATERMARK]
    assert told(out.rows) == [(10, 1)]


def test_a_flow_gets_the_kernel_it_describes() -> None:
    definition = replace(PLAIN, wait=timedelta(seconds=1), history=timedelta.max)
    made = kernel_of(definition.family, definition, [STREAM, TABLE], OUTPUT)
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
