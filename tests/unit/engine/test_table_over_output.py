"""A table over a topic that a flow writes in the order of its input holds what the input said last. (G25)"""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock import Flow
from unit.engine.homes import ORDERS, Home

START = datetime(2024, 1, 15, 10, tzinfo=UTC)


def copy() -> Flow:
    flow = Flow("copy")
    flow.stream("orders", ORDERS, time="at", lateness="1 hour").where("amount >= 0", name="good").to("copied", key="id")
    return flow


def again() -> Flow:
    """A second flow in between."""
    flow = Flow("again")
    flow.stream("copied", ORDERS).to("copied_again", key="id")
    return flow


def table(topic: str) -> Flow:
    flow = Flow(f"table_of_{topic}")
    flow.table(topic, ORDERS, key="id").view(topic)
    return flow


@pytest.mark.parametrize("pieces", [1, 40])
def test_a_table_over_a_copied_topic_is_the_table_over_its_input(pieces: int, tmp_path: Path) -> None:
    home, rng = Home(tmp_path), random.Random(3)
    rows = [{"id": n % 4, "amount": n, "at": START + timedelta(seconds=rng.randrange(600))} for n in range(40)]
    size = len(rows) // pieces
    for start in range(0, len(rows), size):
        home.send("orders", *rows[start : start + size])
        home.run(copy())
        home.run(again())
    last = [{"id": id, "amount": 36 + id, "at": rows[36 + id]["at"]} for id in range(4)]
    for topic in ("orders", "copied", "copied_again"):
        home.run(table(topic))
        assert home.rows(topic) == last, topic
