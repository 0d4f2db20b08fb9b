"""User 123 is renamed: every order of theirs is sent again, and nobody else's."""

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture
def test() -> Iterator[Any]:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.send("orders", *rows("orders")[:4])
        t.send("users", *rows("users")[:2])
        t.epoch()
        yield t


def shown(test: Any) -> dict[str, str]:
    return {row["order_id"]: row["name"] for row in test.rows("named_orders")}


def test_orders_of_known_users_are_shown(test: Any) -> None:
    assert shown(test) == {"O1": "Alice", "O2": "Alice", "O3": "Bob"}


def test_a_rename_sends_every_order_of_the_user_again(test: Any) -> None:
    before = test.log.topic("named_orders").ends()
    test.send("users", {"user_id": 123, "name": "Alice Smith"})
    test.epoch()
    assert shown(test) == {"O1": "Alice Smith", "O2": "Alice Smith", "O3": "Bob"}
    after = test.log.topic("named_orders").ends()
    assert sum(end.next - before[p].next for p, end in after.items()) == 2


def test_an_order_that_goes_over_to_another_user_changes_its_row(test: Any) -> None:
    test.send("orders", {"order_id": "O3", "user_id": 123, "amount": 12.0})
    test.epoch()
    assert shown(test) == {"O1": "Alice", "O2": "Alice", "O3": "Alice"}


def test_a_user_who_is_deleted_takes_the_orders_along_and_may_come_back(test: Any) -> None:
    test.delete("users", {"user_id": 123})
    test.epoch()
    assert shown(test) == {"O3": "Bob"}
    test.send("users", {"user_id": 123, "name": "Alice"})
    test.epoch()
    assert shown(test) == {"O1": "Alice", "O2": "Alice", "O3": "Bob"}
