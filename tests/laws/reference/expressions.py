"""What expressions of the white list mean in Spark, of one row, written from the definition."""

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.core.expression import Call, Column, Literal, Tree


def value_of(tree: Tree, row: Mapping[str, Any]) -> Any:
    """The value for a row; null is None."""
    if isinstance(tree, Column):
        return row[tree.name]
    if isinstance(tree, Literal):
        return tree.value
    if tree.op in ("and", "or"):
        return _logic(tree.op == "and", [value_of(arg, row) for arg in tree.args])
    if tree.op == "is_null":
        return value_of(tree.args[0], row) is None
    if tree.op == "in":
        return _in(tree, row)
    args = [value_of(arg, row) for arg in tree.args]
    if any(arg is None for arg in args):
        return None
    if tree.op == "not":
        return not args[0]
    if tree.op == "neg":
        return -args[0]
    return _compared(tree.op, *_common(tree, args)) if tree.op in _COMPARED else _worked_out(tree, args)


def _logic(both: bool, sides: list[Any]) -> Any:
    """and: false if one is false; or: true if one is true; else null if one is null."""
    if any(side is (not both) for side in sides):
        return not both
    return None if None in sides else both


def _in(tree: Call, row: Mapping[str, Any]) -> Any:
    value, *items = tree.args
    found = [value_of(Call("=", (value, item), pa.bool_()), row) for item in items]
    return _logic(False, found)


def _common(tree: Call, args: list[Any]) -> list[Any]:
    if any(pa.types.is_floating(arg.type) for arg in tree.args):
        return [float(arg) for arg in args]
    return args


_COMPARED = ("=", "<>", "<", "<=", ">", ">=")


def _compared(op: str, left: Any, right: Any) -> bool:
    """NaN equals itself and is the greatest number."""
    a, b = ((math.isnan(x), 0.0 if math.isnan(x) else x) if isinstance(x, float) else (False, x) for x in (left, right))
    return {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def _worked_out(tree: Call, args: list[Any]) -> Any:
    if tree.op == "%":  # with the sign of the number divided
        return int(math.copysign(1, args[0])) * (abs(args[0]) % abs(args[1]))
    left, right = map(float, args)
    return {"+": left + right, "-": left - right, "*": left * right}[tree.op]
