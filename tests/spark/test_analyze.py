"""Types by Spark's own analysis, and its refusals in one readable line."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.core.schema import TIMESTAMP, Schema
from penstock.engine.spark.analyze import SparkAnalyzer, first_line
from penstock.errors import BadFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema.of("id long, amount double, name string, at timestamp, tags array<string>, price decimal(10,2), s struct<a:int>")


@pytest.fixture(scope="module")
def analyzer(spark: "SparkSession") -> SparkAnalyzer:
    return SparkAnalyzer(spark)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("amount * 2", pa.float64()),
        ("upper(name)", pa.string()),
        ("id in (1, 2)", pa.bool_()),
        ("at + interval 1 minute", TIMESTAMP),
        ("to_timestamp_ntz('2024-01-15T10:30:00')", TIMESTAMP),
        ("price * price", pa.decimal128(21, 4)),
        ("s.a", pa.int32()),
        ("tags", pa.list_(pa.string())),
    ],
)
def test_type_is_sparks(analyzer: SparkAnalyzer, sql: str, expected: pa.DataType) -> None:
    assert analyzer.type_of(sql, SCHEMA) == expected


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("amout * 2", "`amout` cannot be resolved. Did you mean"),
        ("id +", "Syntax error"),
        ("sum(amount)", "invalid expressions: sum(amount)"),
        ("explode(tags)", "generator"),
        ("row_number() over (order by id)", "window functions"),
        ("rand()", "deterministic"),
        ("id, 'w', amount", "not one expression"),
        ("interval 1 day", "a column cannot hold"),
        ("parse_json(name)", "a column cannot hold"),
        ("amount) as x, (id", "Syntax error"),
    ],
)
def test_what_is_no_scalar_expression_is_refused_with_the_reason(
    analyzer: SparkAnalyzer, sql: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadFlow) as refused:
        analyzer.type_of(sql, SCHEMA)
    assert reason in str(refused.value)
    assert "SQLSTATE" not in str(refused.value)
    assert capfd.readouterr().err == ""


def test_message_without_any_line_still_says_something() -> None:
    assert first_line("\n\n") == "no reason given"
    assert first_line("[A_B.C] it is wrong. SQLSTATE: 42703; line 1 pos 3;\n'Project") == "it is wrong"
