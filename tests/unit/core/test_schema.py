"""Schemas from DDL, Arrow and dataclasses; which may become which."""

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.schema import TIMESTAMP, Schema
from penstock.errors import BadName, BadSchema

TYPES = [
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "decimal(10,2)",
]
NESTED = ["array<int>", "map<string,double>", "struct<a:int,b:array<string>>"]


@given(st.lists(st.sampled_from(TYPES + NESTED), min_size=1, max_size=6), st.booleans())
def test_ddl_reads_back_what_it_writes(types: list[str], required: bool) -> None:
    ddl = ", ".join(f"c{i} {t}{' not null' if required else ''}" for i, t in enumerate(types))
    assert Schema.of(ddl).ddl() == ddl
    assert Schema.of(Schema.of(ddl).ddl()) == Schema.of(ddl)


def test_the_words_of_spark_and_of_people_mean_the_same() -> None:
    assert Schema.of("a bigint, b integer, c bool, d str") == Schema.of("a long, b int, c boolean, d string")


def test_arrow_types_become_those_a_topic_can_hold() -> None:
    given_ = pa.schema(
        [("at", pa.timestamp("ns")), ("n", pa.uint32()), ("s", pa.large_string()), ("d", pa.dictionary(pa.int8(), pa.string()))]
    )
    assert Schema.of(given_).arrow == pa.schema([("at", TIMESTAMP), ("n", pa.int64()), ("s", pa.string()), ("d", pa.string())])


def test_a_dataclass_is_a_schema() -> None:
    @dataclass
    class Order:
        order_id: str
        amount: float | None
        at: datetime
        tags: list[str]

    assert Schema.of(Order).ddl() == "order_id string not null, amount double, at timestamp not null, tags array<string> not null"


@pytest.mark.parametrize(
    "ddl",
    [
        "",
        "a",
        "a strng",
        "a int b int",
        "a int,",
        "a decimal(99,1)",
        "a array<int",
        "a struct<>",
        "a int not",
        "a int, A long",
        "a int; b int",
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(ddl: str) -> None:
    with pytest.raises(BadSchema):
        Schema.of(ddl)


@pytest.mark.parametrize("name", ["__t", "a-b", "a b", "1a", "`a b`", "x" * 200])
def test_a_column_name_outside_the_allow_list_is_refused(name: str) -> None:
    with pytest.raises((BadName, BadSchema)):
        Schema.of(pa.schema([(name, pa.int64())]))


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ("a int, b string", None),
        ("a int, b string, c double", None),
        ("a int", "missing"),
        ("a long, b string", "long"),
        ("a int, b string, c double not null", "nullable"),
        ("b string, a int", "end"),
        ("a int not null, b string", "null"),
    ],
)
def test_only_a_nullable_column_at_the_end_may_be_added(new: str, reason: str | None) -> None:
    found = Schema.of("a int, b string").can_become(Schema.of(new))
    assert (found is None) if reason is None else (found and reason in found)
