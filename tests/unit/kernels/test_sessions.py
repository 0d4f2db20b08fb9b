"""Sessions: what belongs together, when it comes out, and what a late row does to it, whatever the cut."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from amount import cases
from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.position import Position, window_positions
from penstock.core.time import FOREVER, NEVER, micros
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import State, Stepped
from penstock.kernels.windows import corrections
from penstock.kernels.windows.sessions import SessionKernel, build
from unit.kernels.cutting import (
    AGGREGATES,
    SCHEMA,
    TIMESTAMP,
    Agg,
    Log,
    Outcome,
    Row,
    a_log,
    aggregated,
    blocks,
    colliding_keys,
    counted,
    in_one_epoch,
    run_anyhow,
    table,
)
from unit.kernels.sending import folded

FEW = tuple(a for a in AGGREGATES if a.name in ("n", "high"))
MICRO = timedelta(microseconds=1)
KEY = ("k", "window_start")


@dataclass(frozen=True)
class Session:
    gap: timedelta
    longest: timedelta | None = None
    late: Any = "divert"
    allowed: timedelta = timedelta()
    emit: Any = "final"
    early: timedelta | None = None
    by: tuple[str, ...] = ("k",)
    aggregates: tuple[Agg, ...] = FEW

    @property
    def updating(self) -> bool:
        return self.emit == "updates" or self.late == "correct" or self.early is not None


def output(session: Session) -> pa.Schema:
    times = [("window_start", TIMESTAMP), ("window_end", TIMESTAMP)]
    told = [("revision", pa.int64())] + ([("cause", corrections.TYPE)] if session.late == "correct" else [])
    return pa.schema(
        [*((k, SCHEMA.field(k).type) for k in session.by), *times, *((a.name, a.type) for a in session.aggregates), *told]
    )


def kernel(session: Session, slot: int = 3) -> SessionKernel:
    return SessionKernel(session, SCHEMA, output(session), slot_us=slot)


def a_session(rng: random.Random) -> Session:
    late = rng.choice(("divert", "ignore", "correct", "correct"))
    return Session(
        rng.choice((1, 2, 3, 5, 20)) * MICRO,
        rng.choice((None, None, 1, 2, 4, 7, 30)) and rng.choice((1, 2, 4, 7, 30)) * MICRO,
        late,
        rng.choice((0, 1, 3, 10, 40)) * MICRO,
        rng.choice(("final", "updates")),
        aggregates=rng.choice((FEW, FEW, FEW, AGGREGATES)),
    )


def a_deep_log(rng: random.Random) -> Log:
    """Few keys, and rows far behind."""
    lateness, partitions, behind = rng.randrange(4), [], []
    for p in range(rng.choice((1, 1, 2))):
        now, mark, rows, marks = rng.randrange(-20, 5), NEVER, [], [NEVER]
        for offset in range(rng.choice((3, 8, 20))):
            now += rng.choice((0, 1, 1, 2, 3, 8))
            t = now - rng.choice((0, 0, 0, 1, 2, 4, 9, lateness, lateness + 1, 25))
            rows.append(Row(t, rng.choice(("a", "a", "a", None)), offset, None, None, mark, Position("topic", p, offset).encode()))
            mark = max(mark, t - lateness)
            marks.append(mark)
        partitions.append(rows)
        behind.append(marks)
    return Log(partitions, behind)


def fate(row: Row, session: Session) -> str:
    if row.t >= row.W:
        return "on time"
    if session.late == "correct" and row.t + session.allowed // MICRO >= row.W:
        return "corrected"
    return "ignored" if session.late == "ignore" else "diverted"


def specified(log: Log, session: Session, frontier: int) -> list[dict[str, Any]]:
    """By definition: the rows of a key in their order, cut where two are too far apart or the first too far behind."""
    gap, longest = session.gap // MICRO, session.longest // MICRO if session.longest else FOREVER
    out = []
    for key in {r.k for r in log.rows}:
        mine = sorted((r for r in log.rows if r.k == key and fate(r, session) in ("on time", "corrected")), key=lambda r: r.order)
        runs: list[list[Row]] = []
        for r in mine:
            if runs and r.t - runs[-1][-1].t < gap and r.t - runs[-1][0].t < longest:
                runs[-1].append(r)
            else:
                runs.append([r])
        for run in runs:
            end = min(run[-1].t + gap, run[0].t + longest)
            if session.emit == "updates" or end <= frontier:
                late = sum(fate(r, session) == "corrected" for r in run)
                told = {a.name: aggregated(run)[a.name] for a in session.aggregates}
                out.append(shown(key, run[0].t, end, told, late))
    return out


def shown(key: str | None, start: int, end: int, values: dict[str, Any], revision: int) -> dict[str, Any]:
    position = window_positions([pa.array([key], pa.string())], pa.array([start]).to_numpy())[0].as_py()
    times = {"window_start": start, "window_end": end, TIME: end - 1, WATERMARK: NEVER, POSITION: position}
    return {"k": key, **times, **values, "revision": revision}


def result(out: Outcome, session: Session) -> Counter[Any]:
    return counted(folded(out, KEY, ["cause"]) if session.updating else out.rows)


def hold(log: Log, session: Session, rng: random.Random, seed: int, made: Any) -> None:
    drain = rng.random() < 0.3
    out, once = run_anyhow(made, log, rng, drain=drain), in_one_epoch(made, log, drain=drain)
    expected = counted(specified(log, session, out.frontier))
    assert result(once, session) == expected, seed
    assert result(out, session) == expected, seed
    fates = Counter(fate(r, session) for r in log.rows)
    assert out.fates == once.fates == fates, seed
    refused = Counter(r.position for r in log.rows if fate(r, session) == "diverted")
    assert Counter(out.late) == Counter(once.late) == refused, seed


@pytest.mark.parametrize("block", blocks(10))
def test_any_cut_gives_the_sessions_of_the_definition(block: int) -> None:
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        log, session = rng.choice((a_log, a_deep_log))(rng), a_session(rng)
        hold(log, session, rng, seed, kernel(session, rng.choice((1, 2, 5, 50))))


class Ticking:
    """A kernel whose clock goes on by so much from epoch to epoch."""

    needs_position, gives_position = True, True

    def __init__(self, inner: SessionKernel, rng: random.Random) -> None:
        self._inner, self._rng, self.prepare, self.merge = inner, rng, inner.prepare, inner.merge
        self.frontier, self.open_rows = inner.frontier, inner.open_rows

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        return self._inner.step(replace(state, clock=(0, self._rng.choice((0, 10)))), rows, frontiers)


@pytest.mark.parametrize("block", blocks(5))
def test_what_is_shown_early_ends_as_the_definition_has_it(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        rng = random.Random(seed)
        log, session = rng.choice((a_log, a_deep_log))(rng), replace(a_session(rng), emit="final", early=10 * MICRO)
        made = Ticking(kernel(session, rng.choice((1, 2, 5, 50))), rng)
        out = run_anyhow(made, log, rng, drain=True)
        assert result(out, session) == counted(specified(log, session, FOREVER)), seed


def test_keys_that_share_a_hash_stay_apart() -> None:
    for seed in range(cases(15)):
        rng = random.Random(seed)
        session = a_session(rng)
        hold(a_log(rng, colliding_keys()), session, rng, seed, kernel(session))


def rows(*given: tuple[int, int], key: str = "a") -> list[pa.Table]:
    """Rows of one key: their times and the watermarks at them."""
    return [table([Row(t, key, t, None, None, w, Position("topic", 0, 100 + t).encode()) for t, w in given])]


def said(ran: Any) -> list[tuple[Any, ...]]:
    """(op, start, end, number of rows) of what came out, in its order."""
    told = ran.rows.to_pylist()
    return [(r.get(OP), micros(r["window_start"]), micros(r["window_end"]), r["n"]) for r in told]


def test_a_session_comes_out_once_when_the_frontier_reaches_its_end() -> None:
    runner = MemoryRunner(kernel(Session(10 * MICRO)))
    assert said(runner.epoch([rows((0, NEVER), (9, NEVER), (19, NEVER))], [9])) == []
    assert said(runner.epoch([[]], [18])) == []
    assert said(runner.epoch([[]], [19])) == [(None, 0, 19, 2)]
    assert said(runner.epoch([rows((28, 19))], [28])) == []
    assert said(runner.epoch([[]], [FOREVER])) == [(None, 19, 38, 2)]


def test_a_row_is_judged_by_its_own_time_not_by_the_end_of_its_session() -> None:
    runner = MemoryRunner(kernel(Session(10 * MICRO)))
    ran = runner.epoch([rows((0, NEVER), (5, 6))], [6])
    assert ran.fates == {"on time": 1, "diverted": 1}
    assert said(runner.epoch([[]], [10])) == [(None, 0, 10, 1)]


def test_a_late_row_that_bridges_two_sessions_makes_one_of_them() -> None:
    session = Session(10 * MICRO, late="correct", allowed=100 * MICRO)
    runner = MemoryRunner(kernel(session))
    runner.epoch([rows((0, NEVER), (15, NEVER))], [40])
    ran = runner.epoch([rows((8, 40))], [40])
    assert ran.fates == {"corrected": 1}
    assert said(ran) == [(Op.DELETE, 15, 25, 1), (Op.UPDATE_BEFORE, 0, 10, 1), (Op.UPDATE_AFTER, 0, 25, 3)]
    after = ran.rows.to_pylist()[-1]
    assert (after["revision"], after["cause"]) == (1, {"rows": ["topic/0@108"], "count": 1})


def test_a_late_row_that_moves_the_end_beyond_the_frontier_takes_the_session_back_until_it_is_complete_again() -> None:
    runner = MemoryRunner(kernel(Session(10 * MICRO, late="correct", allowed=100 * MICRO)))
    assert said(runner.epoch([rows((0, NEVER))], [12])) == [(Op.INSERT, 0, 10, 1)]
    assert said(runner.epoch([rows((9, 12))], [12])) == [(Op.DELETE, 0, 10, 1)]
    ran = runner.epoch([[]], [19])
    assert said(ran) == [(Op.INSERT, 0, 19, 2)]
    assert ran.rows["cause"].to_pylist() == [{"rows": ["topic/0@109"], "count": 1}]


def test_cause_tells_the_rows_since_the_last_sending_and_revision_counts_all() -> None:
    runner = MemoryRunner(kernel(Session(10 * MICRO, late="correct", allowed=100 * MICRO)))
    runner.epoch([rows((0, NEVER), (9, NEVER))], [30])
    runner.epoch([rows((3, 30))], [30])
    ran = runner.epoch([rows((4, 30), (5, 30))], [30])
    assert said(ran) == [(Op.UPDATE_BEFORE, 0, 19, 3), (Op.UPDATE_AFTER, 0, 19, 5)]
    after = ran.rows.to_pylist()[-1]
    assert (after["revision"], after["cause"]) == (3, {"rows": ["topic/0@104", "topic/0@105"], "count": 2})


def test_a_session_that_begins_earlier_is_another_one_and_tells_all_its_late_rows() -> None:
    runner = MemoryRunner(kernel(Session(10 * MICRO, late="correct", allowed=100 * MICRO)))
    runner.epoch([rows((0, NEVER), (9, NEVER))], [30])
    runner.epoch([rows((3, 30))], [30])
    ran = runner.epoch([rows(*((t, 30) for t in range(-5, 9) if t not in (0, 3)))], [30])
    assert said(ran) == [(Op.DELETE, 0, 19, 3), (Op.INSERT, -5, 19, 15)]
    cause = ran.rows["cause"].to_pylist()[-1]
    assert cause == {"rows": [f"topic/0@{100 + t}" for t in range(-5, 6) if t], "count": 13}


def test_a_session_is_cut_where_it_would_be_too_long() -> None:
    runner = MemoryRunner(kernel(Session(5 * MICRO, longest=10 * MICRO)))
    runner.epoch([rows(*((t, NEVER) for t in range(0, 24, 4)))], [0])
    assert said(runner.epoch([[]], [10])) == [(None, 0, 10, 3)]
    assert said(runner.epoch([[]], [FOREVER])) == [(None, 12, 22, 3)]


@pytest.mark.parametrize("slot", [1, 7, 30])
def test_where_sessions_are_cut_depends_on_where_the_first_began_however_long_ago(slot: int) -> None:
    runner = MemoryRunner(kernel(Session(5 * MICRO, longest=10 * MICRO), slot), fanout=2)
    told = []
    for t in range(0, 400, 4):
        told += said(runner.epoch([rows((t, t - 6))], [t - 6]))
        state = runner.state(0)
        assert sum(run.num_rows for name in state.runs_of for slot in state.slots(name) for run in state.runs(name, slot)) < 40
    assert told == [(None, start, start + 10, 3) for start in range(0, 384, 12)]


def test_an_endless_session_keeps_no_more_state_than_a_short_one() -> None:
    made = kernel(Session(10 * MICRO, emit="updates"), slot=10)
    runner = MemoryRunner(made, fanout=2)
    for t in range(0, 500, 5):
        ran = runner.epoch([rows((t, t - 5))], [t - 5])
        state = runner.state(0)
        assert sum(run.num_rows for name in state.runs_of for slot in state.slots(name) for run in state.runs(name, slot)) < 30
    assert said(ran)[-1] == (Op.UPDATE_AFTER, 0, 505, 100)


def test_open_sessions_are_told_as_they_are() -> None:
    runner = MemoryRunner(kernel(Session(10 * MICRO)), buckets=3)
    runner.epoch([rows((0, NEVER), (30, NEVER), (31, NEVER)) + rows((7, NEVER), key="b")], [12])
    told = runner.open_rows()
    assert told is not None
    found = sorted((r["k"], micros(r["window_start"]), r["n"]) for r in told.to_pylist())
    assert found == [("a", 30, 2), ("b", 7, 1)]


def test_a_plan_of_a_flow_makes_the_kernel() -> None:
    session = Session(timedelta(minutes=5), by=())
    made = build(session, [SCHEMA], output(session))
    ran = MemoryRunner(made).epoch([rows((0, NEVER), (1, NEVER), key="a") + rows((2, NEVER), key="b")], [FOREVER])
    assert said(ran) == [(None, 0, 300_000_002, 3)]
