"""The flows of the golden home: every kind of step and output that keeps something, over topics of two parts."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import Calendar, Count, Flow, Hopping, Producer, Schema, Session, Sliding, TopicSpec, Tumbling, agg
from penstock.log.port import Log

START = datetime(2024, 1, 15, 10, tzinfo=UTC)
LATENESS, IDLE = "10 seconds", "36500 days"  # no partition is ever excused: results do not depend on when they are opened again
ORDERS = "order_id string, user_id long, amount double, cents long, at timestamp"
PAYMENTS = "order_id string, paid double, at timestamp"
USERS = "user_id long, name string, country string, at timestamp"
ACCOUNTS = "account_id long, user_id long, credit long"
READINGS = "device string, value long, happened timestamp, sent timestamp, received timestamp"
COUNTRIES = [{"country": "de", "vat": 0.19}, {"country": "fr", "vat": 0.2}]


def doubled(rows: pa.Table) -> pa.Table:
    """The function of a map_arrow."""
    return pa.table({"order_id": rows["order_id"], "twice": pc.multiply(rows["cents"], 2), "at": rows["at"]})


def asked(keys: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """Who a lookup asks."""
    return [{"level": f"level {key['user_id'] % 3}"} if key["user_id"] != 4 else None for key in keys]


def _orders(flow: Flow) -> Any:
    return flow.stream("orders", ORDERS, time="at", lateness=LATENESS, idle=IDLE)


def _payments(flow: Flow) -> Any:
    return flow.stream("payments", PAYMENTS, time="at", lateness=LATENESS, idle=IDLE)


def _users(flow: Flow) -> Any:
    return flow.table("users", USERS, key="user_id", time="at")


def windows() -> Flow:
    flow = Flow("windows")
    orders = _orders(flow)
    some = {"n": agg.count(), "sum": agg.sum("cents"), "total": agg.sum("amount")}
    minutes = orders.window(Tumbling("1 minute"), by="user_id").agg(**some, name="minutes")
    minutes.view("minutes").to("minutes_topic", key="user_id", partitions=2)
    minutes.late.view("minutes_late")
    orders.window(Tumbling("1 minute"), by="user_id", late="correct", allowed="1 hour").agg(**some, name="corrected").view(
        "corrected"
    )
    orders.window(Hopping("1 minute", every="30 seconds"), by="user_id", emit="updates").agg(**some, name="hops").view("hops")
    orders.window(Session("20 seconds", longest="2 minutes"), by="user_id").agg(**some, name="visits").view("visits")
    changing = orders.window(Session("20 seconds"), by="user_id", late="correct", allowed="1 hour", emit="updates")
    changing.agg(**some, name="changing").view("changing")
    orders.window(Sliding("30 seconds"), by="user_id").agg(**some, name="sliding").to("sliding_topic", key="user_id")
    orders.window(Count(3), by="user_id").agg(**some, name="threes").to("threes_topic", key="user_id")
    orders.window(Calendar("day", "Europe/Berlin"), early="10 seconds").agg(**some, name="days").view("days")
    return flow


def aggregates() -> Flow:
    flow = Flow("aggregates")
    orders = _orders(flow)
    every = {
        "n": agg.count(),
        "some": agg.count("amount"),
        "large": agg.count_if("cents > 500"),
        "share": agg.ratio("cents > 500"),
        "total": agg.sum("amount * 2"),
        "mean": agg.avg("amount"),
        "var": agg.var("cents"),
        "dev": agg.stddev("cents", population=True),
        "least": agg.min("amount"),
        "most": agg.max("amount"),
        "first": agg.first("order_id"),
        "last": agg.last("order_id", skip_nulls=True),
        "all": agg.collect("cents"),
        "top": agg.top(2, "order_id", by="cents"),
        "kinds": agg.distinct("cents"),
        "about": agg.distinct("cents", approx=True),
        "p90": agg.quantile("amount", 0.9),
        "parity": agg.own(
            "cents",
            init=lambda: 0,
            add=lambda state, rows: state ^ (pc.sum(rows["cents"]).as_py() & 1),
            merge=lambda a, b: a ^ b,
            type="long",
        ),
    }
    orders.group_by("user_id").agg(**every, name="running").view("running")
    orders.group_by("user_id", keep="1 minute").agg(n=agg.count(), name="lately").view("lately")
    orders.window(Tumbling("2 minutes")).agg(**every, rate=agg.rate(), name="by_window").view("by_window")
    orders.last("1 minute", name="recent").view("recent")
    return flow


def joins() -> Flow:
    flow = Flow("joins")
    orders, payments = _orders(flow), _payments(flow)
    for how in ("inner", "left", "right", "full", "semi", "anti"):
        orders.join(payments, on="order_id", within="1 minute", how=how, name=f"{how}_pairs").view(how)
    covered = orders.join(payments, on="order_id", within=("-5 seconds", "1 minute"), where="paid >= amount", name="covered")
    covered.to("covered_topic")
    covered.late.to("covered_late")
    return flow


def tables() -> Flow:
    flow = Flow("tables")
    orders, users = _orders(flow), _users(flow)
    accounts = flow.table("accounts", ACCOUNTS, key="account_id")
    countries = flow.static(COUNTRIES, "country string, vat double", key="country", name="countries")
    orders.enrich(users, on="user_id", version=True, name="as_of").view("as_of")
    orders.enrich(users, on="user_id", wait="20 seconds", how="inner", name="waited").to("waited_topic", key="user_id")
    orders.enrich(users, on="user_id", late="correct", allowed="1 hour", name="answered_again").view("answered_again")
    orders.enrich(accounts, on="user_id", as_of="now", name="as_of_now").view("as_of_now")
    rich = accounts.join(users, on="user_id", how="left", name="rich")
    rich.view("rich").to("rich_topic", key="account_id")
    users.join(countries, on="country", name="taxed").view("taxed")
    users.group_by("country").agg(people=agg.count(), names=agg.max("name"), name="by_country").view("by_country")
    orders.latest(by="user_id", name="newest").view("newest")
    orders.latest(by="user_id", order="cents", name="dearest").view("dearest")
    return flow


def rowwise() -> Flow:
    flow = Flow("rowwise")
    orders = _orders(flow)
    big = orders.where("cents > 300", name="big").select("order_id", "user_id", "at", gross="amount * 2")
    big.to("big_topic", key="user_id", partitions=2)
    orders.with_columns(half="amount * 0.5").named("halved").view("halved")
    orders.map_arrow(doubled, "order_id string, twice long, at timestamp", name="doubled").to("doubled_topic")
    small = orders.where("cents <= 300", name="small").select("order_id", "user_id", "at", gross="amount * 2").named("small_gross")
    big.named("big_gross").union(small, name="both").view("both")
    orders.lookup(asked, on="user_id", schema="level string", name="levels").view("levels")
    readings = flow.stream("readings", READINGS, idle=IDLE, lateness=LATENESS)
    fixed = readings.clock_fix(happened="happened", sent="sent", received="received", by="device")
    fixed.window(Tumbling("1 minute"), by="device").agg(n=agg.count(), value=agg.sum("value"), name="by_device").view("by_device")
    return flow


def report() -> Flow:
    """Over topics that other flows write: one of appended rows, one of changes."""
    flow = Flow("report")
    minutes = flow.stream("minutes_topic", "user_id long, n long, sum long")
    minutes.window(Tumbling("5 minutes"), by="user_id").agg(n=agg.sum("n"), cents=agg.sum("sum"), name="report").view("report")
    rich = flow.table("rich_topic", "account_id long, user_id long, credit long, name string, country string", key="account_id")
    rich.group_by("name").agg(credit=agg.sum("credit"), name="credit").view("credit")
    return flow


def ended() -> Flow:
    """Drained after the first part: what comes later is late."""
    flow = Flow("ended")
    orders = _orders(flow)
    orders.window(Tumbling("1 minute")).agg(n=agg.count(), name="closed").view("closed")
    return flow


def torn() -> Flow:
    """Killed when its last epoch was decided and not delivered."""
    flow = Flow("torn")
    orders = _orders(flow)
    counted = orders.window(Tumbling("1 minute"), by="user_id").agg(n=agg.count(), name="counted")
    counted.view("counted").to("counted_topic", key="user_id")
    return flow


FLOWS = (windows, aggregates, joins, tables, rowwise, report)  # in the order in which they run


def sql() -> Flow:
    """Steps that only Spark SQL evaluates, around a window."""
    flow = Flow("sql")
    orders = _orders(flow).with_columns(shout="upper(order_id)", bucket="pmod(cents, 3)").named("shouted")
    counted = orders.window(Tumbling("1 minute"), by="bucket").agg(n=agg.count(), most=agg.max("shout"), name="by_bucket")
    counted.select("bucket", "window_start", "n", quiet="lower(most)").named("quieter").view(
        "by_bucket", key=("bucket", "window_start")
    )
    return flow


# what goes in


def make_topics(log: Log) -> None:
    log.create(TopicSpec("orders", 2, Schema.of(ORDERS), "at"))
    log.create(TopicSpec("payments", 2, time="at"))  # raw
    log.create(TopicSpec("users", 1, Schema.of(USERS), "at", "user_id"))
    log.create(TopicSpec("accounts", 1, Schema.of(ACCOUNTS), key="account_id"))
    log.create(TopicSpec("readings", 1, Schema.of(READINGS)))


def send_part(log: Log, part: int) -> None:
    """The first (0) or the second (1) part of the input."""
    rng = random.Random(part)
    frames = {"batch_rows": 8, "linger": "1 day"}
    with (
        Producer(log.topic("orders"), id=f"till-{part}", **frames) as orders,
        Producer(log.topic("payments"), **frames) as payments,
    ):
        for n in range(60 * part, 60 * part + 60):
            row = _order(n, rng)
            orders.send(row, partition=n % 2)
            if n % 4:
                paid = row["amount"] - (n % 5 == 0)
                at = START + timedelta(seconds=3 * n + rng.randrange(9), microseconds=n)
                payments.send({"order_id": f"o{n}", "paid": paid, "at": at.isoformat()}, partition=n % 2)
    _send_tables(log, part)
    with Producer(log.topic("readings"), **frames) as readings:
        for n in range(20 * part, 20 * part + 20):
            readings.send(_reading(n))


def _order(n: int, rng: random.Random) -> dict[str, Any]:
    behind = 150 if n % 20 == 19 else rng.randrange(9)
    at = START + timedelta(seconds=3 * n - behind, microseconds=n)
    amount = None if n % 11 == 10 else rng.randrange(400) / 4
    return {"order_id": f"o{n}", "user_id": n % 5, "amount": amount or 0.0, "cents": rng.randrange(1000), "at": at}


def _reading(n: int) -> dict[str, Any]:
    """The clock of a device is an hour off; the network takes a second or two."""
    received = START + timedelta(seconds=5 * n)
    sent = received - timedelta(hours=1, seconds=1 + n % 2)
    return {"device": f"d{n % 2}", "value": n, "happened": sent - timedelta(seconds=2), "sent": sent, "received": received}


def _send_tables(log: Log, part: int) -> None:
    with Producer(log.topic("users"), linger="1 day") as users:
        for user, country in _changes(part):
            at = START + timedelta(minutes=3 * part - 1, seconds=user)
            users.send({"user_id": user, "name": f"name {user}.{part}", "country": country, "at": at})
        users.delete({"user_id": 3 - part}, time=START + timedelta(minutes=3 * part + 1))
    with Producer(log.topic("accounts"), linger="1 day") as accounts:
        for account in range(4 + part):
            accounts.send({"account_id": account, "user_id": account % 3, "credit": 100 * part + account})


def _changes(part: int) -> Iterator[tuple[int, str]]:
    for user in range(5):
        if not part or user != 1:
            yield user, ("de", "fr", "at")[(user + part) % 3]
