"""The rows that all databases take: one that any of them refuses is left out of all, so that they hold the same."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from penstock.sinks.stores.port import Changes, Refusal
from penstock.sinks.stores.two_phase.port import Preparable


class _SomeRefused(Exception):
    """What was written is undone."""


def agreed(transactions: Mapping[str, Preparable], changes: Changes) -> Sequence[Refusal]:
    """Writes to all of them, each under what it is called, without the rows that one of them refuses; these are named, with who
    refuses them."""
    refused: dict[int, str] = {}
    left = np.arange(changes.put.num_rows)
    while found := _attempted(transactions, Changes(changes.put.take(left) if refused else changes.put, changes.gone)):
        refused |= {int(left[row]): reason for row, reason in found.items()}
        left = np.delete(left, list(found))
    return [Refusal(row, reason) for row, reason in sorted(refused.items())]


def _attempted(transactions: Mapping[str, Preparable], changes: Changes) -> dict[int, str]:
    """The rows that are refused and why: then nothing is written."""
    found: dict[int, str] = {}
    try:
        with ExitStack() as undone:
            for called, transaction in transactions.items():
                undone.enter_context(transaction.undone())
                for refusal in transaction.write(changes):
                    found.setdefault(refusal.row, f"{called}: {refusal.reason}")
            if found:
                raise _SomeRefused
    except _SomeRefused:
        pass
    return found
