"""Every expression that may leave Spark means the same in Polars: the same type, and the same value in every row."""

import datetime as dt
import math
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.expression import Expression
from penstock.core.schema import Schema
from penstock.errors import BadFlow
from penstock.flow.place import Place
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.flow.sql.expression import read
from penstock.kernels.expressions import compile
from penstock.plan import Origin

pytestmark = pytest.mark.spark

SCHEMA = Schema.of(
    "b boolean, y tinyint, h smallint, i int, j int, l long, f float, d double, e double, s string, t string,"
    " day date, at timestamp, bt timestamp, m decimal(10,2)"
)
AT = Place("shop", Origin("shop.py", 1), "big")
UTC = dt.UTC

INTS = [0, 1, -1, 7, -7, 100, 2**31 - 1, -(2**31)]
LONGS = [0, 1, -7, 2**53 + 1, 2**63 - 1, -(2**63), 2**31, 10]
DOUBLES = [0.0, -0.0, 1.0, -1.5, 0.9, 1e308, -1e308, math.inf, -math.inf, math.nan, 5e-324, 0.1, 100.0, float(2**53)]
FLOATS = [0.0, -0.0, 0.5, math.nan, math.inf, -math.inf, 3.25, 16777216.0]
STRINGS = ["", "a", "A", "b", "ab", "ä", "é", "e\u0301", "日本", "😀", "\uffff", " a", "z"]
DAYS = [dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)]
TIMES = [
    dt.datetime(2024, 1, 1, tzinfo=UTC),
    dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    dt.datetime(1969, 12, 31, tzinfo=UTC),
]
POOLS = {
    "b": [True, False],
    "y": [0, 1, 7, -7, 127, -128],
    "h": [0, 1, 7, -7, 32767, -32768],
    "i": INTS,
    "j": INTS,
    "l": LONGS,
    "f": FLOATS,
    "d": DOUBLES,
    "e": DOUBLES,
    "s": STRINGS,
    "t": STRINGS,
    "day": DAYS,
    "at": TIMES,
    "bt": TIMES,
    "m": [Decimal("0.90"), Decimal("-1.00")],
}


def _rows(count: int) -> pa.Table:
    """Every value and null of each column, against those of the others at a different stride."""
    strides = [1, 1, 2, 1, 3, 2, 3, 1, 5, 1, 4, 1, 1, 2, 1]
    columns = []
    for (name, pool), stride in zip(POOLS.items(), strides, strict=True):
        values = [*pool, None]
        columns.append(pa.array([values[(k * stride + k // len(values)) % len(values)] for k in range(count)], SCHEMA.type(name)))
    return pa.table(columns, schema=SCHEMA.arrow)


ROWS = _rows(240)


def _tree(sql: str) -> Expression | None:
    try:
        return read(sql, SCHEMA, AT, NoAnalyzer())
    except BadFlow as error:
        if "needs Spark" not in error.what:
            raise
        return None


def _shown(value: object) -> str:
    """Tells -0.0 from 0.0 and lets NaN be equal to itself."""
    return value.isoformat() if isinstance(value, dt.datetime) else repr(value)


class Comparison:
    """Both engines over the same rows."""

    def __init__(self, spark) -> None:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        self.there = spark.createDataFrame(ROWS).repartition(1).cache()
        self.order = [tuple(map(_shown, row.values())) for row in self.there.toArrow().to_pylist()]
        self.here = pl.from_arrow(self.there.toArrow())

    def differences(self, texts: list[str]) -> list[str]:
        read_here = {sql: _tree(sql) for sql in texts}
        known = {sql: e for sql, e in read_here.items() if e is not None}
        assert len(known) >= len(texts) / 2, "most of what is compared should be on the white list"
        theirs = self.there.selectExpr(*[f"({sql}) as c{k}" for k, sql in enumerate(known)]).toArrow()
        mine = self.here.select([compile(e.tree).alias(f"c{k}") for k, e in enumerate(known.values())]).to_arrow()
        found = []
        for k, (sql, e) in enumerate(known.items()):
            name = f"c{k}"
            spark_type = Schema.from_arrow(theirs.select([name]).schema).type(name)
            if spark_type != e.type:
                found.append(f"{sql}: {e.type} here, {spark_type} in Spark")
            for row, a, b in zip(self.order, mine[name].to_pylist(), theirs[name].to_pylist(), strict=True):
                if _shown(a) != _shown(b):
                    found.append(f"{sql}: {a!r} here, {b!r} in Spark, row {dict(zip(SCHEMA.names, row, strict=True))}")
                    break
        return found


@pytest.fixture(scope="module")
def comparison(spark):
    return Comparison(spark)


COMPARED = [
    ("d", "e"),
    ("i", "l"),
    ("f", "d"),
    ("s", "t"),
    ("y", "h"),
    ("l", "d"),
    ("i", "f"),
    ("l", "f"),
    ("at", "bt"),
    ("y", "d"),
]
NUMBERS = {
    "d": "0 -0.0 0.9 1e308 100 0.1 -1.5 1.5D 9007199254740993",
    "f": "0 0.5 3.25 16777217 0.1 1e0",
    "i": "0 -7 2147483648 -2147483648 7L 1e0",
    "l": "0 9223372036854775807 -9223372036854775808 9007199254740992D",
}
DIVISORS = ["7", "-7", "1", "2147483648", "-2147483648", "3L", "9223372036854775807"]
BY_HAND = """
    -d; -(d); -d * e; - d + 1; -(d * e); d - -1.5; -d < e; -(-d); b; not b; !b; b and d > 0; b or d > 0; not b and i = 7
    not (b and i = 7); b = true; b <> false; b = (i > 0); s = 'a'; s < 'ä'; s >= '日本'; s > ''; s = "a"; s <> t
    s in ('a', 'b', ''); s not in ('a', 'ä'); s in ('a', null); i in (0, 7, -7); i in (7); i in (7, null); i not in (7, null)
    l in (10, 2147483648); y in (1, 2147483648); d in (0, 0.9, 1e308); d not in (1.0, 100); d in (0.0, null); f in (0.5, 3)
    f in (-0.0); l in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12); s in ('a','b','c','d','e','f','g','h','i','j','k','')
    i between -7 and 7; i not between 0 and 100; d between 0 and 1.5; s between 'A' and 'b'; d between e and 100
    l between i and j; d is null; d is not null; not d is null; m is null; s is null or t is null; (d > 0) is null
    (b and i = 7) is null; at = timestamp '2024-01-01 00:00:00'; at > '2024-01-01'; at >= '2024-01-01T00:00:00.000001Z'
    at < '1970-01-01 00:00:00'; at in ('2024-01-01', '1969-12-31 00:00:00'); at between '1969-01-01' and '2024-01-01'
    at is null; day = date '2024-02-29'; day > '1970-01-01'; day in (date '1970-01-01', '9999-12-31'); day < '0001-01-02'
    D > E; `d` > 0; (((d))) > ((0)); d; s; m; at; 1; 'x'; true; 1e3; 2147483648; timestamp '2024-01-01 00:00:00'
    i % 7 <> 3 and d > 10; d > 100 or s = 'a' and not b; d < e is null; b = b is null; not d < e or b; i % 3 = -1; d * 1
    1 * d; d - 1; d - -0.0D; d + (1D - 1D); (2D - 2D) + d; (1D - 1D) - d; -0.0D - d; d * (1D - 1D); (d is null) = b
"""
CORPUS = [
    *(f"{a} {op} {b}" for op in ("=", "<>", "!=", "<", "<=", ">", ">=", "==") for a, b in COMPARED),
    *(f"{column} {op} {n}" for op in ("=", "<>", "<", ">") for column, given in NUMBERS.items() for n in given.split()),
    *(f"d {op} {x}" for op in ("+", "-", "*") for x in ("e", "f", "i", "l", "y", "0.9", "2", "1e3", "e * i")),
    *(f"{x} {op} d" for op in ("+", "-", "*") for x in ("i", "0.1", "f", "-1", "2")),
    *(f"{x} % {n}" for x in ("y", "h", "i", "l") for n in DIVISORS),
    *(sql.strip() for line in BY_HAND.strip().splitlines() for sql in line.split(";")),
]


def test_the_corpus_means_the_same_in_polars_as_in_spark(comparison):
    known = [sql for sql in CORPUS if _tree(sql) is not None]
    assert known == CORPUS, sorted(set(CORPUS) - set(known))
    assert [d for start in range(0, len(CORPUS), 60) for d in comparison.differences(CORPUS[start : start + 60])] == []


def test_a_planted_difference_is_noticed(comparison, monkeypatch):
    monkeypatch.setitem(compile.__globals__, "_remainder", lambda value, divisor: value % divisor)
    assert comparison.differences(["i % 7"]) != []


OPERATORS = ["=", "<>", "<", ">=", "and", "or", "+", "-", "*", "%"]
TESTS = ["is null", "is not null", "in (1, 2)", "not in (true)", "between 0 and 1", "not between b and b", "is null is null"]


def _without_brackets():
    """Every two operators side by side, and every test beside an operator: what binds tighter is not said."""
    atoms = ["d", "b", "i", "1"]
    for first in OPERATORS:
        for second in OPERATORS:
            yield from (
                f"{x} {first} {y} {second} {z}" for x, y, z in (("d", "d", "d"), ("b", "b", "b"), ("d", "e", "b"), ("i", "7", "1"))
            )
            yield f"not b {first} b {second} b"
            yield f"- d {first} - e {second} - d"
        for test in TESTS:
            for x in atoms:
                yield from (f"{x} {test} {first} b", f"b {first} {x} {test}", f"not {x} {test} {first} b", f"d {first} {x} {test}")


def _is_read_here(sql: str) -> bool:
    try:
        return _tree(sql) is not None
    except BadFlow:
        return False


def test_what_is_read_here_is_read_by_spark_and_means_the_same(comparison, spark):
    """sqlglot takes more than Spark does, and binds some of it otherwise: none of that may be evaluated here."""
    known = [sql for sql in dict.fromkeys(_without_brackets()) if _is_read_here(sql)]
    assert len(known) > 200
    refused = []
    for sql in known:
        try:
            comparison.there.selectExpr(sql)
        except Exception as error:
            refused.append(f"{sql}: {str(error)[:80]}")
    assert refused == []
    assert [d for start in range(0, len(known), 80) for d in comparison.differences(known[start : start + 80])] == []


numbers = st.sampled_from(["0", "1", "-1", "7", "100", "2147483648", "-2147483648", "0.9", "-0.5", "0.0", "1e3", "5L", "2.5D"])
doubles = st.recursive(
    st.sampled_from(["d", "e"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), st.one_of(inner, numbers, st.sampled_from(["f", "i", "l", "y"]))).map(
            " ".join
        ),
        inner.map(lambda x: f"({x})"),
        inner.map(lambda x: f"- {x}"),
    ),
    max_leaves=4,
)
integers = st.one_of(
    st.sampled_from(["y", "h", "i", "j", "l"]),
    st.tuples(st.sampled_from(["y", "h", "i", "l"]), st.sampled_from(["7", "-3", "10L", "1"])).map(" % ".join),
)
texts = st.one_of(st.sampled_from(["s", "t"]), st.sampled_from(STRINGS).map(lambda x: f"'{x}'"))
moments = st.sampled_from(["at", "bt", "'2024-01-01'", "timestamp '1969-12-31 00:00:00'", "'2024-01-01 00:00:00.000001'"])
operands = st.one_of(
    *(
        st.tuples(x, y)
        for x, y in [(doubles, doubles), (doubles, numbers), (integers, integers), (integers, doubles), (st.just("f"), numbers)]
    ),
    st.tuples(integers, numbers),
    st.tuples(texts, texts),
    st.tuples(moments, moments),
)
comparisons = st.tuples(operands, st.sampled_from(["=", "<>", "<", "<=", ">", ">="])).map(lambda x: f"{x[0][0]} {x[1]} {x[0][1]}")
lists = st.one_of(
    st.tuples(
        st.sampled_from(["i", "l", "y", "i % 7"]), st.lists(st.sampled_from(["0", "7", "-1", "2147483648", "null"]), min_size=1)
    ),
    st.tuples(st.sampled_from(["d", "f", "d + e"]), st.lists(st.one_of(numbers, st.just("null")), min_size=1, max_size=12)),
    st.tuples(
        st.sampled_from(["s", "t"]),
        st.lists(st.one_of(st.sampled_from(STRINGS).map(lambda x: f"'{x}'"), st.just("null")), min_size=1),
    ),
).flatmap(lambda x: st.sampled_from([f"{x[0]} in ({', '.join(x[1])})", f"{x[0]} not in ({', '.join(x[1])})"]))
atoms = st.one_of(
    comparisons,
    lists,
    st.tuples(doubles, numbers, doubles).map(lambda x: f"{x[0]} between {x[1]} and {x[2]}"),
    st.sampled_from(["b", "d is null", "s is not null", "true", "false", "(d > e) is null"]),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
        inner.map(lambda x: f"not {x}"),
        inner.map(lambda x: f"({x})"),
        st.tuples(inner, st.sampled_from(["=", "<>"]), inner).map(lambda x: f"({x[0]}) {x[1]} ({x[2]})"),
    ),
    max_leaves=6,
)


@settings(max_examples=12)
@given(st.lists(st.one_of(conditions, conditions, doubles, integers), min_size=20, max_size=40, unique=True))
def test_generated_expressions_mean_the_same_in_polars_as_in_spark(comparison, texts):
    assert comparison.differences(texts) == []
