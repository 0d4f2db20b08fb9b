"""Sessions: what belongs together, when it comes out, and what a late row does to it, whatever the cut."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.change import OP, POSITION, TIME, WATERMARK, Op
from penstock.core.hashing import hash64
from penstock.core.position import Position, window_positions
from penstock.core.time import FOREVER, NEVER
from penstock.kernels import corrections, fragments
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import State, Stepped
from penstock.kernels.sessions import SessionKernel, build
from unit.kernels.cutting import AGGREGATES, SCHEMA, TIMESTAMP, Agg, Log, Outcome, Row, a_log, aggregated, counted, few_hashes
from unit.kernels.cutting import in_one_epoch, run_anyhow, table
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
    return pa.schema([*((k, SCHEMA.field(k).type) for k in session.by), *times, *((a.name, a.type) for a in session.aggregates), *told])


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


@pytest.mark.parametrize("block", range(12))
def test_any_cut_gives_the_sessions_of_the_definition(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        rng = random.Random(seed)
        log, session = rng.choice((a_log, a_deep_log))(rng), a_session(rng)
        hold(log, session, rng, seed, kernel(session, rng.choice((1, 2, 5, 50))))
