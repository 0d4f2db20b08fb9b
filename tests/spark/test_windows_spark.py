"""Every kind of window inside Spark's tasks, against a plain batch query of Spark over the same rows, none of them late."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from faults.engine_shop import view
from penstock import Calendar, Flow, Hopping, Schema, Session, Sliding, Tumbling, agg
from penstock.core.time import micros
from penstock.engine.run.runtime import Runtime
from penstock.flow.stream import Stream
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer

from .test_engine_spark import Placed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "user string, amount long, at timestamp"
START = datetime(2024, 3, 30, 12, tzinfo=UTC)  # clocks change in Europe the night after


def made(rows: int = 600) -> list[dict[str, Any]]:
    """Two days of rows, out of order by less than a minute."""
    rng = random.Random(5)
    times = sorted(rng.uniform(0, 2 * 86_400) for _ in range(rows))
    return [
        {
            "user": rng.choice(("ann", "bob", "cy", None)),
            "amount": rng.choice((None, *range(-5, 50))),
            "at": START + timedelta(seconds=round(time + rng.uniform(0, 50), 3)),
        }
        for time in times
    ]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return made()


@pytest.fixture
def home(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    topic = Runtime(tmp_path).log.create(TopicSpec("orders", 1, Schema.of(COLUMNS), "at"))
    with Producer(topic, batch_rows=50, linger="1 day") as producer:
        for row in rows:
            producer.send(row)
    return tmp_path


BOTH = {"n": agg.count(), "total": agg.sum("amount")}
TOLD = "count(*) as n, sum(amount) as total"
STRETCH = "user, window.start as window_start, window.end as window_end"
SESSION = STRETCH.replace("window.", "session_window.")
BERLIN = "to_utc_timestamp(date_trunc('DAY', from_utc_timestamp(at, 'Europe/Berlin')), 'Europe/Berlin')"

CASES: dict[str, tuple[Callable[[Stream], Stream], str]] = {
    "overlapping": (
        lambda s: s.window(Hopping("1 hour", every="20 minutes"), by="user").agg(**BOTH),
        f"select {STRETCH}, {TOLD} from orders group by user, window(at, '1 hour', '20 minutes')",
    ),
    "moved": (
        lambda s: s.window(Tumbling("1 hour", offset="15 minutes"), by="user", emit="updates").agg(**BOTH),
        f"select {STRETCH}, {TOLD} from orders group by user, window(at, '1 hour', '1 hour', '15 minutes')",
    ),
    "corrected": (
        lambda s: s.window(Tumbling("10 minutes"), by="user", late="correct", allowed="1 day").agg(**BOTH),
        f"select {STRETCH}, {TOLD} from orders group by user, window(at, '10 minutes')",
    ),
    "sessions": (
        lambda s: s.window(Session("5 minutes"), by="user").agg(**BOTH),
        f"select {SESSION}, {TOLD} from orders group by user, session_window(at, '5 minutes')",
    ),
    "changing sessions": (
        lambda s: s.window(Session("5 minutes"), by="user", emit="updates").agg(**BOTH),
        f"select {SESSION}, {TOLD} from orders group by user, session_window(at, '5 minutes')",
    ),
    "days": (
        lambda s: s.window(Calendar("day", "Europe/Berlin"), by="user").agg(**BOTH),
        f"select user, {BERLIN} as window_start, count(*) as n, sum(amount) as total from orders group by 1, 2",
    ),
    "running": (
        lambda s: s.group_by("user").agg(**BOTH, mean=agg.avg("amount"), spread=agg.var("amount")),
        f"select user, {TOLD}, avg(amount) as mean, var_samp(amount) as spread from orders group by user",
    ),
    "sliding": (
        lambda s: s.window(Sliding("1 hour"), by="user").agg(**BOTH, most=agg.max("amount")),
        """select user, amount, at, count(*) over w as n, sum(amount) over w as total, max(amount) over w as most from orders
           window w as (partition by user order by unix_micros(at) range between 3599999999 preceding and current row)""",
    ),
    "many aggregates": (
        lambda s: s.window(Tumbling("6 hours"), by="user").agg(
            first=agg.first("amount"),
            last=agg.last("amount"),
            different=agg.distinct("amount"),
            some=agg.count_if("amount > 20"),
            known=agg.count("amount"),
        ),
        """select user, window.start as window_start, min_by(amount, at) as first, max_by(amount, at) as last,
                  count(distinct amount) as different, count_if(amount > 20) as some, count(amount) as known
           from orders group by user, window(at, '6 hours')""",
    ),
}


@pytest.mark.parametrize("where", ["one task", "across tasks"])
@pytest.mark.parametrize("name", CASES)
def test_windows_equal_a_batch_query_of_spark(
    name: str, where: str, home: Path, rows: list[dict[str, Any]], spark: "SparkSession"
) -> None:
    make, query = CASES[name]
    flow = Flow("windows")
    make(flow.stream("orders", COLUMNS, time="at", lateness="1 minute")).view("out")
    Placed(home, spark=spark, where=where).drain(flow, 150)
    spark.createDataFrame([tuple(row.values()) for row in rows], COLUMNS).createOrReplaceTempView("orders")
    expected = [row.asDict() for row in spark.sql(query).collect()]
    found = view(home, "out")
    columns = list(expected[0])
    assert sorted(shown(row, columns) for row in found) == sorted(shown(row, columns) for row in expected)


def shown(row: dict[str, Any], columns: list[str]) -> tuple[str, ...]:
    return tuple(plain(row[name]) for name in columns)


def plain(value: Any) -> str:
    if isinstance(value, datetime):
        return str(micros(value.replace(tzinfo=UTC) if value.tzinfo is None else value))
    return f"{value:.9g}" if isinstance(value, float) else str(value)
