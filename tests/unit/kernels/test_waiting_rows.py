"""Rows that wait: few slots however far they reach, each row given out once, at its time."""

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.core.columns import HASH, TIME
from penstock.core.time import FOREVER, NEVER
from penstock.kernels.columns import sorted_by_hash
from penstock.kernels.port import Changes, State
from penstock.kernels.waiting_rows import WaitingRows

YEAR = 365 * 86_400_000_000


class Held:
    """The state of rows that wait, epoch by epoch."""

    def __init__(self, waiting: WaitingRows) -> None:
        self.waiting, self.runs, self.frontier = waiting, dict[tuple[str, int], list[pa.Table]](), NEVER
        self.read = 0  # rows

    def advance(self, times: list[int], now: int) -> list[int]:
        tables: dict[str, dict[int, list[pa.Table]]] = {}
        for (name, slot), runs in self.runs.items():
            tables.setdefault(name, {})[slot] = runs
        state = State(
            {n: {s: [self._opened(r) for r in runs] for s, runs in slots.items()} for n, slots in tables.items()}, (self.frontier,)
        )
        new = pa.table({TIME: pa.array(times, pa.int64()), HASH: pa.array([t % 7 for t in times], pa.uint64())})
        changes = Changes()
        due = self.waiting.advance(state, new, now, changes)
        for place, run in changes.add.items():
            assert run.equals(sorted_by_hash(run))
            self.runs.setdefault(place, []).append(run)
        for place in changes.drop:
            assert place not in changes.add
            self.runs.pop(place, None)
        self.frontier = now
        return sorted(t for rows in due for t in rows[TIME].to_pylist())

    def _opened(self, run: pa.Table) -> Callable[[], pa.Table]:
        def read() -> pa.Table:
            self.read += run.num_rows
            return run

        return read


def test_every_row_is_given_out_once_when_its_time_has_come() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        delay, width, factor = rng.randrange(4), rng.choice((1, 3)), rng.choice((2, 4))
        held, waiting, now = Held(WaitingRows("w", delay, width, factor)), [], NEVER
        for _ in range(30):
            new = [max(now, -500) + rng.choice((0, 1, 5, 40, 300)) for _ in range(rng.randrange(4))]
            now = max(now, -500 + rng.randrange(1200)) if rng.random() < 0.8 else now
            waiting += new
            assert held.advance(new, now) == sorted(t for t in waiting if t + delay < now)
            waiting = [t for t in waiting if t + delay >= now]
        assert held.advance([], FOREVER) == sorted(waiting)
        assert not held.runs


def test_slots_are_few_however_far_the_rows_reach() -> None:
    held = Held(WaitingRows("w"))
    times = np.random.default_rng(0).integers(-5 * YEAR, 20 * YEAR, 20_000).tolist()
    held.advance(times, NEVER)
    assert len(held.runs) < 400
    for now in (-5 * YEAR, 0, 3 * YEAR, 3 * YEAR + 1_000_000, 12 * YEAR):
        held.advance([], now)
        assert len(held.runs) < 600


def test_a_row_is_read_a_few_times_however_long_it_waits() -> None:
    held = Held(WaitingRows("w", width=10, factor=8))
    held.advance(list(range(100_000)), 0)
    for now in range(5, 20_000, 5):
        assert held.advance([], now) == list(range(now - 5, now))
    assert held.read < 8 * 20_000  # once at each of the wider levels ahead of time, twice in its narrow slot
