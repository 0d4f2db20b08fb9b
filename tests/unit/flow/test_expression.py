import pyarrow as pa
import pytest

from penstock.core.expression import Call, Column, Literal
from penstock.core.schema import Schema
from penstock.errors import BadFlow
from penstock.flow.place import Place
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.flow.sql.expression import read
from penstock.plan import Origin

SCHEMA = Schema.of(
    "b boolean, y tinyint, i int, l long, f float, d double, e double, s string, t string, day date, at timestamp,"
    " m decimal(10,2), xs array<int>, address struct<city:string>, User string"
)
AT = Place("shop", Origin("shop.py", 14), "big")
CLOCK_HINT = (
    "results must be a function of the log: take the time or the value from a column of the row "
    '(flow.stream(…, append_time="stored") adds the append time)'
)
ROW_HINT = "an expression sees one row; to bring rows together use window(…).agg(…)"


class Answers:
    """Stands for Spark's analysis."""

    def __init__(self, t=None):
        self.type = t or pa.string()

    def type_of(self, sql, schema):
        return self.type


def expression(sql, analyzer=None):
    return read(sql, SCHEMA, AT, analyzer or Answers())


def left_to_spark(sql):
    return expression(sql).tree is None


def refusal(sql, analyzer=None):
    with pytest.raises(BadFlow) as caught:
        expression(sql, analyzer)
    return caught.value


def test_a_condition_becomes_a_typed_tree():
    found = expression("d > 100 and S = 'x'")
    assert found.text == "d > 100 and S = 'x'"
    assert found.columns == ("d", "s")
    assert found.type == pa.bool_()
    assert found.tree == Call(
        "and",
        (
            Call(">", (Column("d", pa.float64()), Literal(100.0, pa.float64())), pa.bool_()),
            Call("=", (Column("s", pa.string()), Literal("x", pa.string())), pa.bool_()),
        ),
        pa.bool_(),
    )


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("d * 0.9", pa.float64()),
        ("i * d", pa.float64()),
        ("f + d", pa.float64()),
        ("-d", pa.float64()),
        ("y % 7", pa.int32()),
        ("i % 7", pa.int32()),
        ("i % 7L", pa.int64()),
        ("l % 7", pa.int64()),
        ("1", pa.int32()),
        ("2147483648", pa.int64()),
        ("-2147483648", pa.int32()),
        ("1e3", pa.float64()),
        ("'x'", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("m", pa.decimal128(10, 2)),
        ("xs", pa.list_(pa.int32())),
        ("d between 1 and 2", pa.bool_()),
        ("user", pa.string()),
    ],
)
def test_types_are_found_without_spark(sql, expected):
    found = expression(sql, NoAnalyzer())
    assert found.tree is not None
    assert found.type == expected


@pytest.mark.parametrize(
    "sql",
    [
        # overflow, failure or rounding
        "i + 1", "l * 2", "i - l", "-i", "d / 2", "i / 2", "i div 2", "i % 0", "i % -1", "l % -9223372036854775808",
        "d % 2", "i % l", "i % 2.5",
        # decimals
        "m > 1", "m + m", "i > 0.5", "1.5 * 2", "0.1", "m = m", "i in (1, 1.5)", "d > 0.12345678901234567",
        # floats that stay floats, zeros that Polars would leave out
        "f + f", "f * 2", "f + 0.5", "d + 0", "0.0 - d", "d * -0.0",
        # casts, also those that Spark adds by itself
        "cast(d as int)", "d::int", "i = '7'", "s > 1", "b = 1", "b = 'true'", "day = at", "at = day", "s = at",
        # times in other forms than the plain one
        "at > '2024'", "at > 'now'", "at > '2024-01-01 10:00'", "at > '2024-01-01T00:00:00+02:00'", "at > '2024-13-01'", "at > 'x'",
        "day > '2024-1-1'", "at > timestamp_ntz '2024-01-01 00:00:00'", "at > '2024-01-01 00:00:00.1234567'",
        # nulls without a type, other equality, order of booleans
        "d = null", "null", "d <=> e", "d is not distinct from e", "b < true", "b is true", "i in (null)",
        # strings that parsers read differently
        r"s = 'a\\b'", r"s = 'a\'b'", "s = 'it''s'", "s = 'a' 'b'", "s = r'x'", "s = x'1F'",
        # comparisons beside comparisons
        "d = e = b", "d < e = b", "b = d is null", "b = not b", "b = d in (1)",
        # functions and the rest
        "abs(d)", "coalesce(d, 0)", "case when b then 1 else 2 end", "if(b, 1, 2)", "s like 'a%'", "s || t", "greatest(d, e)",
        "xs[0]", "address.city", "xs = xs", "i & 1", "~i", "1 = 1", "-(5)", "2 > 1", "1e999 > d", "0e0 * d",
        "exists(xs, x -> x > 1)", "s like any ('a%', 'b%')",
        "d in (1,2,3,4,5,6,7,8,9,10,11)", "d in (e, 1)", "9223372036854775808 > l",
        "5S > i", "1.5F > d", "1.5BD > d", "d is null is null", "d in (1) in (true)",
        "d + s", "d * m", "d > cast(e as double)", "99999999999999999999L > l", "day > '2024-02-30'", "d between symmetric 1 and 2",
    ],
)  # fmt: skip
def test_whatever_might_mean_something_else_in_polars_is_left_to_spark(sql):
    assert left_to_spark(sql)


def test_columns_are_found_inside_whatever_is_left_to_spark():
    assert expression("transform(xs, x -> x + I) [0] + size(split(address.city, s))").columns == ("i", "s", "xs", "address")
    assert expression("timestampdiff(HOUR, at, day)").columns == ("day", "at")


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("current_timestamp", "current_timestamp"),
        ("current_timestamp() > at", "current_timestamp"),
        ("at < NOW()", "now"),
        ("current_date", "current_date"),
        ("curdate()", "curdate"),
        ("localtimestamp()", "localtimestamp"),
        ("unix_timestamp()", "unix_timestamp()"),
        ("rand()", "rand"),
        ("rand(7) > d", "rand"),
        ("random()", "random"),
        ("randn()", "randn"),
        ("uuid()", "uuid"),
        ("shuffle(xs)", "shuffle"),
        ("uniform(1, 2)", "uniform"),
        ("monotonically_increasing_id()", "monotonically_increasing_id"),
        ("input_file_name()", "input_file_name"),
        ("spark_partition_id()", "spark_partition_id"),
        ("java_method('java.util.UUID', 'randomUUID')", "java_method"),
        ("reflect('java.util.UUID', 'randomUUID')", "reflect"),
        ("current_user()", "current_user"),
        ("case when d > 1 then rand() else 0 end", "rand"),
    ],
)
def test_clocks_chance_and_the_machine_are_refused(sql, name):
    error = refusal(sql)
    assert error.what == f"cannot use {name} in {sql!r}: its value is not in the log"
    assert error.hint == CLOCK_HINT


@pytest.mark.parametrize("sql", ["timestamp 'now'", "at > timestamp'Today'", "date 'yesterday'", "cast('tomorrow' as date)"])
def test_words_that_mean_the_present_are_refused_as_times(sql):
    assert refusal(sql).what.endswith("as a time: it reads the clock")
    assert refusal(sql).hint == CLOCK_HINT


def test_unix_timestamp_of_a_column_is_allowed():
    assert expression("unix_timestamp(at)").columns == ("at",)


@pytest.mark.parametrize(
    ("sql", "why", "hint"),
    [
        ("sum(d)", "cannot use sum in 'sum(d)': it is an aggregate", ROW_HINT),
        ("count(*)", "cannot use count in 'count(*)': it is an aggregate", ROW_HINT),
        ("d > max(e)", "cannot use max in 'd > max(e)': it is an aggregate", ROW_HINT),
        ("regr_slope(d, e)", "cannot use regr_slope in 'regr_slope(d, e)': it is an aggregate", ROW_HINT),
        (
            "row_number() over (order by d)",
            "cannot use row_number in 'row_number() over (order by d)': it is a window function",
            ROW_HINT,
        ),
        ("f(d) over ()", "cannot evaluate 'f(d) over ()': there is a window function in it", ROW_HINT),
        (
            "explode(xs)",
            "cannot use explode in 'explode(xs)': it makes several rows of one",
            "an expression gives one value for a row",
        ),
        (
            "window(at, '1 minute')",
            "cannot use window in \"window(at, '1 minute')\": it makes several rows of one",
            "an expression gives one value for a row",
        ),
        (
            "d > (select 1)",
            "cannot evaluate 'd > (select 1)': there is a query in it",
            "an expression sees one row; use join to bring streams together",
        ),
        (
            "i in (select 1)",
            "cannot evaluate 'i in (select 1)': there is a query in it",
            "an expression sees one row; use join to bring streams together",
        ),
        ("*", "cannot evaluate '*': '*' is no expression", "name the columns"),
        ("d > ?", "cannot evaluate 'd > ?': there is a parameter in it", "put the value in with Python, e.g. an f-string"),
        ("d > :x", "cannot evaluate 'd > :x': there is a parameter in it", "put the value in with Python, e.g. an f-string"),
        ("d; drop table x", "cannot read 'd; drop table x': a semicolon ends a statement", "write one expression"),
        ("d -- not e", "cannot read 'd -- not e': there is a comment in it", "write the comment in Python"),
        ("d /* + e */", "cannot read 'd /* + e */': there is a comment in it", "write the comment in Python"),
        ("  ", "an expression is empty", 'write Spark SQL, e.g. "amount > 100"'),
        (7, "cannot read 7 as an expression: it is no text", 'write Spark SQL, e.g. "amount > 100"'),
        (
            "d >",
            "cannot read 'd >': it is no expression of Spark SQL; it stops making sense at '>'",
            "write it like \"amount > 100 and country = 'DE'\"",
        ),
        (
            "d from x",
            "cannot read 'd from x': it is no expression of Spark SQL; it stops making sense at 'from'",
            "write it like \"amount > 100 and country = 'DE'\"",
        ),
        (
            "'open",
            'cannot read "\'open": it is no expression of Spark SQL',
            "write it like \"amount > 100 and country = 'DE'\"",
        ),
    ],
)
def test_what_is_no_scalar_expression_is_refused(sql, why, hint):
    error = refusal(sql)
    assert (error.what, error.hint) == (why, hint)
    assert error.detail[0] == 'flow shop, step "big" (shop.py:14)'


def test_signs_inside_a_string_are_text():
    assert expression("s = 'a;b--c/*d*/ now() sum(x)'").tree is not None


def test_a_type_that_no_column_can_hold_is_refused():
    error = refusal("interval 1 day", Answers(pa.duration("us")))
    assert error.what == "cannot use 'interval 1 day': no column can hold a value of type duration[us]"


def test_what_spark_says_gets_the_place_of_the_step():
    class Refuses:
        def type_of(self, sql, schema):
            raise BadFlow("cannot evaluate: no function frobnicate")

    assert str(refusal("frobnicate(d)", Refuses())) == (
        'cannot evaluate: no function frobnicate\n  flow shop, step "big" (shop.py:14)'
    )
