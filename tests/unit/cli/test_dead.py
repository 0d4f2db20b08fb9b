"""penstock dead, as a user calls it: what failed and why, and records sent back once."""

import threading
from pathlib import Path
from typing import Any

import pytest

from faults.engine_shop import SparkFree
from penstock import Producer, Schema, TopicSpec
from penstock.cli.flow.load import load_flows
from penstock.core.columns import HEADERS
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.flows.dead import DeadLetter, dead_letters_of
from penstock.engine.flows.redriving import Redriving
from penstock.engine.run import loop
from penstock.errors import StorageError
from penstock.log.open import open_log
from penstock.storage.local import LocalStorage
from unit.cli.calling import Call, calls_of

FLOW = """
import pyarrow as pa
import pyarrow.compute as pc
from penstock import Flow, Tumbling, agg

def shares(rows):
    return pa.table({{"user": rows["user"], "share": pc.divide(pa.scalar({hundred}, pa.int64()), {amount})}})

flow = Flow("shop")
orders = flow.stream("orders", "user string, amount long, at timestamp", time="at", lateness="10 seconds")
made = orders.map_arrow(shares, "user string, share long", name="shares")
made.view("shares")
made.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), name="per_user").view("per_user")
"""
ORDERS = "user string, amount long, at timestamp"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    topic = open_log(tmp_path / "home").create(TopicSpec("orders", 1, Schema.of(ORDERS), "at", key="user"))
    with Producer(topic) as producer:
        for i, amount in enumerate([4, 0, 5, 0]):
            producer.send({"user": "ab"[i % 2], "amount": amount, "at": f"2024-01-15T10:00:{10 * i:02d}Z"})
        producer.send({"user": "c", "amount": 0, "at": "2024-01-15T10:05:00Z"})
    ran(tmp_path / "home")
    return tmp_path / "home"


def ran(home: Path, hundred: int = 100, amount: str = 'rows["amount"]') -> None:
    """What `penstock run --catch-up` does."""
    file = home.parent / "shop.py"
    file.write_text(FLOW.format(hundred=hundred, amount=amount))
    runtime = SparkFree(home)
    (graph,) = load_flows([str(file)])
    driver = runtime.driver(runtime.plan(graph), 2)
    driver.start()
    try:
        loop.catch_up(driver, threading.Event(), lambda report: None)
        driver.deliverer.settle()
    finally:
        driver.release()


dead: Call = calls_of("dead")


def records(home: Path) -> list[dict[str, Any]]:
    topic = open_log(home).topic("orders")
    rows = [row for chunk in topic.read(0) for row in chunk.rows.to_pylist()]
    return [row | {HEADERS: dict(row.get(HEADERS) or [])} for row in rows]


def test_letters_are_counted_by_step_expression_and_cause(home: Path) -> None:
    assert dead("list").rows == [{"flow": "shop", "step": "shares", "expression": "shares", "cause": "ArrowInvalid", "rows": 3}]
    assert dead("list", "shop").rows == dead("list").rows


def test_letters_are_shown_with_their_record_and_row(home: Path) -> None:
    rows = dead("show", "shop").rows
    assert [row["record"] for row in rows] == ["orders/0@1", "orders/0@3", "orders/0@4"]
    assert rows[0]["letter"] == "shop.dead/0@0"
    assert rows[0]["reason"] == "ArrowInvalid: divide by zero"
    assert '"user":"b"' in rows[0]["row"]
    assert len(dead("show", "shop", "--max", "1").rows) == 1


def test_letters_can_be_chosen_by_step_and_by_a_condition(home: Path) -> None:
    assert dead("show", "shop", "--step", "other").rows == []
    assert [row["record"] for row in dead("show", "shop", "--where", "user = 'c'").rows] == ["orders/0@4"]
    assert len(dead("show", "shop", "--where", "cause = 'ArrowInvalid' and record like '%@3'").rows) == 1


def test_a_dry_run_sends_nothing_and_says_what_would_be_late(home: Path) -> None:
    answer = dead("redrive", "shop", "--dry-run")
    assert [(row["record"], row["fate"], row["late"]) for row in answer.rows] == [
        ("orders/0@1", "redrive", True),
        ("orders/0@3", "redrive", True),
        ("orders/0@4", "redrive", False),
    ]
    assert "nothing sent; 3 records of shop would be sent back · 2 behind the watermark" in answer.err
    assert len(records(home)) == 5


def test_a_record_is_sent_back_with_its_key_and_time_and_a_header_that_names_it(home: Path) -> None:
    assert "sent back 3 records of shop" in dead("redrive", "shop").err
    before, after = records(home)[:5], records(home)[5:]
    assert [row[HEADERS]["redrive-of"] for row in after] == [b"orders/0@1", b"orders/0@3", b"orders/0@4"]
    for old, new in zip([before[1], before[3], before[4]], after, strict=True):
        assert {k: v for k, v in new.items() if k != HEADERS} == {k: v for k, v in old.items() if k != HEADERS}


def test_a_second_redrive_doubles_nothing_unless_it_is_asked_to(home: Path) -> None:
    dead("redrive", "shop")
    assert "sent back 0 records of shop · 3 redriven before" in dead("redrive", "shop").err
    assert len(records(home)) == 8
    assert "sent back 1 record of shop" in dead("redrive", "shop", "--again", "--where", "user = 'c'").err
    assert len(records(home)) == 9


def test_what_is_sent_back_is_judged_as_new_and_may_die_again(home: Path) -> None:
    dead("redrive", "shop", "--where", "user = 'c'")
    ran(home)
    assert [row["record"] for row in dead("show", "shop").rows][-1] == "orders/0@5"
    dead("redrive", "shop", "--where", "user = 'c'")
    assert records(home)[-1][HEADERS] == {"redrive-of": b"orders/0@5"}


def test_once_the_function_is_mended_a_redriven_record_passes(home: Path) -> None:
    dead("redrive", "shop")
    ran(home, amount='pc.max_element_wise(rows["amount"], 1)')
    assert len(dead("show", "shop").rows) == 3
    assert len(calls_of("view")("show", "shares").rows) == 5


@pytest.mark.parametrize(("point", "sent"), [(".json", False), ("append", False), (".done", True)])
def test_a_redrive_that_was_cut_short_is_settled_by_the_next(
    point: str, sent: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def redrive(letters: list[DeadLetter]) -> int:
        one = Redriving(open_log(home), decisions_of(home, "shop"))
        return one.send(one.intended(letters))

    publish, append = LocalStorage.publish, type(open_log(home).topic("orders")).append

    def publishes(self: Any, path: str, data: bytes) -> None:
        if path.endswith(point):
            raise StorageError("the machine stopped here")
        publish(self, path, data)

    def appends(self: Any, *what: Any, **more: Any) -> Any:
        if point == "append":
            raise StorageError("the machine stopped here")
        return append(self, *what, **more)

    letters = list(dead_letters_of(open_log(home), "shop"))
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "publish", publishes)
        patched.setattr(type(open_log(home).topic("orders")), "append", appends)
        with pytest.raises(StorageError):
            redrive(letters[:2])
    assert redrive(letters) == (1 if sent else 3)
    assert redrive(letters) == 0
    assert [row[HEADERS]["redrive-of"] for row in records(home)[5:]] == [b"orders/0@1", b"orders/0@3", b"orders/0@4"]


def test_a_record_that_is_gone_is_said_to_be(home: Path) -> None:
    open_log(home).delete("orders")
    answer = dead("redrive", "shop", "--dry-run")
    assert {row["fate"] for row in answer.rows} == {"gone"}
    assert "nothing sent; 0 records of shop would be sent back · 3 gone" in answer.err


def test_a_flow_that_never_ran_is_not_found(home: Path) -> None:
    assert dead("show", "shops").code == 3


def test_the_books_point_to_the_letters(home: Path) -> None:
    assert "shop: 3 dead (penstock dead list shop)" in calls_of("fates")("shop").err


def test_why_tells_of_the_step_on_which_a_record_failed(home: Path) -> None:
    said = calls_of("why")("orders", "0", "1", str(home.parent / "shop.py"))
    assert "divide by zero" in said.out
    assert "shop.dead/0@0" in said.out


def test_a_what_if_leaves_rows_out_on_which_a_step_fails(home: Path) -> None:
    said = calls_of("fates")(str(home.parent / "shop.py"), "--lateness", "1 minute")
    assert said.code == 0
    assert [row["on time"] for row in said.rows if row["step"] == "per_user"] == [2, 2]


def test_why_knows_before_a_letter_is_written(home: Path) -> None:
    open_log(home).delete("shop.dead")
    said = calls_of("why")("orders", "0", "1", str(home.parent / "shop.py"))
    assert "dead: shares: ArrowInvalid: divide by zero" in said.out
