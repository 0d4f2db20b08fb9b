import datetime as dt
import math

import polars as pl
import pyarrow as pa
import pytest

from penstock.core.expression import Call, Column, Literal
from penstock.core.schema import Schema
from penstock.flow.place import Place
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.flow.sql.expression import read
from penstock.kernels.expressions import compile
from penstock.plan import Origin

SCHEMA = Schema.of("b boolean, c boolean, y tinyint, i int, l long, f float, d double, s string, day date, at timestamp")
NAN, INF = math.nan, math.inf


def values(sql, **columns):
    """What the expression says about rows with these columns."""
    count = max(len(v) for v in columns.values())
    table = pa.table({f.name: pa.array(columns.get(f.name, [None] * count), f.type) for f in SCHEMA})
    found = read(sql, SCHEMA, Place("shop", Origin("shop.py", 1)), NoAnalyzer())
    assert found.tree is not None
    result = pl.from_arrow(table).select(r=compile(found.tree)).to_arrow()["r"]
    assert Schema.from_arrow(pa.schema([pa.field("r", result.type)])).type("r") == found.type
    return result.to_pylist()


THREE = [True, False, None]


def test_and_or_not_know_three_values():
    pairs = {"b": [a for a in THREE for _ in THREE], "c": THREE * 3}
    assert values("b and c", **pairs) == [True, False, None, False, False, False, None, False, None]
    assert values("b or c", **pairs) == [True, True, True, True, False, None, True, None, None]
    assert values("not b", b=THREE) == [False, True, None]


def test_nan_equals_itself_and_is_greater_than_every_number():
    d = [NAN, INF, 1.0, None]
    assert values("d = d", d=d) == [True, True, True, None]
    assert values("d > 1e308", d=d) == [True, True, False, None]
    assert values("d <= 1e308", d=d) == [False, False, True, None]
    assert values("d <> d", d=d) == [False, False, False, None]
    assert values("d = f", d=[NAN, NAN], f=[NAN, 1.0]) == [True, False]


def test_both_zeros_are_equal():
    assert values("d = 0", d=[0.0, -0.0]) == [True, True]
    assert values("d < 0", d=[0.0, -0.0]) == [False, False]
    assert values("d in (0.0, 5)", d=[-0.0, 5.0, 1.0]) == [True, True, False]


def test_a_comparison_with_null_is_null():
    assert values("i = l", i=[1, None, None], l=[None, 1, None]) == [None, None, None]


def test_integers_of_different_width_are_compared_exactly():
    assert values("i < l", i=[2**31 - 1], l=[2**31]) == [True]
    assert values("y = 2147483648", y=[-128]) == [False]
    assert values("l > 9223372036854775806", l=[2**63 - 1, -(2**63)]) == [True, False]


def test_a_long_beside_a_double_is_compared_as_a_double():
    assert values("l = d", l=[2**53 + 1], d=[float(2**53)]) == [True]


def test_a_float_is_compared_as_the_double_it_stands_for():
    assert values("f = 0.1", f=[0.1]) == [False]
    assert values("f = 0.5", f=[0.5]) == [True]
    assert values("i = f", i=[16777217], f=[16777216.0]) == [False]


@pytest.mark.parametrize("divisor", [7, -7])
def test_a_remainder_takes_the_sign_of_the_number_divided(divisor):
    assert values(f"i % {divisor}", i=[9, -9, 7, -7, 0, None]) == [2, -2, 0, 0, 0, None]


def test_a_remainder_of_the_least_number_does_not_overflow():
    assert values("l % 10", l=[-(2**63), 2**63 - 1]) == [-8, 7]
    assert values("l % 9223372036854775807", l=[-(2**63)]) == [-1]
    assert values("y % 2147483648", y=[-128]) == [-128]


def test_in_with_null_is_true_or_null_and_never_false():
    assert values("i in (1, 2)", i=[1, 3, None]) == [True, False, None]
    assert values("i in (1, null)", i=[1, 3, None]) == [True, None, None]
    assert values("i not in (1, null)", i=[1, 3, None]) == [False, None, None]
    assert values("s in ('a', '')", s=["", "b", None]) == [True, False, None]
    assert values("('' = '') = (i in (1, null))", i=[3, 4]) == [None, None]  # also where it is so of no row
    assert values("d in (1, 2.5, null)", d=[2.5, NAN]) == [True, None]
    assert values("b in (true, null)", b=THREE) == [True, None, None]


def test_in_finds_times_and_days():
    at = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 2, tzinfo=dt.UTC), None]
    assert values("at in ('2024-01-01', '2025-01-01 00:00:00')", at=at) == [True, False, None]
    assert values("day in (date '2024-01-01')", day=[dt.date(2024, 1, 1), dt.date(2024, 1, 2)]) == [True, False]


def test_is_null_is_never_null():
    assert values("d is null", d=[NAN, None]) == [False, True]
    assert values("(d > 1) is not null", d=[NAN, None]) == [True, False]


def test_strings_are_compared_by_their_bytes():
    assert values("s < 'ä'", s=["z", "é", "ä", "", None]) == [True, False, False, True, None]
    assert values("s > '\uffff'", s=["😀"]) == [True]


def test_times_are_compared_with_text():
    at = [dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC), dt.datetime(1969, 12, 31, tzinfo=dt.UTC), None]
    assert values("at > '2024-01-01'", at=at) == [True, False, None]
    assert values("at < timestamp '1970-01-01 00:00:00'", at=at) == [False, True, None]
    assert values("day between '2024-01-01' and '2024-12-31'", day=[dt.date(2024, 2, 29), dt.date(2025, 1, 1)]) == [True, False]


def test_arithmetic_of_doubles_follows_ieee():
    assert values("d * 0.9", d=[100.0, None]) == [90.0, None]
    assert values("d + d", d=[1e308, -1e308]) == [INF, -INF]
    assert [math.copysign(1, x) for x in values("-d", d=[0.0, -0.0])] == [-1, 1]
    assert math.isnan(values("d - d", d=[INF])[0])
    assert values("i * d - l", i=[2], d=[1.5], l=[1]) == [2.0]


def test_a_constant_is_as_long_as_the_rows():
    assert values("1", i=[1, 2, 3]) == [1, 1, 1]
    assert values("'x'", i=[1, 2]) == ["x", "x"]
    assert values("timestamp '2024-01-01 00:00:00'", i=[1, 2]) == [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * 2
    assert values("true", i=[]) == []


@pytest.mark.parametrize(
    "t", [pa.int64(), pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.list_(pa.string()), pa.struct([("x", pa.int64())])]
)
def test_null_is_a_constant_of_any_type(t):
    found = pl.DataFrame({"i": [1, 2]}).select(r=compile(Literal(None, t)))["r"]
    assert found.to_list() == [None, None]
    assert found.to_arrow().cast(t).type == t


def test_a_column_of_any_type_passes_through():
    table = pa.table({"xs": pa.array([[1], None])})
    assert pl.from_arrow(table).select(compile(Column("xs", pa.list_(pa.int64()))))["xs"].to_list() == [[1], None]


def test_what_is_not_on_the_white_list_is_an_error():
    with pytest.raises(ValueError, match="white list"):
        compile(Call("/", (Literal(1, pa.int64()), Literal(0, pa.int64())), pa.float64()))
