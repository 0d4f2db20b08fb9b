"""Failing rows in any cut: whatever epochs, crashes and buckets, they are dead once, and no other row notices (G26)."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from amount import cases
from penstock import Flow, FlowTest, Sliding, Tumbling, agg
from penstock.engine.execute import failing
from penstock.engine.execute import task as work
from penstock.engine.execute.failing import Failure, Refused
from penstock.engine.lookup import rows as lookups
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.progress import balance

ROWS = 30
CRASHES = ("after_run", "before_decide", "after_decide")
Row = dict[str, Any]
Dead = Counter[tuple[str, int, int]]  # step, partition, offset


def halved(rows: pa.Table) -> pa.Table:
    """Half of n, which must be even."""
    values = rows["n"].to_pylist()
    if any(n % 2 for n in values):
        raise ValueError(f"{next(n for n in values if n % 2)} is odd")
    return rows.append_column("half", pa.array([n // 2 for n in values], pa.int64()))


def asked(keys: list[Row]) -> list[Any]:
    """The letters that have a number; of z nothing is known, and x is refused."""
    known: dict[str, Any] = {"a": {"rank": 1}, "b": {"rank": 2}, "x": ValueError("not for you"), "y": {"rank": "high"}}
    return [known.get(key["k"]) for key in keys]


def added(state: int, rows: pa.Table) -> int:
    for half in rows["half"].to_pylist():
        if half % 5 == 0:
            raise ArithmeticError(f"no {half}")
        state += half
    return state


def flow() -> Flow:
    made = Flow("law")
    rows = made.stream("rows", "k string, n long, at timestamp", time="at", lateness="5 seconds")
    halves = rows.map_arrow(halved, "k string, n long, at timestamp, half long", name="halves")
    ranks = halves.lookup(asked, on="k", schema="rank int", name="ranks")
    ranks.view("ranks")
    own = agg.own("half", init=lambda: 0, add=added, merge=lambda a, b: a + b, type="long")
    ranks.window(Tumbling("10 seconds"), by="k").agg(n=agg.count(), total=own, name="sums").view("sums")
    ranks.window(Sliding("10 seconds"), by="k").agg(total=own, name="recent").view("recent")
    return made


class Case:
    """Random rows in two partitions, sent and read in random pieces."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"failing rows {seed}")
        self.rows: list[list[Row]] = [[], []]
        second = 0
        for _ in range(ROWS):
            second += self.rng.choice([0, 1, 1, 4])
            late = self.rng.choice([0, 0, 0, 20])
            at = f"2024-01-15T10:{max(second - late, 0) // 60:02d}:{max(second - late, 0) % 60:02d}Z"
            row = {"k": self.rng.choice("aabbxyz"), "n": self.rng.randrange(24), "at": at}
            self.rows[self.rng.randrange(2)].append(row)

    def run(self) -> FlowTest:
        t = flow().test(buckets=self.rng.choice([1, 2, 5]))
        t.topic("rows", partitions=2)
        waiting = [list(rows) for rows in self.rows]
        while any(waiting):
            for partition, rows in enumerate(waiting):
                count = self.rng.randrange(8)
                if rows[:count]:
                    t.send("rows", *rows[:count], partition=partition)
                del rows[:count]
            self._read(t)
        t.end()
        return t

    def _read(self, t: FlowTest) -> None:
        for _ in range(self.rng.randrange(3)):
            cut = self.rng.choice([1, 2, 5, None])
            if self.rng.random() < 0.3 and t.driver.worth_it(t.driver.open(EpochRequest())):
                t.crash(self.rng.choice(CRASHES), cut)
            elif self.rng.random() < 0.1:
                t.restart(buckets=self.rng.choice([1, 3]))
            else:
                t.epoch(cut)

    def dead(self) -> Dead:
        """Row by row, in plain Python."""
        out: Dead = Counter()
        for partition, rows in enumerate(self.rows):
            for offset, row in enumerate(rows):
                if row["n"] % 2:
                    out["halves", partition, offset] += 1
                elif row["k"] in "xy":
                    out["ranks", partition, offset] += 1
                elif row["n"] // 2 % 5 == 0:
                    out["sums", partition, offset] += 1
                    out["recent", partition, offset] += 1
        return out

    def ranks(self) -> Counter[tuple[str, int, int | None]]:
        known = {"a": 1, "b": 2}
        good = (row for rows in self.rows for row in rows if row["n"] % 2 == 0 and row["k"] not in "xy")
        return Counter((row["k"], row["n"], known.get(row["k"])) for row in good)


def check(case: Case) -> None:
    t = case.run()
    try:
        dead = Counter((row["step"], row["partition"], row["offset"]) for row in t.rows("dead"))
        assert dead == case.dead()
        assert Counter((row["k"], row["n"], row["rank"]) for row in t.rows("ranks")) == case.ranks()
        assert all(rows == known for _, rows, known in balance(t.fates()))
        late = Counter((row["step"], row["partition"], row["offset"]) for row in t.rows("late"))
        assert not set(late) & set(dead), "a row is dead or late, never both"
        taken = t.fates("sums")
        assert sum(row["n"] for row in t.rows("sums")) == taken.get("on time", 0)
        assert taken["in"] == taken.get("on time", 0) + taken.get("diverted", 0) + taken.get("dead", 0)
    finally:
        t.__exit__(None, None, None)


@pytest.mark.parametrize("seed", range(5))
def test_failing_rows_in_any_cut(seed: int) -> None:
    check(Case(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5, 5 + cases(80)))
def test_failing_rows_in_any_cut_at_length(seed: int) -> None:
    check(Case(seed))


def test_late_rows_are_the_same_in_any_cut() -> None:
    """Which rows are late follows from the log: of one case, read at once and read row by row."""

    def late(cut: int | None) -> Any:
        with flow().test() as t:
            case = Case(3)
            t.topic("rows", partitions=2)
            for partition, rows in enumerate(case.rows):
                t.send("rows", *rows, partition=partition)
            while t.epoch(cut):
                pass
            t.end()
            return Counter((row["step"], row["partition"], row["offset"]) for row in t.rows("late")), t.rows("sums")

    assert late(1) == late(None)


def the_whole_table_is_refused(run: Callable[[pa.Table], pa.Table], rows: pa.Table) -> Any:
    try:
        return run(rows), []
    except Refused as why:
        return None, [(i, str(why)) for i in range(rows.num_rows)]


def a_neighbour_goes_too(rows: pa.Table, failures: Sequence[Failure]) -> pa.Table:
    worse = [*failures, *(f._replace(row=f.row + 1) for f in failures if f.row + 1 < rows.num_rows)]
    return failing.without(rows, worse)


def letters_come_twice(step: str, rows: pa.Table, failures: Sequence[Failure]) -> pa.Table:
    letters = failing.dead_letters(step, rows, failures)
    return pa.concat_tables([letters, letters])


def rows_stay_in_the_aggregate(rows: pa.Table, failures: Sequence[Failure]) -> pa.Table:
    return rows


def only_tables_that_fail_are_looked_through(self: work.Task, step: str, rows: pa.Table, topic: str | None) -> pa.Table:
    kept = rows.filter(pc.greater_equal(rows["__t"], rows["__w"]))  # what is on time is tried, what is late is not
    return rows if not kept.num_rows else RIGHT(self, step, rows, topic)


RIGHT = work.Task._addable
BUGS: dict[str, tuple[Any, str, Any]] = {
    "the whole table is refused": (work, "isolated", the_whole_table_is_refused),
    "a neighbour of a failing row goes too": (work, "without", a_neighbour_goes_too),
    "a row without a usable answer passes all the same": (lookups, "without", lambda rows, failures: rows),
    "letters come twice": (work, "dead_letters", letters_come_twice),
    "failing rows stay in the aggregate": (work, "without", rows_stay_in_the_aggregate),
    "late rows are not tried where no other is": (work.Task, "_addable", only_tables_that_fail_are_looked_through),
    "an aggregate takes anything": (work, "addable", lambda own, rows: rows.slice(0, 0)),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches_planted_bugs(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, wrong = BUGS[bug]
    monkeypatch.setattr(place, name, wrong)
    for seed in range(40):
        try:
            check(Case(seed))
        except Exception:  # a difference, or an aggregate that fails
            return
    pytest.fail(f"nobody noticed: {bug}")
