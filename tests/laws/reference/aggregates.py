"""What aggregates are by their definition, of all values of a group at once; nulls are left out."""

import math
from collections.abc import Callable, Sequence
from decimal import localcontext
from fractions import Fraction
from typing import Any

Values = Sequence[Any]


def total(values: Values, fits: Callable[[Any], bool]) -> Any:
    """Exact, and null where it does not fit its type."""
    if not values:
        return None
    if isinstance(values[0], float):
        return added(values)
    with localcontext(prec=80):
        exact = sum(values, values[0] * 0)
    return exact if fits(exact) else None


def added(values: Sequence[float]) -> float:
    return math.fsum(values) if all(map(math.isfinite, values)) else sum(values, 0.0)


def mean(values: Values) -> float | None:
    if not values:
        return None
    return added(values) / len(values) if isinstance(values[0], float) else float(sum(map(Fraction, values)) / len(values))


def variance(values: Values, off: int) -> float | None:
    """Divided by n - off; NaN where a value is not finite."""
    if len(values) <= off:
        return None
    if any(isinstance(v, float) and not math.isfinite(v) for v in values):
        return math.nan
    exact = list(map(Fraction, values))
    middle = sum(exact) / len(exact)
    return float(sum((v - middle) ** 2 for v in exact) / (len(exact) - off))


def greatest(values: Values) -> Any:
    """NaN is greater than every number."""
    nans = [v for v in values if v != v]
    return nans[0] if nans else max(map(unsigned, values), default=None)


def least(values: Values) -> Any:
    numbers = [v for v in values if v == v]
    return min(map(unsigned, numbers)) if numbers else values[0] if values else None


def unsigned(value: Any) -> Any:
    """-0.0 is 0.0."""
    return value + 0.0 if isinstance(value, float) else value
