"""The laws hold for the real engine: log, epochs, decisions, state files, delivery and recovery, with crashes at random points."""

import os
from dataclasses import replace

import pytest

from amount import cases

from .blind import AFTER_A_MARK
from .cases import PLANS, Case, make_case
from .law import Broken, check
from .over_engine import OverEngine, prepared
from .reference.steps import Window
from .shrink import breaks, shrink

FIRST = int(os.environ.get("PENSTOCK_LAW_SEED", "0"))


def a_case(name: str, seed: int, blind: bool = False) -> Case:
    """A case as a log can hold it, with the aggregates that the flows here have."""
    case = prepared(make_case(name, seed), AFTER_A_MARK if blind else 0)
    flows = [
        [n._replace(step=replace(n.step, every_aggregate=False)) if isinstance(n.step, Window) else n for n in f]
        for f in case.flows
    ]
    return replace(case, flows=flows)


def law_holds(name: str, seeds: range, engine: OverEngine) -> None:
    for seed in seeds:
        case = a_case(name, seed, engine.blind)
        try:
            check(case, engine)
        except Broken:
            small = shrink(case, engine)
            pytest.fail(f"{small}\n{breaks(small, engine)}")


@pytest.mark.parametrize("headers", [True, False], ids=["own-time", "other-time"])
@pytest.mark.parametrize("name", PLANS)
def test_the_engine_gives_what_the_specification_says(name: str, headers: bool) -> None:
    law_holds(name, range(FIRST, FIRST + 3), OverEngine(headers))


@pytest.mark.parametrize("headers", [True, False], ids=["own-time", "other-time"])
@pytest.mark.parametrize("delay", [0, 4])
@pytest.mark.parametrize("name", ["tumbling", "join-left", "join-full", "late-window", "where-topic-window"])
def test_the_engine_gives_it_where_time_follows_the_clock(name: str, delay: int, headers: bool) -> None:
    law_holds(name, range(FIRST, FIRST + 3), OverEngine(headers, delay=delay))


@pytest.mark.parametrize("name", PLANS)
def test_the_engine_gives_it_over_a_log_without_headers_and_with_gaps(name: str) -> None:
    law_holds(name, range(FIRST, FIRST + 2), OverEngine(blind=True))


@pytest.mark.parametrize("name", ["tumbling", "join-full", "late-window", "where-topic-window"])
def test_the_engine_gives_it_there_where_time_follows_the_clock(name: str) -> None:
    law_holds(name, range(FIRST, FIRST + 4), OverEngine(blind=True, delay=4))


def test_a_partition_first_seen_gets_its_mark_although_nothing_else_happens() -> None:
    law_holds("tumbling", range(1080, 1081), OverEngine(True))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "engine", [OverEngine(True), OverEngine(False), OverEngine(blind=True)], ids=["own-time", "other-time", "blind"]
)
@pytest.mark.parametrize("name", PLANS)
def test_the_engine_gives_it_over_many_more_cases(name: str, engine: OverEngine) -> None:
    law_holds(name, range(FIRST + 1_000, FIRST + 1_000 + cases(40)), engine)
