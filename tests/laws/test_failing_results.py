"""Own aggregates whose result fails for some groups, in any cut: these are dead, and all others come out (G26)."""

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from amount import cases
from penstock import Count, Flow, FlowTest, Hopping, Session, Sliding, Tumbling, agg
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.progress import balance
from penstock.kernels.aggregates import unanswered
from penstock.kernels.windows import running
from penstock.plan import OnError

ROWS = 24
CRASHES = ("after_run", "before_decide", "after_decide")
Row = dict[str, Any]
Steps = dict[str, Callable[[Any, Any, OnError, str], Any]]

ONCE: Steps = {  # rows stay as they are, so each failing result has one letter
    "tumbling": lambda s, own, e, name: s.window(Tumbling("10 seconds"), by="k").agg(total=own, name=name, on_error=e),
    "hopping": lambda s, own, e, name: s.window(Hopping("10 seconds", "5 seconds"), by="k").agg(total=own, name=name, on_error=e),
    "sliding": lambda s, own, e, name: s.window(Sliding("10 seconds"), by="k").agg(total=own, name=name, on_error=e),
    "count": lambda s, own, e, name: s.window(Count(2), by="k").agg(total=own, name=name, on_error=e),
    "session": lambda s, own, e, name: s.window(Session("3 seconds"), by="k").agg(total=own, name=name, on_error=e),
}
CHANGING: Steps = {
    "corrected": lambda s, own, e, name: s.window(Tumbling("10 seconds"), by="k", late="correct", allowed="1 minute").agg(
        total=own, name=name, on_error=e
    ),
    "sessions": lambda s, own, e, name: s.window(Session("3 seconds"), by="k", emit="updates").agg(
        total=own, name=name, on_error=e
    ),
    "early": lambda s, own, e, name: s.window(Session("3 seconds"), by="k", early="4 seconds").agg(
        total=own, name=name, on_error=e
    ),
    "running": lambda s, own, e, name: s.group_by("k").agg(total=own, name=name, on_error=e),
    "kept": lambda s, own, e, name: s.group_by("k", keep="1 hour").agg(total=own, name=name, on_error=e),
    "table": lambda s, own, e, name: s.latest(by=["k", "m"], name=f"{name}-of").group_by("k").agg(total=own, name=name, on_error=e),
}


def added(state: int, rows: Any) -> int:
    return state + sum(rows["n"].to_pylist())


def result(total: int) -> int:
    if total % 3 == 0:
        raise ValueError(f"{total} of three")
    return total * 10


def flow(on_error: OnError = "dead") -> Flow:
    made = Flow("law", dead_limit=None)
    rows = made.stream("rows", "k string, m long, n long, at timestamp", time="at", lateness="5 seconds")
    states: dict[str, Any] = {"init": lambda: 0, "add": added, "merge": lambda a, b: a + b, "type": "long"}
    for name, step in (ONCE | CHANGING).items():
        step(rows, agg.own("n", **states), "dead", f"plain-{name}").view(f"plain-{name}")
        told = step(rows, agg.own("n", result=result, **states), on_error, name)
        told.view(name)
        if name in CHANGING:
            told.group_by().agg(sum=agg.sum("total"), name=f"sum-{name}").view(f"sum-{name}")
    return made


class Case:
    """Random rows in two partitions, read in random pieces."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"failing results {seed}")
        self.rows, second = list[tuple[int, Row]](), 0
        for _ in range(ROWS):
            second += self.rng.choice([0, 1, 2, 5])
            at = max(second - self.rng.choice([0, 0, 0, 9]), 0)
            row = {"k": self.rng.choice("ab"), "m": self.rng.randrange(3), "n": self.rng.randrange(1, 5)}
            self.rows.append((self.rng.randrange(2), row | {"at": f"2024-01-15T10:{at // 60:02d}:{at % 60:02d}Z"}))

    def run(self, on_error: OnError) -> FlowTest:
        t = flow(on_error).test(buckets=self.rng.choice([1, 3]))
        t.topic("rows", partitions=2)
        waiting = list(self.rows)
        while waiting:
            count = self.rng.randrange(1, 9)
            for partition, row in waiting[:count]:
                t.send("rows", row, partition=partition)
            del waiting[:count]
            cut = self.rng.choice([1, 3, None])
            if self.rng.random() < 0.3 and t.driver.worth_it(t.driver.open(EpochRequest())):
                t.crash(self.rng.choice(CRASHES), cut)
            else:
                t.epoch(cut)
        t.end()
        return t


def named(row: Row) -> tuple[Any, ...]:
    """A result without its value: what group it is of."""
    return tuple(str(value)[:19].replace("T", " ") for name, value in sorted(row.items()) if name not in ("total", "cause"))


def check(case: Case, on_error: OnError = "dead") -> None:
    with case.run(on_error) as t:
        letters: dict[str, Counter[Any]] = {}
        for letter in t.rows("dead"):
            assert letter["expression"] == "agg.own total"
            assert letter["topic"] == ("rows" if letter["step"] == "sliding.result" else None), "the others are made from several"
            assert "of three" in letter["reason"]
            letters.setdefault(letter["step"], Counter())[named(json.loads(letter["row"]))] += 1
        for name in ONCE | CHANGING:
            plain = t.rows(f"plain-{name}")
            failing = [row for row in plain if row["total"] % 3 == 0]
            shown = {"dead": [], "null": [(*named(row), None) for row in failing]}[on_error]
            good = [(*named(row), row["total"] * 10) for row in plain if row["total"] % 3]
            assert Counter((*named(row), row["total"]) for row in t.rows(name)) == Counter([*good, *shown]), name
            told = letters.get(f"{name}.result", Counter())
            if name in ONCE:
                assert told == (Counter(map(named, failing)) if on_error == "dead" else Counter()), name
            elif on_error == "dead":
                assert set(map(named, failing)) <= set(told), name
            if name in CHANGING:
                ((sum_,),) = ([row["sum"] for row in t.rows(f"sum-{name}")] or [None],)
                assert (sum_ or 0) == sum(total for *_, total in good), name
        assert all(rows == known for _, rows, known in balance(t.fates()))


def test_results_that_fail_in_any_cut() -> None:
    check(Case(1))


def test_under_null_they_are_null() -> None:
    check(Case(0), "null")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 2 + cases(30)))
def test_results_that_fail_in_any_cut_at_length(seed: int) -> None:
    check(Case(seed), "null" if seed % 6 == 0 else "dead")


def nothing_failed(rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    return PARTED(rows)[0], None


def a_row_stays_that_has_no_result_now(rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    good, failed = PARTED(rows)
    return good if failed is None else pa.concat_tables([good, failed.drop_columns([unanswered.FAILED])]), failed


PARTED = unanswered.parted
BUGS: dict[str, tuple[Any, Any]] = {
    "a result that fails leaves no letter": (unanswered, nothing_failed),
    "a key stays whose result fails": (running, a_row_stays_that_has_no_result_now),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches_planted_bugs(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, wrong = BUGS[bug]
    monkeypatch.setattr(place, "parted", wrong)
    for seed in range(5):
        try:
            check(Case(seed))
        except AssertionError:
            return
    pytest.fail(f"nobody noticed that {bug}")
