"""Makes a case that breaks the law small enough to be read."""

from dataclasses import replace

from .cases import Case
from .law import Broken, Implementation, check
from .reference.log import Source


def breaks(case: Case, implementation: Implementation) -> Broken | None:
    try:
        check(case, implementation)
    except Broken as broken:
        return broken
    return None


def shrink(case: Case, implementation: Implementation) -> Case:
    """Drops epochs and entries as long as the law stays broken."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _without_one(case):
            if breaks(candidate, implementation):
                case, smaller = candidate, True
                break
    return case


def _without_one(case: Case) -> list[Case]:
    last = 2 * len(case.flows)  # what reads everything that is left has to stay
    cuts = [replace(case, cuts=case.cuts[:i] + case.cuts[i + 1 :]) for i in range(len(case.cuts) - last)]
    return cuts + [
        replace(case, sources=[_dropped(s, p, k) if s is source else s for s in case.sources])
        for source in case.sources
        for p, entries in enumerate(source.partitions)
        for k in range(len(entries))
    ]


def _dropped(source: Source, p: int, k: int) -> Source:
    partitions = [list(entries) for entries in source.partitions]
    del partitions[p][k]
    return replace(source, partitions=partitions)
