"""Aggregates: what a window says about its rows. Types are those of Spark."""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from penstock.core.schema import type_text
from penstock.flow.place import At, keyable

Function = Literal["count", "sum", "avg", "min", "max"]


@dataclass(frozen=True)
class Agg:
    """An aggregate before it has a name: `agg.sum("amount")`. The column may be any Spark SQL expression."""

    function: Function
    column: str | None = None


class agg:
    """The aggregates that a window offers; each ignores nulls, except `count()` of rows."""

    @staticmethod
    def count(column: str | None = None) -> Agg:
        """The number of rows, or of rows in which the column is not null."""
        return Agg("count", column)

    @staticmethod
    def sum(column: str) -> Agg:
        """The sum: of integers a long, of floats a double, of decimals one with ten more digits; null without a value."""
        return Agg("sum", column)

    @staticmethod
    def avg(column: str) -> Agg:
        """The mean, a double; null if there is no value."""
        return Agg("avg", column)

    @staticmethod
    def min(column: str) -> Agg:
        """The least value; NaN counts as the greatest."""
        return Agg("min", column)

    @staticmethod
    def max(column: str) -> Agg:
        """The greatest value; NaN counts as the greatest."""
        return Agg("max", column)


def result_type(given: Agg, t: pa.DataType, at: At) -> pa.DataType:
    """The type of the aggregate over values of type t, or BadFlow where it has none."""
    if given.function == "count":
        return pa.int64()
    if given.function in ("min", "max"):
        return t if keyable(t) else _refuse(given, t, at, "its values have no order", hint="take a part that has one")
    if pa.types.is_decimal(t):
        if given.function == "avg":
            _refuse(
                given,
                t,
                at,
                "its digits would be rounded",
                hint=f'take the mean of doubles: agg.avg("cast({given.column} as double)")',
            )
        return pa.decimal128(min(38, t.precision + 10), t.scale)
    if pa.types.is_integer(t):
        return pa.int64() if given.function == "sum" else pa.float64()
    if pa.types.is_floating(t):
        return pa.float64()
    return _refuse(
        given,
        t,
        at,
        "it takes numbers",
        hint=f'make numbers of it first, e.g. agg.{given.function}("cast({given.column} as double)")',
    )


def _refuse(given: Agg, t: pa.DataType, at: At, why: str, hint: str | None = None) -> pa.DataType:
    at.refuse(f"cannot take {given.function} of {given.column!r}, which is {type_text(t)}: {why}", hint=hint)
