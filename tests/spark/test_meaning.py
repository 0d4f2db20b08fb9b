"""A user's own Spark, set otherwise, changes no result: flows have a session of their own, in which every setting is pinned."""

from collections.abc import Iterator

import pytest

from penstock.core.schema import Schema
from penstock.engine.spark.analyze import SparkAnalyzer
from penstock.engine.spark.pinned import PINNED
from penstock.engine.spark.session import start_session

NOT_THE_DEFAULT = {"spark.sql.variable.substitute", "spark.sql.session.timeZone"}
CHOICES = {
    "spark.sql.columnNameOfCorruptRecord": "_bad",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}


def other(name: str) -> str:
    return CHOICES.get(name) or {"true": "false", "false": "true"}[PINNED[name]]


@pytest.fixture
def set_otherwise(spark) -> Iterator[None]:
    """Spark as a user may have started it: new sessions begin with these settings."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = {name: conf.get(name) for name in PINNED if conf.contains(name)}
    for name in PINNED:
        conf.set(name, other(name))
    yield
    for name in PINNED:
        conf.set(name, before[name]) if name in before else conf.remove(name)


def test_all_that_is_pinned_is_known_to_spark_and_mostly_its_default(spark) -> None:
    fresh = spark.newSession()
    unknown = [name for name in PINNED if not fresh.conf.isModifiable(name)]
    assert unknown == []
    for name in PINNED:
        fresh.conf.unset(name)
    told = {name: fresh.conf.get(name) for name in PINNED}
    assert {name for name, value in PINNED.items() if told[name] != value} <= NOT_THE_DEFAULT


def test_a_session_for_flows_is_pinned_whatever_the_users_spark_says(spark, set_otherwise) -> None:
    users = spark.newSession()
    assert {name: users.conf.get(name) for name in PINNED} == {name: other(name) for name in PINNED}
    session = start_session("pinned")
    assert {name: session.conf.get(name) for name in PINNED} == dict(PINNED)
    assert users.conf.get("spark.sql.ansi.enabled") == "false"


def test_expressions_mean_the_same_beside_a_session_that_is_set_otherwise(spark, set_otherwise) -> None:
    users = spark.newSession()
    users.sql("select 1").collect()  # the active one, if it were asked
    session = start_session("pinned")
    rows = session.createDataFrame([(2147483647, "a")], "i int, s string")
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        rows.selectExpr("i + 1").collect()
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        rows.selectExpr("cast(s as int)").collect()
    assert rows.where("s = \"a\" and S = 'a' and '\\x61' <> s").count() == 1
    assert SparkAnalyzer(session).type_of("timestamp '2024-01-01 00:00:00'", Schema.of("i int")).tz == "UTC"
