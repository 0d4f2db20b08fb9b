"""Which expressions mean the same in Polars as in Spark, and their types.

Only what was compared value by value is here (tests/spark): columns, literals, comparisons, and / or / not, is null, in, between,
+ − * of doubles and `%` of integers. What may overflow, fail, round or be cast is left to Spark: `tree_of` gives None.
"""

import datetime as dt
import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokens import Token

from penstock.core.expression import Call, Column, Literal, Tree, walk
from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import FIRST, LAST, micros
from penstock.flow.place import find

_COMPARE = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_LOGIC = {exp.And: "and", exp.Or: "or"}
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS = (pa.float32(), pa.float64())
_BOOL, _DOUBLE, _STRING, _DATE = pa.bool_(), pa.float64(), pa.string(), pa.date32()
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d(?:\.\d{1,6})?)(Z?))?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DIGITS = 15  # a decimal of so many digits becomes the same double everywhere
_LONGEST_DOUBLE_LIST = 10  # beyond it Spark looks values up in a hash set, where -0.0 is not 0.0


def reads_alike(node: exp.Expression, tokens: Sequence[Token]) -> bool:
    """Whether Spark's grammar takes what sqlglot has read: not `a is null = b`, where sqlglot puts brackets of its own, nor a list
    that ends in a comma."""
    if any(a.text == "," and b.text == ")" for a, b in pairwise(tokens)):
        return False
    brackets = [i for i, token in enumerate(tokens) if token.text == "(" and not (i and _opens_a_list(tokens[i - 1]))]
    if len(list(node.find_all(exp.Paren))) <= len(brackets):
        return True
    return not any(_compares_a_test(n) for n in node.find_all(exp.Binary, exp.Between) if not isinstance(n, exp.Is))


def _opens_a_list(before: Token) -> bool:
    """Whether a bracket behind this token holds a list or what a function is given."""
    word = before.text.lower()
    return word.isidentifier() and word not in ("and", "or", "not", "between")


def _compares_a_test(node: exp.Expression) -> bool:
    """Whether `is null` in brackets stands beside an operator other than and, or."""
    sides = (node.args.get(side) for side in ("this", "expression", "low", "high"))
    inner = [side.this for side in sides if isinstance(side, exp.Paren)]
    tests = (i.this if isinstance(i, exp.Not) else i for i in inner)
    return not isinstance(node, exp.Connector) and any(isinstance(t, exp.Is) for t in tests)


def tree_of(node: exp.Expression, schema: Schema) -> Tree | None:
    """The expression as a typed tree, or None if only Spark may evaluate it."""
    tree = _tree(node, schema)
    if tree is None or (pa.types.is_decimal(tree.type) and not isinstance(tree, Column)):
        return None
    if isinstance(tree, Call) and not any(isinstance(t, Column) for t in walk(tree)):
        return None  # a constant that has to be worked out: once, by Spark
    return tree


def _tree(node: exp.Expression, schema: Schema) -> Tree | None:
    kind = type(node)
    if kind is exp.Paren:
        return _tree(node.this, schema)
    if kind is exp.Column:
        return _column(node, schema)
    if kind in (exp.Literal, exp.Boolean) or isinstance(node, exp.Cast):
        return _literal(node)
    if kind is exp.Neg:
        return _negative(node, schema)
    if kind is exp.Not:
        return _logic("not", [_tree(node.this, schema)])
    if kind in _LOGIC:
        return _logic(_LOGIC[kind], [_tree(node.this, schema), _tree(node.expression, schema)])
    if kind is exp.Is:
        return _is_null(node, schema)
    if kind is exp.In:
        return _in(node, schema)
    if kind is exp.Between:
        return _between(node, schema)
    if kind in _COMPARE:
        return _compare(_COMPARE[kind], _operand(node.this, schema), _operand(node.expression, schema))
    if kind in _ARITHMETIC:
        return _arithmetic(_ARITHMETIC[kind], _operand(node.this, schema), _operand(node.expression, schema))
    if kind is exp.Mod:
        return _modulo(_operand(node.this, schema), _operand(node.expression, schema))
    return None


def _operand(node: exp.Expression, schema: Schema) -> Tree | None:
    """What stands beside an operator. A comparison there needs brackets: parsers disagree about what `a = b < c` means."""
    bare = isinstance(node, exp.Predicate | exp.Not | exp.Connector)
    return None if bare else _tree(node, schema)


def _column(node: exp.Expression, schema: Schema) -> Tree | None:
    name = find(node.name, schema.names) if len(node.parts) == 1 else None
    return Column(name, schema.type(name)) if name else None


def _literal(node: exp.Expression) -> Literal | None:
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this), _BOOL)
    if isinstance(node, exp.Cast):
        return _typed_literal(node)
    return Literal(node.this, _STRING) if node.is_string else _number(node.this)


def _number(text: str) -> Literal | None:
    """A number as Spark's parser types it: int, long, decimal, or double where there is an exponent."""
    if re.fullmatch(r"-?\d+", text, re.ASCII):
        value = int(text)
        fits = next((t for t in (pa.int32(), pa.int64()) if -(2 ** (t.bit_width - 1)) <= value < 2 ** (t.bit_width - 1)), None)
        return Literal(value, fits) if fits else None
    if re.fullmatch(r"-?(\d+\.\d*|\.\d+)", text, re.ASCII):
        digits = Decimal(text)
        return Literal(digits, pa.decimal128(38, 18)) if sum(c.isdigit() for c in text) <= _DIGITS else None
    if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", text, re.ASCII):
        number = float(text)
        return Literal(number, _DOUBLE) if number not in (0.0, float("inf"), float("-inf")) else None
    return None


def _typed_literal(node: exp.Cast) -> Literal | None:
    """`5L`, `1.5D`, `timestamp '…'` and `date '…'`."""
    inner, to = node.this, node.to.this
    if not isinstance(inner, exp.Literal):
        return None
    if inner.is_string:
        is_time = to in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ)
        return _moment(inner.this) if is_time else _day(inner.this) if to == exp.DataType.Type.DATE else None
    number = _number(inner.this)
    if number is None:
        return None
    if to == exp.DataType.Type.BIGINT and number.type in _INTEGERS:
        return Literal(number.value, pa.int64())
    return Literal(float(number.value) + 0.0, _DOUBLE) if to == exp.DataType.Type.DOUBLE else None


def _moment(text: str) -> Literal | None:
    """A timestamp as text in a form that leaves nothing to settings but the zone, which is UTC throughout."""
    found = _TIME.fullmatch(text)
    try:
        value = micros(dt.datetime.fromisoformat(f"{found[1]} {found[2] or '00:00:00'}")) if found else None
    except ValueError:
        return None
    return Literal(value, TIMESTAMP) if value is not None and FIRST <= value <= LAST else None


def _day(text: str) -> Literal | None:
    try:
        return Literal(dt.date.fromisoformat(text), _DATE) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def _negative(node: exp.Expression, schema: Schema) -> Tree | None:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _number(f"-{node.this.this}")
    inner = _operand(node.this, schema)
    return Call("neg", (inner,), _DOUBLE) if inner is not None and inner.type == _DOUBLE else None


def _logic(op: str, args: Sequence[Tree | None]) -> Tree | None:
    known = [a for a in args if a is not None and a.type == _BOOL]
    return Call(op, tuple(known), _BOOL) if len(known) == len(args) else None


def _is_null(node: exp.Expression, schema: Schema) -> Tree | None:
    inner = _operand(node.this, schema) if isinstance(node.expression, exp.Null) else None
    return Call("is_null", (inner,), _BOOL) if inner is not None and not isinstance(inner, Literal) else None


def _in(node: exp.Expression, schema: Schema) -> Tree | None:
    value = _operand(node.this, schema)
    given = [i for i in node.expressions if not isinstance(i, exp.Null)]
    items = [_tree(i, schema) for i in given]
    if value is None or not items or not all(isinstance(i, Literal) for i in items):
        return None
    common = _common_of([value, *(i for i in items if i is not None)])
    if common is None or (common in _FLOATS and len(node.expressions) > _LONGEST_DOUBLE_LIST):
        return None
    fitted = [_as(i, common) for i in items if i is not None] + [Literal(None, common)] * (len(node.expressions) - len(given))
    return Call("in", (value, *fitted), _BOOL)


def _between(node: exp.Expression, schema: Schema) -> Tree | None:
    if node.args.get("symmetric"):
        return None
    value, low, high = (_operand(node.args[key], schema) for key in ("this", "low", "high"))
    return _logic("and", [_compare(">=", value, low), _compare("<=", value, high)])


def _compare(op: str, left: Tree | None, right: Tree | None) -> Tree | None:
    if left is None or right is None:
        return None
    common = _common_of([left, right])
    if common is None or (common == _BOOL and op not in ("=", "<>")):
        return None
    return Call(op, (_as(left, common), _as(right, common)), _BOOL)


def _arithmetic(op: str, left: Tree | None, right: Tree | None) -> Tree | None:
    """Only where Spark's result is a double: one side is one already, and the other becomes one."""
    if left is None or right is None or _DOUBLE not in (left.type, right.type):
        return None
    if _common_of([left, right]) != _DOUBLE:
        return None
    if any(isinstance(side, Literal) and not side.value for side in (left, right)):
        return None  # Polars leaves out an added zero, Spark does not: -0.0 + 0 is 0.0
    return Call(op, (_as(left, _DOUBLE), _as(right, _DOUBLE)), _DOUBLE)


def _modulo(left: Tree | None, right: Tree | None) -> Tree | None:
    """Integers by a literal other than 0, which fails, -1, which overflows, and the least long, which has no size."""
    if left is None or not isinstance(right, Literal) or left.type not in _INTEGERS or right.type not in _INTEGERS:
        return None
    common = _common_of([left, right])
    return Call("%", (left, _as(right, common)), common) if common and right.value not in (0, -1, -(2**63)) else None


def _common_of(trees: Sequence[Tree]) -> pa.DataType | None:
    """The type under which Spark compares the values, or None if that is better left to it."""
    common = next((t.type for t in trees if not isinstance(t, Literal)), trees[0].type)
    for tree in trees:
        found = _common(common, tree)
        if found is None:
            return None
        common = found
    return common if common in (*_INTEGERS, *_FLOATS, _BOOL, _STRING, _DATE, TIMESTAMP) else None


def _common(common: pa.DataType, tree: Tree) -> pa.DataType | None:
    t = tree.type
    if common == t and not pa.types.is_decimal(t):
        return t
    if common in _INTEGERS and t in _INTEGERS:
        return max(common, t, key=_INTEGERS.index)
    if common in _FLOATS and (t in _FLOATS or t in _INTEGERS or (isinstance(tree, Literal) and pa.types.is_decimal(t))):
        return _DOUBLE
    if t in _FLOATS and common in _INTEGERS:
        return _DOUBLE
    if isinstance(tree, Literal) and t == _STRING and common in (TIMESTAMP, _DATE):
        return common if (_moment if common == TIMESTAMP else _day)(tree.value) else None
    return None


def _as(tree: Tree, t: pa.DataType) -> Tree:
    """A literal as the common type; columns and calls are brought there when they are evaluated."""
    if not isinstance(tree, Literal) or tree.type == t:
        return tree
    if t in _FLOATS:
        return Literal(float(tree.value) + 0.0, t)
    if t in (TIMESTAMP, _DATE):
        return (_moment if t == TIMESTAMP else _day)(tree.value) or tree
    return Literal(tree.value, t)
