"""Tables and joins inside Spark's tasks, against plain batch queries of Spark over the same rows."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from faults.engine_shop import view
from penstock import Flow, Schema, Tumbling, agg
from penstock.engine.run.runtime import Runtime
from penstock.flow.stream import Stream
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer

from .test_engine_spark import Placed
from .test_windows_spark import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2024, 1, 15, 10, tzinfo=UTC)
ORDERS = "order_id string, user_id long, amount long"
USERS = "user_id long, name string, country string"
VISITS = "id long, user_id long, at timestamp"
CLICKS = "click long, user_id long, clicked timestamp"
PEOPLE = "user_id long, age int, since timestamp"
Rows = list[dict[str, Any]]


class Inputs:
    """Changes of two tables (None: a delete), events of two streams, and versions of a third table, out of order."""

    def __init__(self) -> None:
        rng = random.Random(8)
        self.orders = [
            ({"order_id": f"o{rng.randrange(60)}"}, {"user_id": rng.choice((None, *range(14))), "amount": rng.randrange(40)})
            for _ in range(300)
        ]
        self.users = [
            ({"user_id": rng.randrange(12)}, {"name": rng.choice("abcd"), "country": rng.choice("xyz")}) for _ in range(90)
        ]
        self.orders = [(key, None if rng.random() < 0.15 else row) for key, row in self.orders]
        self.users = [(key, None if rng.random() < 0.15 else row) for key, row in self.users]
        self.visits = [{"id": n, "user_id": rng.randrange(8), "at": self._at(rng, n)} for n in range(200)]
        self.clicks = [{"click": n, "user_id": rng.randrange(8), "clicked": self._at(rng, n)} for n in range(200)]
        self.people = [{"user_id": rng.randrange(6), "age": n, "since": self._at(rng, n)} for n in range(100)]
        rng.shuffle(self.people)

    @staticmethod
    def _at(rng: random.Random, n: int) -> datetime:
        return START + timedelta(seconds=10 * n + rng.randrange(30), microseconds=n)

    def fill(self, home: Path) -> None:
        log = Runtime(home).log
        for name, ddl, key in (("orders", ORDERS, "order_id"), ("users", USERS, "user_id")):
            topic = log.create(TopicSpec(name, 2, Schema.of(ddl), key=key))
            with Producer(topic, batch_rows=30, linger="1 day") as producer:
                for row_key, row in getattr(self, name):
                    producer.delete(row_key) if row is None else producer.send(row_key | row)
        for name, ddl, time in (("visits", VISITS, "at"), ("clicks", CLICKS, "clicked"), ("people", PEOPLE, "since")):
            with Producer(log.create(TopicSpec(name, 1, Schema.of(ddl), time)), batch_rows=30, linger="1 day") as producer:
                for row in getattr(self, name):
                    producer.send(row)

    def show(self, spark: "SparkSession") -> None:
        """The tables as they are in the end, and the rows of the streams, as tables of Spark."""
        for name, ddl in (("orders", ORDERS), ("users", USERS)):
            current = {tuple(key.values()): None if row is None else key | row for key, row in getattr(self, name)}
            _temporary(spark, name, ddl, [row for row in current.values() if row])
        for name, ddl in (("visits", VISITS), ("clicks", CLICKS), ("people", PEOPLE)):
            _temporary(spark, name, ddl, getattr(self, name))


def _temporary(spark: "SparkSession", name: str, ddl: str, rows: Rows) -> None:
    columns = Schema.of(ddl).names
    spark.createDataFrame([tuple(row[c] for c in columns) for row in rows], ddl).createOrReplaceTempView(name)


class Tables:
    """The inputs as a flow reads them."""

    def __init__(self, flow: Flow) -> None:
        self.orders = flow.table("orders", ORDERS, key="order_id")
        self.users = flow.table("users", USERS, key="user_id")
        self.people = flow.table("people", PEOPLE, key="user_id", time="since")
        self.visits = flow.stream("visits", VISITS, time="at", lateness="1 minute")
        self.clicks = flow.stream("clicks", CLICKS, time="clicked", lateness="1 minute")
        self.rates = flow.static(
            [{"country": "x", "vat": 7}, {"country": "y", "vat": 19}], "country string, vat int", key="country"
        )


def near(how: Any) -> Callable[[Tables], Stream]:
    return lambda t: t.visits.join(t.clicks, on="user_id", within=("-20 seconds", "1 minute"), how=how, where="id % 3 <> click % 3")


NEAR = """v.user_id = c.user_id and c.clicked between v.at - interval 20 seconds and v.at + interval 1 minute
    and id % 3 <> click % 3"""
PAIRS = "coalesce(v.user_id, c.user_id) as user_id, id, at, click, clicked"

CASES: dict[str, tuple[Callable[[Tables], Stream], str]] = {
    "current rows": (lambda t: t.orders, "select * from orders"),
    "a condition": (
        lambda t: t.orders.where("amount > 20").select("order_id", twice="amount * 2"),
        "select order_id, amount * 2 as twice from orders where amount > 20",
    ),
    **{
        f"tables, {how}": (
            lambda t, how=how: t.orders.join(t.users, on="user_id", how=how),  # type: ignore[misc]
            f"select user_id, order_id, amount, name, country from orders {how} join users using (user_id)",
        )
        for how in ("inner", "left", "right", "full")
    },
    **{
        f"tables, {how}": (
            lambda t, how=how: t.orders.join(t.users, on="user_id", how=how),  # type: ignore[misc]
            f"select orders.* from orders left {how} join users using (user_id)",
        )
        for how in ("semi", "anti")
    },
    "three tables": (
        lambda t: t.orders.join(t.users, on="user_id").join(t.rates, on="country", how="left"),
        """select country, user_id, order_id, amount, name, vat from orders join users using (user_id)
           left join values ('x', 7), ('y', 19) as rates(country, vat) using (country)""",
    ),
    "aggregates over a join": (
        lambda t: (
            t.orders.join(t.users, on="user_id")
            .group_by("country")
            .agg(n=agg.count(), total=agg.sum("amount"), low=agg.min("amount"), high=agg.max("amount"), names=agg.distinct("name"))
        ),
        """select country, count(*) as n, sum(amount) as total, min(amount) as low, max(amount) as high,
                  count(distinct name) as names from orders join users using (user_id) group by country""",
    ),
    "counts over a table": (
        lambda t: t.orders.group_by("user_id").agg(n=agg.count(), total=agg.sum("amount")),
        "select user_id, count(*) as n, sum(amount) as total from orders group by user_id",
    ),
    "windows with a table": (
        lambda t: (
            t.visits.window(Tumbling("5 minutes"), by="user_id", emit="updates")
            .agg(n=agg.count())
            .select("user_id", "window_start", "n")
            .join(t.users, on="user_id", how="left")
        ),
        """select user_id, window_start, n, name, country from
           (select user_id, window.start as window_start, count(*) as n from visits group by user_id, window(at, '5 minutes'))
           left join users using (user_id)""",
    ),
    **{
        f"streams, {how}": (near(how), f"select {PAIRS} from visits v {how} join clicks c on {NEAR}")
        for how in ("inner", "left", "right", "full")
    },
    **{f"streams, {how}": (near(how), f"select v.* from visits v left {how} join clicks c on {NEAR}") for how in ("semi", "anti")},
    "as of, corrected": (
        lambda t: t.visits.enrich(t.people, on="user_id", late="correct", allowed="1 day"),
        """select id, user_id, at, age, since from (
             select *, row_number() over (partition by id order by since desc) as newest
             from visits v left join (select user_id as u, age, since from people) p on v.user_id = u and since <= at)
           where newest = 1""",
    ),
}


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    return Inputs()


@pytest.mark.parametrize(("name", "where"), [(name, ("across tasks", "one task")[i % 2]) for i, name in enumerate(CASES)])
def test_tables_and_joins_equal_a_batch_query_of_spark(
    name: str, where: str, tmp_path: Path, inputs: Inputs, spark: "SparkSession"
) -> None:
    make, query = CASES[name]
    inputs.fill(tmp_path)
    flow = Flow("tables")
    make(Tables(flow)).view("out")
    Placed(tmp_path, spark=spark, where=where).drain(flow, 150)
    inputs.show(spark)
    wanted = [row.asDict() for row in spark.sql(query).collect()]
    columns = list(wanted[0])
    assert sorted(shown(row, columns) for row in view(tmp_path, "out")) == sorted(shown(row, columns) for row in wanted)
