"""Writes meanings.json: what identifies the steps of the golden home's flows. To be run when a kind of step is added, and before
that never: a description that changes refuses every home that users have.

    PYTHONPATH=tests python tests/golden/make_meanings.py
"""

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from golden import home_flows
from penstock import Flow, Tumbling, agg
from penstock.core.schema import Schema
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.plan import Plan
from penstock.sinks import call

GOLDEN = Path(__file__).with_name("meanings.json")


def hiding() -> Flow:
    """A table with a condition, looked up as of a time."""
    flow = Flow("hiding")
    orders = flow.stream("orders", home_flows.ORDERS, time="at", lateness="10 seconds")
    users = flow.table("users", home_flows.USERS, key="user_id", time="at").where("country <> 'at'", name="some")
    orders.enrich(users, on="user_id", name="known").view("known")
    return flow


def compared() -> Flow:
    """Joins with conditions that only Spark SQL evaluates."""
    flow = Flow("compared")
    orders = flow.stream("orders", home_flows.ORDERS, time="at", lateness="10 seconds")
    payments = flow.stream("payments", home_flows.PAYMENTS, time="at", lateness="10 seconds")
    for how in ("inner", "left"):
        orders.join(payments, on="order_id", within="1 minute", how=how, where="sqrt(paid) > 2", name=how).view(how)
    return flow


def alerting() -> Flow:
    """Orders that are told of."""
    flow = Flow("alerting")
    orders = flow.stream("orders", home_flows.ORDERS, time="at", lateness="10 seconds")
    orders.alert(when="amount > 100", resolve="amount < 50", by="user_id", every="1 hour", name="large").view("large")
    hours = orders.window(Tumbling("1 hour"), by="user_id", late="correct", allowed="2 hours").agg(n=agg.count(), name="hours")
    hours.alert(when="n > 3", by="user_id", every="1 hour", name="busy").sink(call(print), name="told")
    return flow


class Conditions:
    """Stands for Spark: what it is asked about is a condition."""

    def type_of(self, sql: str, schema: Schema) -> pa.DataType:
        return pa.bool_()


def plans() -> list[Plan]:
    plain = [resolve(flow(), NoAnalyzer()) for flow in (*home_flows.FLOWS, hiding, alerting)]
    return [*plain, resolve(compared(), Conditions())]


def written(plan: Plan) -> dict[str, Any]:
    meanings: dict[str, Any] = orjson.loads(orjson.dumps({step.name: step.meaning() for step in plan.steps}))
    return meanings


if __name__ == "__main__":
    GOLDEN.write_bytes(orjson.dumps({plan.flow: written(plan) for plan in plans()}, option=orjson.OPT_INDENT_2) + b"\n")
