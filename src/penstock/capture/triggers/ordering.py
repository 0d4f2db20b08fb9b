"""Changes of a transaction put into the order in which they happened to each row.

A trigger behind a statement comes after what the triggers of others have changed because of it: the second change of a row may be
noted down first. Each change tells the row before it and the row behind it, so that the right order of a row's changes is the one
in which each begins where the one before has ended."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow.compute as pc

from penstock.capture.port import Changes, Places
from penstock.core.arrow import filled

State = str | None  # a row as JSON; None: there is none


def in_order(changes: Changes) -> Changes:
    """The same changes of one table, those of each row within a transaction in their order. Where no order fits, or the given one
    does, they stand as they are given."""
    count = len(changes)
    if count < 2:
        return changes
    keys = changes.key.dictionary_encode().indices.to_numpy()
    order = np.lexsort((np.arange(count), keys, changes.transaction))
    same = (keys[order][1:] == keys[order][:-1]) & (changes.transaction[order][1:] == changes.transaction[order][:-1])
    if not same.any():
        return changes
    broken = same & ~_follows(changes, order)
    if not broken.any():
        return changes
    groups = np.cumsum(np.r_[True, ~same])
    places = np.arange(count)
    for group in np.unique(groups[1:][broken]).tolist():
        mine = order[groups == group]
        places[mine] = mine[_chained(_edges(changes, mine))]
    return _placed(changes, places)


def _follows(changes: Changes, order: Places) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which changes begin where the one before them in this order has ended."""
    before, after = filled(changes.before, "").take(order), filled(changes.after, "").take(order)
    return np.asarray(pc.equal(before.slice(1), after.slice(0, len(order) - 1)))


def _edges(changes: Changes, places: Places) -> list[tuple[State, State]]:
    before, after = changes.before.take(places).to_pylist(), changes.after.take(places).to_pylist()
    return list(zip(before, after, strict=True))


def _chained(edges: Sequence[tuple[State, State]]) -> Places:
    """The order of changes in which each begins where the last one ended, all of them in it; else as they stand. It begins where
    more changes begin than end, and prefers those that stand first."""
    states = [state for edge in edges for state in edge]
    first = next((s for s in states if sum(e[0] == s for e in edges) > sum(e[1] == s for e in edges)), edges[0][0])
    path, stack = list[int](), [(first, -1)]
    left = {state: [n for n, edge in reversed(list(enumerate(edges))) if edge[0] == state] for state in states}
    while stack:  # Hierholzer: all edges of a graph in one path
        state, via = stack[-1]
        if left[state]:
            number = left[state].pop()
            stack.append((edges[number][1], number))
        else:
            path.append(via)
            stack.pop()
    found = [number for number in reversed(path) if number >= 0]
    fits = len(found) == len(edges) and all(edges[a][1] == edges[b][0] for a, b in pairwise(found))
    return np.array(found if fits else range(len(edges)), np.int64)


def _placed(changes: Changes, places: Places) -> Changes:
    """At each place the change that belongs there, under the index of the place."""
    key, before, after = (each.take(places) for each in (changes.key, changes.before, changes.after))
    return replace(changes, op=changes.op[places], key=key, before=before, after=after)
