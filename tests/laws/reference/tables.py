"""Joins and aggregates of tables by their definition: from all rows that are there now."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Pair = tuple[Row | None, Row | None]


def same(a: Any, b: Any) -> bool:
    """As in SQL null equals nothing; as in Spark NaN equals NaN."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return a is not None and b is not None and bool(a == b)


def match(left: Row, right: Row, on: Sequence[str]) -> bool:
    return all(same(left[name], right[name]) for name in on)


def joined(lefts: Sequence[Row], rights: Sequence[Row], on: Sequence[str], how: str) -> list[Pair]:
    """The pairs of a join; of a semi or an anti join the left rows."""
    pairs: list[Pair] = [(left, right) for left in lefts for right in rights if match(left, right, on)]
    without = [left for left in lefts if not any(match(left, right, on) for right in rights)]
    if how == "semi":
        return [(left, None) for left in lefts if left not in without]
    if how == "anti":
        return [(left, None) for left in without]
    if how in ("left", "full"):
        pairs += [(left, None) for left in without]
    if how in ("right", "full"):
        pairs += [(None, right) for right in rights if not any(match(left, right, on) for left in lefts)]
    return pairs


def grouped(rows: Sequence[Row], by: Sequence[str]) -> list[list[Row]]:
    """The rows of each group; null and NaN are values like any other."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(_value(row[name]) for name in by), []).append(row)
    return list(groups.values())


def _value(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
