"""A small shop to try flows on."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from penstock.core.schema import Schema
from penstock.errors import BadInput
from penstock.flow.graph import FlowGraph
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.flow.stream import Stream
from penstock.plan import Plan

ORDERS = "order_id string, user_id long, amount double, at timestamp, price decimal(10,2), tags array<string>"
PAYMENTS = "order_id string, paid double, at timestamp"


@dataclass
class Shop:
    flow: FlowGraph
    orders: Stream
    payments: Stream

    def plan(self, analyzer=None, **facts) -> Plan:
        return resolve(self.flow, analyzer or NoAnalyzer(), **facts)


class Strings:
    """Stands for Spark: every expression it is asked about is a string."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def type_of(self, sql: str, schema: Schema) -> pa.DataType:
        self.asked.append(sql)
        return pa.string()


@pytest.fixture
def shop() -> Shop:
    flow = FlowGraph("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    return Shop(flow, orders, flow.stream("payments", PAYMENTS, time="at", lateness="10 seconds"))


@pytest.fixture
def strings() -> Strings:
    return Strings()


@pytest.fixture
def message() -> Callable[..., str]:
    """What is said when a call is refused; places in these tests are called shop.py:N."""

    def said(call: Callable[[], object]) -> str:
        with pytest.raises(BadInput) as caught:
            call()
        return re.sub(r"[\w/]+\.py:\d+", "shop.py:N", str(caught.value))

    return said


@pytest.fixture
def refused(shop, message) -> Callable[..., str]:
    """What is said when the shop's flow is checked."""
    return lambda analyzer=None, **facts: message(lambda: shop.plan(analyzer, **facts))
