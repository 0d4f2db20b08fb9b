"""Every operator of the white list gives each row the same value alone and among others, and the one that Spark gives. (G5)"""

import math
from itertools import product
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from penstock.core.expression import Call, Tree, walk
from penstock.core.schema import Schema
from penstock.errors import BadFlow
from penstock.flow.place import Place
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.flow.sql.expression import read
from penstock.kernels import expressions
from penstock.kernels.expressions import compile
from penstock.plan import Origin

from .reference.expressions import value_of

SCHEMA = Schema.of("d double, e double, f float, l long, i int, s string, b boolean, c boolean")
DOUBLES = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, -2.5, 5e-324, 1e308, None]
LONGS = [2**63 - 1, -(2**63), 0, -1, 7, 2**53 + 1, None]
VALUES: dict[str, list[Any]] = {
    "d": DOUBLES,
    "e": DOUBLES[::-1],
    "f": [math.nan, math.inf, -0.0, 0.0, 0.5, None],
    "l": LONGS,
    "i": [2**31 - 1, -(2**31), 0, -7, None],
    "s": ["", "a", "ä", None],
    "b": [True, False, None],
    "c": [True, False, None],
}
ZEROS = ("(1D - 1D)", "(-(1D) + 1D)", "-0.0D", "(-0.0D)", "-(2D - 2D)", "(1D - 1D) * -1D", "(2D - 2D)", "0.0D * -3D")
NUMBERS = ("1D", "-1D", "2.5D", "1e308", "0.1", "7", "-1", "9007199254740993", *ZEROS)
CORPUS = [
    *(f"d {op} {x}" for op, x in product("+-*", ("e", "f", "l", "i", *NUMBERS))),
    *(f"{x} {op} d" for op, x in product("+-*", ("f", "l", "i", *NUMBERS))),
    *(f"(d {op} {x}) * -e" for op, x in product("+-", ZEROS)),
    *(f"d {op} {x}" for op, x in product(("=", "<>", "<", "<=", ">", ">="), ("e", "f", "l", "i", "0", "-0.0D", "(1D - 1D)"))),
    *(f"{x} {op} l" for op, x in product(("=", "<", ">="), ("i", "l", "9223372036854775807", "d"))),
    *(f"{x} % {n}" for x, n in product("li", (7, -7, 1, 2147483648, -2147483648))),
    *("-d", "-(-d)", "-d * e", "b and c", "b or c", "not b", "d is null", "(d > e) is null", "b = c", "b <> (d > 0)"),
    *("d in (0, 1.0)", "d not in (0.0, null)", "l in (7, -1)", "l in (7, null)", "i in (0, 7)", "s in ('a', '')", "f in (0.5, 0)"),
    *("d between -0.0D and e", "l between i and 7", "s < 'a'", "s = 'ä'", "not (b and d < e) or c is null"),
]


def tree_of(sql: str) -> Tree | None:
    try:
        return read(sql, SCHEMA, Place("law", Origin("law.py", 1), "law"), NoAnalyzer()).tree
    except BadFlow as error:
        if "needs Spark" not in error.what:
            raise
        return None


TREES = {sql: tree for sql in CORPUS if (tree := tree_of(sql)) is not None}


def rows() -> pa.Table:
    """Every value of a column with every one of some other."""
    count = 130
    steps = {name: 1 + n // 2 for n, name in enumerate(VALUES)}
    columns = [
        [values[(k * steps[name] + k // len(values)) % len(values)] for k in range(count)] for name, values in VALUES.items()
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA.arrow)


def shown(value: Any) -> str:
    """Tells -0.0 from 0.0 and lets NaN be equal to itself."""
    return repr(value)


def differences(trees: dict[str, Tree]) -> list[str]:
    table = rows()
    frame = pl.DataFrame(pl.from_arrow(table))
    compiled = [compile(tree).alias(f"c{n}") for n, tree in enumerate(trees.values())]
    whole = frame.select(compiled).rows()
    alone = [frame[k].select(compiled).row(0) for k in range(len(frame))]
    found = []
    for n, (sql, tree) in enumerate(trees.items()):
        for k, row in enumerate(table.to_pylist()):
            told = {shown(whole[k][n]), shown(alone[k][n]), shown(value_of(tree, row))}
            if len(told) > 1:
                found.append(f"{sql} of {row}: {shown(whole[k][n])} among others, {shown(alone[k][n])} alone, {told}")
                break
    return found


def test_a_row_has_the_value_of_its_own_alone_and_among_others() -> None:
    assert differences(TREES) == []


def test_every_operator_of_the_white_list_is_tried() -> None:
    assert Call.__doc__
    listed = Call.__doc__.split(":")[1].strip(" .").split()
    assert {part.op for tree in TREES.values() for part in walk(tree) if isinstance(part, Call)} == set(listed)
    assert len(TREES) > len(CORPUS) * 0.8, "most of what is tried should be on the white list"


@pytest.mark.parametrize(
    "sql", ["d is null = b", "b <> d is not null = c", "l is null < b", "d in (1,)", "d is null between b and c"]
)
def test_what_spark_reads_otherwise_is_left_to_spark(sql: str) -> None:
    assert tree_of(sql) is None


@pytest.mark.parametrize("sql", ["(d is null) = b", "b = (d is null)", "d = e is null", "d in (1) and (b)", "not (b) and c"])
def test_brackets_that_were_written_are_enough(sql: str) -> None:
    assert tree_of(sql) is not None


def test_a_zero_left_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "unsigned", lambda values: values + 0.0)
    assert differences({"d + (1D - 1D)": TREES["d + (1D - 1D)"]}) != []
