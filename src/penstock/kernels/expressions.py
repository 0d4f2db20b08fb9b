"""Expressions of the white list in Polars, with exactly Spark's meaning.

Null logic is three-valued, NaN equals itself and is the greatest number, -0.0 equals 0.0, `%` takes the sign of the number divided.
"""

import functools
import math
import operator
from collections.abc import Callable

import polars as pl
import pyarrow as pa

from penstock.core.expression import Call, Column, Literal, Tree

_COMPARE: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_FLOATS: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def compile(tree: Tree) -> pl.Expr:
    """The tree as a Polars expression over columns of the same names; always as long as the frame, also where it is a constant."""
    if isinstance(tree, Literal):
        return _constant(tree)
    return _expr(tree)


def _constant(literal: Literal) -> pl.Expr:
    if literal.value is not None and pa.types.is_timestamp(literal.type):
        return pl.repeat(literal.value, pl.len(), dtype=pl.Int64).cast(_dtype(literal.type))
    return pl.repeat(literal.value, pl.len(), dtype=_dtype(literal.type))


def _expr(tree: Tree) -> pl.Expr:
    match tree:
        case Column(name, _):
            return pl.col(name)
        case Literal(value, t):
            return _literal(value, t)
        case Call("and" | "or" as op, (left, right), _):
            return _expr(left) & _expr(right) if op == "and" else _expr(left) | _expr(right)
        case Call("not", (inner,), _):
            return ~_expr(inner)
        case Call("is_null", (inner,), _):
            return _expr(inner).is_null()
        case Call("in", (value, *items), _):
            return _in(value, items)
        case Call("%", (left, Literal(divisor, _)), t):
            return _remainder(_expr(left).cast(_dtype(t)), divisor)
        case Call("neg", (inner,), _):
            return _expr(inner) * -1.0
        case Call(op, (left, right), _) if op in _ARITHMETIC:
            return _arithmetic(op, left, right)
        case Call(op, (left, right), _) if op in _COMPARE:
            return _COMPARE[op](*_alike(left, right))
    raise ValueError(f"an expression of the white list has no {tree}")


def _arithmetic(op: str, left: Tree, right: Tree) -> pl.Expr:
    """+ - * of doubles. Polars leaves out a zero that is the same for all rows, and -0.0 + 0.0 is 0.0."""
    first, second = _worked_out(left), _worked_out(right)
    if op != "*" and second == 0 and first is None:
        zero = second if op == "+" else -second
        return _double(left) if math.copysign(1, zero) < 0 else unsigned(_double(left))
    if op != "*" and first == 0 and second is None:
        added = _double(right) if op == "+" else _double(right) * -1.0
        return added if math.copysign(1, first) < 0 else unsigned(added)
    return _ARITHMETIC[op](_double(left), _double(right))


def _double(tree: Tree) -> pl.Expr:
    value = _worked_out(tree)
    return _expr(tree).cast(pl.Float64()) if value is None else pl.lit(value, dtype=pl.Float64())


def unsigned(values: pl.Expr) -> pl.Expr:
    """0.0 for -0.0: what is left of it when 0.0 is added."""
    return pl.when(values == 0.0).then(0.0).otherwise(values)


def _worked_out(tree: Tree) -> float | None:
    """The value of a number that no row changes; None where there is a column in it."""
    match tree:
        case Literal(int() | float() as value, _):
            return float(value)
        case Call("neg", (inner,), _):
            given = _worked_out(inner)
            return None if given is None else -given
        case Call(op, (left, right), _) if op in _ARITHMETIC:
            first, second = _worked_out(left), _worked_out(right)
            return None if first is None or second is None else _FLOATS[op](first, second)
    return None


def _literal(value: object, t: pa.DataType) -> pl.Expr:
    if pa.types.is_timestamp(t):
        return pl.lit(value, dtype=pl.Int64).cast(_dtype(t))
    return pl.lit(value, dtype=_dtype(t))


def _alike(left: Tree, right: Tree) -> tuple[pl.Expr, pl.Expr]:
    """Both sides as the type under which Spark compares them: double if one of them has a fraction, else the wider integer."""
    if left.type == right.type:
        return _expr(left), _expr(right)
    floating = pa.types.is_floating(left.type) or pa.types.is_floating(right.type)
    common = pl.Float64() if floating else pl.Int64()
    return _expr(left).cast(common), _expr(right).cast(common)


def _in(value: Tree, items: list[Tree]) -> pl.Expr:
    """True where an item is equal, else null where one is null, else false; null where the value is."""
    known = [i for i in items if isinstance(i, Literal) and i.value is not None]
    found = _among(value, known)
    return found if len(known) == len(items) else found | pl.lit(None, dtype=pl.Boolean())


def _among(value: Tree, items: list[Literal]) -> pl.Expr:
    if pa.types.is_floating(items[0].type) or pa.types.is_temporal(items[0].type):
        return functools.reduce(operator.or_, (_COMPARE["="](*_alike(value, i)) for i in items))
    wide = pl.Int64() if pa.types.is_integer(items[0].type) else _dtype(items[0].type)
    return _expr(value).cast(wide).is_in([i.value for i in items])


def _remainder(value: pl.Expr, divisor: int) -> pl.Expr:
    """The remainder of a division towards zero; Polars' own goes down."""
    size = abs(divisor)
    down = value % size
    return pl.when((value < 0) & (down != 0)).then(down - size).otherwise(down)


@functools.cache
def _dtype(t: pa.DataType) -> pl.DataType:
    return pl.Series(values=pa.array([], t)).dtype
