"""The type of each aggregate's result, or why it has none."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from penstock.core.schema import type_text
from penstock.flow.place import At, keyable

if TYPE_CHECKING:
    from penstock.flow.steps.aggregates import Agg


def result_type(given: "Agg", t: pa.DataType, at: At, others: Sequence[pa.DataType] = ()) -> pa.DataType:
    """The type of the aggregate over values of type t (and others, of the further columns), or BadFlow where it has none."""
    if given.function == "top":
        _ordered(given, others[0], at, given.others[0])
    return _OWN_RULE[given.function](given, t, at) if given.function in _OWN_RULE else given.options[-1]


def _long(given: "Agg", t: pa.DataType, at: At) -> pa.DataType:
    return pa.int64()


def _same(given: "Agg", t: pa.DataType, at: At) -> pa.DataType:
    return t


def _list(given: "Agg", t: pa.DataType, at: At) -> pa.DataType:
    return pa.list_(t)


def _ordered(given: "Agg", t: pa.DataType, at: At, column: str | None = None) -> pa.DataType:
    return t if keyable(t) else _refuse(given, t, at, "its values have no order", "take a part that has one", column)


def _told_apart(given: "Agg", t: pa.DataType, at: At) -> pa.DataType:
    if not keyable(t):
        _refuse(given, t, at, "its values cannot be told apart", "take a part that can")
    return pa.int64()


def _condition(result: pa.DataType) -> "_Rule":
    def rule(given: "Agg", t: pa.DataType, at: At) -> pa.DataType:
        if not pa.types.is_boolean(t):
            _refuse(given, t, at, "it takes a condition", f'write what is true or false, e.g. agg.{given.function}("amount > 100")')
        return result

    return rule


def _sum(given: "Agg", t: pa.DataType, at: At) -> pa.DataType:
    if pa.types.is_decimal(t):
        return pa.decimal128(min(38, t.precision + 10), t.scale)
    return pa.int64() if pa.types.is_integer(t) else _double(given, t, at)


def _average(given: "Agg", t: pa.DataType, at: At) -> pa.DataType:
    if pa.types.is_decimal(t):
        return pa.decimal128(min(38, t.precision + 4), min(38, t.scale + 4))
    return _double(given, t, at)


def _double(given: "Agg", t: pa.DataType, at: At) -> pa.DataType:
    if not (pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t)):
        more = ", 0.95" if given.function == "quantile" else ""
        hint = f'make numbers of it first, e.g. agg.{given.function}("cast({given.column} as double)"{more})'
        _refuse(given, t, at, "it takes numbers", hint)
    return pa.float64()


_Rule = Callable[["Agg", pa.DataType, At], pa.DataType]
_OWN_RULE: dict[str, _Rule] = {
    "count": _long,
    "count_if": _condition(pa.int64()),
    "ratio": _condition(pa.float64()),
    "sum": _sum,
    "avg": _average,
    "var": _double,
    "stddev": _double,
    "quantile": _double,
    "min": _ordered,
    "max": _ordered,
    "first": _same,
    "last": _same,
    "collect": _list,
    "top": _list,
    "distinct": _told_apart,
}


def _refuse(given: "Agg", t: pa.DataType, at: At, why: str, hint: str, column: str | None = None) -> NoReturn:
    at.refuse(f"cannot take {given.function} of {column or given.column!r}, which is {type_text(t)}: {why}", hint=hint)
