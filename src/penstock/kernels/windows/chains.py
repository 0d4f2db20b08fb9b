"""Which fragments of a key make one session: those less than a gap apart, cut where a session would be too long.

A fragment is a stretch of time [first, last] whose rows are known to belong together; a single row is one.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.kernels.keyed import codes

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Chains(NamedTuple):
    """Sessions are numbered from 0 on, by key and time."""

    numbers: Longs  # of each fragment: its session
    firsts: Longs  # of each session: the first and the last time,
    lasts: Longs
    keys: Longs  # and its key


def chained(keys: Longs, firsts: Longs, lasts: Longs, gap: int) -> Chains:
    """Fragments of a key less than `gap` apart belong together."""
    order = _in_order(keys, firsts)
    keys, firsts = keys[order], firsts[order]
    reached = _greatest_so_far(keys, lasts[order])
    starts = _changes(keys)
    starts[1:] |= firsts[1:] - reached[:-1] >= gap
    return _numbered(order, starts, keys, firsts, reached)


def cut(keys: Longs, times: Longs, gap: int, longest: int) -> Chains:
    """The same of instants, in their order; one that lies `longest` or more behind the first of its session begins the next."""
    order = _in_order(keys, times)
    keys, times = keys[order], times[order]
    starts = _changes(keys)
    starts[1:] |= times[1:] - times[:-1] >= gap
    starts = _reached(np.flatnonzero(starts), _next(starts, times, longest))
    return _numbered(order, starts, keys, times, times)


def alike(keys: Longs, times: Longs) -> Chains:
    """Instants of a key at the same time."""
    order = _in_order(keys, times)
    keys, times = keys[order], times[order]
    starts = _changes(keys)
    starts[1:] |= times[1:] != times[:-1]
    return _numbered(order, starts, keys, times, times)


def _in_order(keys: Longs, firsts: Longs) -> Longs:
    return np.argsort(codes(keys, firsts)[0])


def _changes(keys: Longs) -> Mask:
    starts = np.ones(len(keys), np.bool_)
    starts[1:] = keys[1:] != keys[:-1]
    return starts


def _greatest_so_far(keys: Longs, values: Longs) -> Longs:
    """The running maximum within each key; keys do not fall."""
    if not len(values):
        return values
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span * (int(keys[-1]) + 1) < 2**63:
        return np.asarray(np.maximum.accumulate(keys * span + (values - least)) - keys * span + least)
    known, ranks = np.unique(values, return_inverse=True)  # too far apart: their ranks will do
    base = keys * len(known)
    return np.asarray(known[np.maximum.accumulate(base + ranks) - base])


def _next(starts: Mask, times: Longs, longest: int) -> Longs:
    """For each instant, were it the first of a session, which one would begin the next."""
    passed = np.diff(times, prepend=times[:1])
    passed[starts] = 0
    since = np.cumsum(passed)  # the time within chains alone, so that it rises through all of them
    bounds = np.append(np.flatnonzero(starts), len(times))
    return np.asarray(np.minimum(np.searchsorted(since, since + longest), np.repeat(bounds[1:], np.diff(bounds))))


def _reached(roots: Longs, following: Longs) -> Mask:
    """What is reached from the roots step by step: each round doubles the number of steps taken."""
    n = len(following)
    jump, found = np.append(following, n), np.zeros(n + 1, np.bool_)
    found[roots] = True
    count = -1
    while count != (count := int(np.count_nonzero(found[:n]))):
        found[jump[np.flatnonzero(found)]] = True
        jump = jump[jump]
    return found[:n]


def _numbered(order: Longs, starts: Mask, keys: Longs, firsts: Longs, reached: Longs) -> Chains:
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(starts) - 1
    at = np.flatnonzero(starts)
    ends = np.append(at[1:], len(order))[: len(at)] - 1
    return Chains(numbers, firsts[at], reached[ends], keys[at])
