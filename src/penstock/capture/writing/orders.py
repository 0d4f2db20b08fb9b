"""The numbers of changes in their transactions, and how many each transaction has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.capture.port import Changes, Places, Table

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Orders:
    """The number of each change of a table in its transaction, from 1: over all tables, and over this table alone."""

    total: Places
    of_table: Places


def orders_of(changes: Sequence[Changes], before: Mapping[Table, int]) -> list[Orders]:
    """The numbers of these changes. before: how many the first transaction had of each table in earlier batches."""
    transaction = np.concatenate([_NONE, *(each.transaction for each in changes)])
    index = np.concatenate([_NONE, *(each.index for each in changes)])
    total = _numbered(transaction, index, sum(before.values()))
    cuts = np.cumsum([len(each) for each in changes])[:-1]
    return [
        Orders(part, _numbered(each.transaction, each.index, before.get(each.table, 0)))
        for part, each in zip(np.split(total, cuts), changes, strict=False)
    ]


def counts_of(changes: Sequence[Changes], transactions: int, before: Mapping[Table, int]) -> dict[Table, Places]:
    """How many changes of each table each of the transactions has."""
    counts = {table: np.zeros(transactions, np.int64) for table in (*before, *(each.table for each in changes))}
    for table, more in before.items():
        counts[table][:1] += more
    for each in changes:
        counts[each.table] += np.bincount(each.transaction, minlength=transactions)
    return counts


def _numbered(transaction: Places, index: Places, before: int) -> Places:
    """Numbers from 1 in each transaction, by index; the first transaction has had some before."""
    order = np.lexsort((index, transaction))
    runs = transaction[order]
    begins = np.flatnonzero(np.r_[True, runs[1:] != runs[:-1]]) if len(runs) else _NONE
    places = np.arange(1, len(runs) + 1) - np.repeat(begins, np.diff(np.r_[begins, len(runs)]))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = places + before * (runs == 0)
    return numbers
