"""What windows promise beside the specification: corrections come to the batch result, overlap to the sum of its panes."""

import os
from dataclasses import replace

import pytest

from amount import cases

from .cases import Case, SourceCut, make_case
from .law import Outcome
from .over_kernels import OverKernels
from .reference.log import Entry
from .reference.steps import Window, total
from .reference.values import FOREVER

FIRST = int(os.environ.get("PENSTOCK_LAW_SEED", "0"))
LONG = 2**40


def with_window(name: str, seed: int, step: Window) -> Case:
    case = make_case(name, seed)
    return replace(case, flows=[[case.flows[0][0]._replace(step=step)]])


def without_ends(case: Case) -> Case:
    """No mark says that nothing more will come: a row behind it could not be corrected."""

    def open_ended(cuts: dict[str, SourceCut] | None) -> dict[str, SourceCut] | None:
        return cuts and {name: replace(c, marks=tuple(m for m in c.marks if m[1] < FOREVER)) for name, c in cuts.items()}

    return replace(case, cuts=[replace(c, sources=open_ended(c.sources), lost=open_ended(c.lost)) for c in case.cuts])


def all_on_time(case: Case) -> Case:
    """No marks but that of the end, and a lateness beyond all disorder."""
    sources = [
        replace(s, lateness=LONG, partitions=[[e for e in p if isinstance(e, Entry)] for p in s.partitions]) for s in case.sources
    ]
    *cuts, last = [
        replace(c, lost=None, sources={n: replace(one, marks=(), idle=frozenset()) for n, one in c.sources.items()})
        for c in case.cuts
    ]
    ends = {name: replace(c, marks=tuple((p, FOREVER) for p in range(len(c.counts)))) for name, c in last.sources.items()}
    return replace(case, sources=sources, cuts=[*cuts, replace(last, sources=ends)])


def rows(case: Case) -> list[Entry]:
    entries = [(s, e) for s in case.sources for p in s.partitions for e in p if isinstance(e, Entry)]
    return [e for s, e in entries if s.plausible(e)]


def shown(outcome: Outcome) -> dict[tuple[str | None, int], tuple[int, int | None]]:
    """(key, end - 1) -> number and sum."""
    return {(key, t): val[:2] for t, key, val, _ in outcome.nodes["0/out"].rows}


@pytest.mark.parametrize("every", [0, 2, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 5))])
def test_with_enough_time_to_correct_every_window_is_that_of_a_batch_over_all_rows(every: int) -> None:
    late = 0
    for seed in range(FIRST, FIRST + cases(30)):
        case = with_window("changing", seed, Window(4, "correct", every=every, allowed=LONG, emit="updates"))
        outcome = OverKernels()(without_ends(case))
        batch: dict[tuple[str | None, int], list[int | None]] = {}
        for e in rows(case):
            for start in case.flows[0][0].step.starts(e.t):  # type: ignore[union-attr]
                batch.setdefault((e.key, start + 3), []).append(e.val)
        assert shown(outcome) == {window: (len(vals), total(vals)) for window, vals in batch.items()}, seed
        assert not outcome.nodes["0/out"].late
        late += outcome.nodes["0/out"].fates["corrected"]
    assert late > 25, "cases without late rows show nothing"


@pytest.mark.parametrize("overlap", [3, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 6))])
def test_a_hopping_window_is_the_sum_of_its_panes(overlap: int) -> None:
    windows = 0
    for seed in range(FIRST, FIRST + cases(30)):
        case = with_window("hopping", seed, Window(2 * overlap, "divert", every=2))
        case = all_on_time(case)
        hopping = shown(OverKernels()(case))
        panes = shown(OverKernels()(replace(case, flows=[[case.flows[0][0]._replace(step=Window(2, "divert"))]])))
        for (key, last), (n, amount) in hopping.items():
            mine = [panes[key, t] for t in range(last - 2 * overlap + 2, last + 1, 2) if (key, t) in panes]
            assert n == sum(p[0] for p in mine), seed
            assert amount == total([p[1] for p in mine]), seed
        windows += len(hopping)
    assert windows > 50, "cases without complete windows show nothing"
