"""Pairs on which a join's condition fails, in any cut: dead once, no match, and no other row notices (G26)."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

import pyarrow as pa
import pytest

from amount import cases
from penstock import Flow, FlowTest
from penstock.engine.execute import sql
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.progress import balance
from penstock.kernels.joins import matched
from penstock.plan import How, OnError

from .evaluated import InPython

ROWS = 16  # of either side
CRASHES = ("after_run", "before_decide", "after_decide")
BEFORE, AFTER = 4, 7  # seconds that a right row may lie before and after a left one
HOWS: tuple[How, ...] = get_args(How)
CONDITION = "100 / (n - m) > 30"
Row = dict[str, Any]


def shares(row: Row) -> bool | None:
    if row["n"] is None or row["m"] is None:
        return None
    return 100 / (row["n"] - row["m"]) > 30


def flow(on_error: OnError = "dead", hows: Sequence[How] = HOWS) -> Flow:
    made = Flow("law", dead_limit=None)
    left = made.stream("lefts", "k string, l long, n long, at timestamp", time="at", lateness="5 seconds")
    right = made.stream("rights", "k string, r long, m long, at timestamp", time="at", lateness="5 seconds")
    for how in hows:
        within = (f"-{BEFORE} seconds", f"{AFTER} seconds")
        joined = left.join(right, on="k", within=within, how=how, where=CONDITION, on_error=on_error, name=how)
        joined.view(how)
        joined.late.view(f"{how}-late")
    return made


class Case:
    """Random rows of two sides in two partitions each, sent and read in random pieces."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"failing pairs {seed}")
        self.sides = {"lefts": self._rows("l", "n"), "rights": self._rows("r", "m")}

    def _rows(self, own: str, value: str) -> list[tuple[int, Row]]:
        rows, second = [], 0
        for number in range(ROWS):
            second += self.rng.choice([0, 1, 1, 3])
            at = max(second - self.rng.choice([0, 0, 0, 0, 9]), 0)
            row = {"k": self.rng.choice(["a", "a", "b", None]), own: number, value: self.rng.choice([1, 2, 3, 4, 5, None])}
            rows.append((self.rng.randrange(2), row | {"at": f"2024-01-15T10:00:{at:02d}Z"}))
        return rows

    def run(self, made: Flow, analyzer: Any) -> FlowTest:
        t = made.test(buckets=self.rng.choice([1, 2, 5]), analyzer=analyzer)
        waiting = {side: list(rows) for side, rows in self.sides.items()}
        for side in waiting:
            t.topic(side, partitions=2)
        while any(waiting.values()):
            for side, rows in waiting.items():
                count = self.rng.randrange(6)
                for partition, row in rows[:count]:
                    t.send(side, row, partition=partition)
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


class Naive:
    """Every left row with every right one, in plain Python. late: rows that take part in nothing."""

    def __init__(self, case: Case, late: set[tuple[str, int]]) -> None:
        self.left = [row for _, row in case.sides["lefts"] if ("l", row["l"]) not in late]
        self.right = [row for _, row in case.sides["rights"] if ("r", row["r"]) not in late]
        self.dead, self.good = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for pair in ((lrow, rrow) for lrow in self.left for rrow in self.right):
            self._pair(*pair)

    def _pair(self, left: Row, right: Row) -> None:
        apart = int(right["at"][17:19]) - int(left["at"][17:19])
        if left["k"] is None or left["k"] != right["k"] or not -BEFORE <= apart <= AFTER:
            return
        try:
            if shares(left | right):
                self.good[left["l"], right["r"]] += 1
        except ZeroDivisionError:
            self.dead[left["l"], right["r"]] += 1

    def rows(self, how: How) -> Counter[tuple[int | None, int | None]]:
        out: Counter[tuple[int | None, int | None]] = Counter()
        with_partner = ({left for left, _ in self.good}, {right for _, right in self.good})
        if how not in ("semi", "anti"):
            out.update(self.good)
        if how == "semi":
            out.update((left, None) for left in with_partner[0])
        if how in ("left", "full", "anti"):
            out.update((row["l"], None) for row in self.left if row["l"] not in with_partner[0])
        if how in ("right", "full"):
            out.update((None, row["r"]) for row in self.right if row["r"] not in with_partner[1])
        return out


def check(case: Case, on_error: OnError = "dead", hows: Sequence[How] = HOWS, analyzer: Any = None) -> None:
    with case.run(flow(on_error, hows), analyzer or InPython({CONDITION: shares})) as t:
        told = {how: [(side, row[side]) for row in t.rows(f"{how}-late") for side in "lr" if row[side] is not None] for how in hows}
        assert all(Counter(late) == Counter(told[hows[0]]) for late in told.values())
        naive = Naive(case, set(told[hows[0]]))
        for how in hows:
            assert Counter((row.get("l"), row.get("r")) for row in t.rows(how)) == naive.rows(how), how
        letters = Counter((row["step"], *pair_of(row["row"])) for row in t.rows("dead"))
        dead = naive.dead if on_error == "dead" else {}
        assert letters == Counter({(f"{how}.where", *pair): n for how in hows for pair, n in dead.items()})
        assert all(t.fates(f"{how}.where").get("dead", 0) == sum(dead.values()) for how in hows)
        assert all(rows == known for _, rows, known in balance(t.fates()))


def pair_of(text: str) -> tuple[int, int]:
    row = json.loads(text)
    assert set(row) == {"k", "l", "n", "at", "r", "m", "rights_at"}, "both sides, whole"
    assert row["n"] == row["m"]
    return row["l"], row["r"]


@pytest.mark.parametrize("seed", range(3))
def test_pairs_that_fail_in_any_cut(seed: int) -> None:
    check(Case(seed))


def test_under_null_they_leave_no_letter_and_match_as_little() -> None:
    check(Case(0), "null")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 3 + cases(40)))
def test_pairs_that_fail_in_any_cut_at_length(seed: int) -> None:
    check(Case(seed), "null" if seed % 5 == 0 else "dead")


def a_pair_that_fails_matches(step: Any, rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    return rows.select(wanted.names).cast(wanted)


def only_pairs_of_new_rows_are_told(told: matched.Sides, port: int) -> pa.Table | None:
    return None if told.new[port] is None else RIGHT(told, port)


def rows_come_alone_though_matched_at_once(told: matched.Sides, port: int) -> pa.Table | None:
    return told.new[port]


RIGHT = matched.Sides.met_known
BUGS: dict[str, tuple[Any, str, Any]] = {
    "a pair for which the condition does not hold matches": (sql, "selected", a_pair_that_fails_matches),
    "rows in state do not hear of their match": (matched.Sides, "met_known", only_pairs_of_new_rows_are_told),
    "rows that match at once come out alone too": (matched.Sides, "lonely", rows_come_alone_though_matched_at_once),
    "letters come twice": (sql, "dead_letters", lambda *given: pa.concat_tables([LETTERS(*given)] * 2)),
}
LETTERS = sql.dead_letters


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches_planted_bugs(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, wrong = BUGS[bug]
    monkeypatch.setattr(place, name, wrong)
    for seed in range(20):
        try:
            check(Case(seed))
        except AssertionError:
            return
    pytest.fail(f"nobody noticed that {bug}")
