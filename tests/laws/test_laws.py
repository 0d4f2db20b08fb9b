"""Any cut, any buckets, any crash: rows, fates and frontiers are those of the specification.

PENSTOCK_LAW_SEED moves the cases that are tried; a failure prints its seed and the smallest case that was found.
"""

import os
from collections.abc import Callable

import pytest

from amount import cases
from colliding import colliding

from .cases import PLANS, Case, make_case, with_keys
from .law import Broken, Implementation, check
from .over_kernels import OverKernels
from .shrink import breaks, shrink

FIRST = int(os.environ.get("PENSTOCK_LAW_SEED", "0"))
KERNELS = (
    "tumbling",
    "hopping",
    "changing",
    "session",
    "changing-session",
    "running",
    "sliding",
    "count",
    "alert",
    "alert-over-changing",
    "alert-over-sessions",
    "alert-over-running",
    "join-inner",
    "join-left",
    "join-right",
    "join-full",
    "join-semi",
    "join-anti",
    "join-where",
    "enrich",
    "enrich-correct",
    "enrich-now",
)
CHAINS = tuple(name for name in PLANS if name not in KERNELS)
# With so many cases nearly every bug that test_planted_bugs.py plants in a kernel is met; two of them take more than 80.
MORE = {"tumbling": 60, "running": 60, "sliding": 60, "count": 60, "alert": 60, "join-left": 60, "join-full": 70}
QUICK = dict.fromkeys(KERNELS, 40) | MORE
# Cases in two of eight blocks: a thousand and more for every kernel, of which some have several plans.
BLOCK = dict.fromkeys(KERNELS, 250) | {
    "join-inner": 120,
    "join-left": 120,
    "join-right": 80,
    "join-full": 80,
    "join-semi": 80,
    "join-anti": 80,
    "join-where": 80,
    "enrich": 120,
    "enrich-correct": 120,
    "enrich-now": 60,
    "hopping": 100,
    "changing": 150,
    "session": 120,
    "changing-session": 130,
    "running": 230,
    "sliding": 230,
    "count": 230,
}
KERNELS_ALONE = OverKernels()


def law_holds(
    name: str, seeds: range, implementation: Implementation = KERNELS_ALONE, made: Callable[[Case], Case] = lambda case: case
) -> None:
    for seed in seeds:
        case = made(make_case(name, seed))
        try:
            check(case, implementation)
        except Broken:
            small = shrink(case, implementation)
            pytest.fail(f"{small}\n{breaks(small, implementation)}")


@pytest.mark.parametrize("name", KERNELS)
def test_any_cut_gives_what_the_specification_says(name: str) -> None:
    law_holds(name, range(FIRST, FIRST + QUICK[name]))


@pytest.mark.long
@pytest.mark.parametrize("block", range(8))
@pytest.mark.parametrize("name", KERNELS)
def test_any_cut_gives_what_the_specification_says_at_length(name: str, block: int) -> None:
    size = BLOCK[name] // 2
    law_holds(name, range(FIRST + block * size, FIRST + (block + 1) * size))


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_steps_give_what_the_specification_says(name: str) -> None:
    law_holds(name, range(FIRST, FIRST + 25))


@pytest.mark.parametrize("name", KERNELS)
def test_keys_of_one_hash_are_still_different_keys(name: str) -> None:
    law_holds(name, range(FIRST, FIRST + 20), made=lambda case: with_keys(case, colliding(3)))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANS)
def test_the_laws_hold_over_many_more_cases(name: str) -> None:
    law_holds(name, range(FIRST + 10_000, FIRST + 10_000 + cases(600)))
