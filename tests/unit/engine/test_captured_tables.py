"""Tables that a capture follows, read by the name of their topic alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from captured import START, Captured, Write
from penstock import Flow, TopicSpec, agg
from penstock.core.schema import Schema
from penstock.core.time import moment
from penstock.engine.run.runtime import Runtime
from penstock.errors import BadFlow, Mismatch
from penstock.flow.graph import FlowGraph
from unit.engine.homes import Home

USERS, ORDERS = "id long, name string, born date, balance decimal(10,2)", "id long, user_id long, amount long"
TABLES = {"users": USERS, "orders": ORDERS}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def user(op: str, id: int, name: str = "", **more: Any) -> Write:
    return Write("users", op, {"id": id, "name": name, **more})


def order(op: str, id: int, user_id: int, amount: int = 1) -> Write:
    return Write("orders", op, {"id": id, "user_id": user_id, "amount": amount})


def flow_over(table: str = "users", **how: Any) -> Flow:
    flow = Flow("people")
    flow.table(f"shop.public.{table}", **how).view("found")
    return flow


def names(home: Home, **how: Any) -> dict[Any, Any]:
    driver = home.run(flow_over(**how))
    assert driver.last
    assert driver.last.fates["shop.public.users"]["dead"] == 0
    return {row["id"]: row["name"] for row in home.rows("found")}


def test_the_name_of_the_topic_is_enough(home: Home) -> None:
    captured = Captured(home.log, TABLES)
    captured.write([user("r", 1, "Alice", born="1990-02-28", balance=12.34), user("r", 2)])
    captured.write([order("r", 7, 1, 5), order("r", 8, 1, 6)])
    flow = Flow("shop")
    users, orders = flow.table("shop.public.users"), flow.table("shop.public.orders")
    orders.group_by("user_id").agg(total=agg.sum("amount")).view("totals")
    users.view("users")
    home.run(flow)
    assert home.rows("totals") == [{"user_id": 1, "total": 11}]
    alice, nobody = home.rows("users")
    assert (str(alice["born"]), str(alice["balance"])) == ("1990-02-28", "12.34")
    assert nobody == {"id": 2, "name": "", "born": None, "balance": None}


def test_building_the_flow_looks_at_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flow_over()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flat", [False, True])
def test_updates_deletes_and_changes_of_the_key_are_followed(home: Home, flat: bool) -> None:
    captured = Captured(home.log, TABLES, flat=flat)
    captured.write([user("c", 1, "a"), user("c", 2, "b"), user("c", 3, "c")])
    assert names(home) == {1: "a", 2: "b", 3: "c"}
    captured.write([user("u", 1, "A"), user("d", 2, "b")], [user("d", 3, "c"), user("c", 4, "c")])
    assert names(home) == {1: "A", 4: "c"}


@pytest.mark.parametrize("flat", [False, True])
def test_the_last_change_of_a_transaction_holds_also_behind_a_delete(home: Home, flat: bool) -> None:
    captured = Captured(home.log, TABLES, flat=flat)
    captured.write([user("c", 1, "a"), user("d", 1, "a"), user("c", 1, "b"), user("c", 2, "x"), user("d", 2, "x")])
    assert names(home) == {1: "b"}


@pytest.mark.parametrize("flat", [False, True])
def test_what_came_last_holds_though_the_clock_of_the_database_went_back(home: Home, flat: bool) -> None:
    captured = Captured(home.log, TABLES, flat=flat)
    captured.number = 100
    captured.write([user("c", 1, "first"), user("c", 2, "x")])
    captured.number = 5
    captured.write([user("u", 1, "second"), user("d", 2, "x")])
    assert names(home) == {1: "second"}


@pytest.mark.parametrize("flat", [False, True])
def test_no_row_is_left_out_though_the_clock_of_the_database_is_years_ahead(home: Home, flat: bool) -> None:
    captured = Captured(home.log, TABLES, flat=flat)
    captured.number = 10**9
    captured.write([user("c", 1, "a"), user("c", 2, "b")], [user("d", 2, "b")])
    assert names(home) == {1: "a"}


def test_flat_keys_of_several_columns_name_the_row_of_a_delete(home: Home) -> None:
    captured = Captured(home.log, {"users": "id long, country string, name string"}, keys=2, flat=True)
    captured.write([user("c", 1, "a", country="DE"), user("c", 1, "b", country="FR")])
    captured.write([Write("users", "d", {"id": 1, "country": "DE"})])
    home.run(flow_over())
    assert home.rows("found") == [{"id": 1, "country": "FR", "name": "b"}]


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("more", ["", ", tags array<string>"])  # with it records are looked at one by one
def test_columns_called_as_the_parts_of_an_envelope_are_columns(home: Home, flat: bool, more: str) -> None:
    captured = Captured(home.log, {"users": "id long, op string, before string, after string, payload string" + more}, flat=flat)
    row = {"id": 1, "op": "d", "before": "b", "after": "a", "payload": "p", **({"tags": ["t"]} if more else {})}
    captured.write([Write("users", "c", row)])
    home.run(flow_over())
    assert home.rows("found") == [row]


def test_check_and_plan_take_the_columns_from_the_capture_and_start_no_flow(home: Home) -> None:
    Captured(home.log, TABLES).write([user("c", 1, "a")])
    plan = Runtime(home.path).plan(flow_over())
    assert plan.step("shop.public.users").schema == Schema.of(USERS)
    assert plan.outputs[0].key == ("id",)
    assert not (home.path / "flows").exists()


@pytest.mark.parametrize("flat", [False, True])
def test_a_version_is_valid_from_its_commit_on(home: Home, flat: bool) -> None:
    captured = Captured(home.log, TABLES, flat=flat)
    captured.write([user("c", 1, "a")], [], [user("u", 1, "b")])
    visits = [{"id": 1, "at": moment(START + seconds * 1_000_000)} for seconds in (1, 2)]
    home.send("visits", *visits, schema="id long, at timestamp")
    flow = Flow("people")
    stream = flow.stream("visits", "id long, at timestamp", time="at", lateness="1 second")
    stream.enrich(flow.table("shop.public.users"), on="id").select("at", "name").view("found")
    home.run(flow)
    assert [row["name"] for row in home.rows("found")] == ["a", "b"]


def test_some_columns_may_be_declared_and_the_key_is_known(home: Home) -> None:
    Captured(home.log, TABLES).write([user("c", 1, "a")])
    home.run(flow_over(schema="id int, name string"))
    assert home.rows("found") == [{"id": 1, "name": "a"}]


def test_schema_and_key_may_be_given_and_the_topic_may_come_later(home: Home) -> None:
    flow = flow_over(schema="id long, name string", key="id")
    driver = home.driver(flow)
    driver.start()
    assert driver.epoch() is None
    Captured(home.log, TABLES).write([user("c", 1, "a")])
    driver.epoch()
    driver.release()
    assert home.rows("found") == [{"id": 1, "name": "a"}]
    Captured(home.log, TABLES).write([user("u", 1, "b")])
    home.run(flow)
    assert home.rows("found") == [{"id": 1, "name": "b"}]


def refused(home: Home, flow: FlowGraph) -> str:
    with pytest.raises(BadFlow) as caught:
        home.driver(flow)
    return re.sub(r"[\w/.-]+\.py:\d+", "shop.py:N", str(caught.value))


def test_a_topic_that_is_not_there_is_refused_with_what_to_do(home: Home) -> None:
    assert refused(home, flow_over()) == (
        "cannot read table shop.public.users: there is no such topic, so its columns cannot be known\n"
        '  flow people, step "shop.public.users" (shop.py:N)\n'
        "  hint: run the capture that writes it first (penstock cdc run NAME; penstock cdc status lists them), "
        'or give schema and key: flow.table("shop.public.users", "id long, …", key="id")'
    )


def test_a_topic_that_no_capture_writes_is_refused(home: Home) -> None:
    home.log.create(TopicSpec("shop.public.users", schema=Schema.of("id long")))
    said = refused(home, flow_over())
    assert said.startswith("cannot read table shop.public.users: no capture writes this topic, so its columns cannot be known\n")
    assert 'hint: give schema and key: flow.table("shop.public.users", "id long, …", key="id")' in said


def test_a_capture_that_has_finished_nothing_yet_is_said_so(home: Home) -> None:
    home.log.create(TopicSpec("shop.public.users", capture="shop"))
    said = refused(home, flow_over())
    assert said.startswith("cannot read table shop.public.users: capture 'shop' has not finished a batch of it yet")
    assert "hint: let it run for a while (penstock cdc run shop), or give schema and key" in said


def test_another_key_than_that_of_the_capture_is_refused(home: Home) -> None:
    Captured(home.log, TABLES).write([user("c", 1, "a")])
    said = refused(home, flow_over(key="name"))
    assert said.startswith("cannot tell the rows of shop.public.users apart by name: its capture names them by id\n")
    said = refused(home, flow_over(schema="name string"))
    assert said.startswith("cannot tell the rows of shop.public.users apart: column 'id' of their key is not declared\n")


def test_a_test_of_a_flow_has_no_log_and_says_so() -> None:
    with pytest.raises(BadFlow, match=r"flow\.test\(\) has no log that knows its columns") as caught:
        flow_over().test()
    assert "give schema and key" in str(caught.value)


def test_a_flow_goes_on_with_the_columns_it_has_when_the_table_gains_one(home: Home) -> None:
    captured = Captured(home.log, {"users": "id long, name string"})
    captured.write([user("c", 1, "a")])
    flow = flow_over()
    driver = home.driver(flow)
    driver.start()
    driver.epoch()
    captured.tables["users"] = "id long, name string, age int"
    captured.write([user("c", 2, "b", age=30)])
    driver.epoch()
    driver.release()
    home.run(flow)
    assert home.rows("found") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    (said,) = home.said
    assert said.startswith("flow people goes on with the columns of shop.public.users that it has, without age, which came later")


def test_a_flow_that_does_not_read_the_new_column_notices_nothing(home: Home) -> None:
    captured = Captured(home.log, {"users": "id long, name string"})
    captured.write([user("c", 1, "a")])
    flow = Flow("people")
    flow.table("shop.public.users").select("id", "name").view("found")
    home.run(flow)
    captured.tables["users"] = "id long, age int, name string"
    captured.write([user("c", 2, "b", age=30)])
    home.run(flow)
    assert (len(home.rows("found")), home.said) == (2, [])


def test_a_column_that_is_dropped_is_null_from_then_on(home: Home) -> None:
    captured = Captured(home.log, {"users": "id long, name string"})
    captured.write([user("c", 1, "a")])
    flow = Flow("people")
    flow.table("shop.public.users").where("name is null or name != 'x'").view("found")
    home.run(flow)
    captured.tables["users"] = "id long"
    captured.write([Write("users", "c", {"id": 2})])
    home.run(flow)
    assert home.rows("found") == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def test_a_flow_whose_own_steps_have_changed_is_refused_as_ever_and_fits_again_when_they_are_put_back(home: Home) -> None:
    captured = Captured(home.log, {"users": "id long, name string"})
    captured.write([user("c", 1, "a")])
    home.run(flow_over())
    captured.tables["users"] = "id long, name string, age int"
    captured.write([user("c", 2, "b", age=30)])
    changed = Flow("people")
    changed.table("shop.public.users").where("age > 1").view("found")
    with pytest.raises(Mismatch, match="flow people has changed since it last ran"):
        home.run(changed)
    home.run(flow_over())
    assert len(home.rows("found")) == 2


def test_a_flow_that_is_new_reads_all_columns(home: Home) -> None:
    captured = Captured(home.log, {"users": "id long, name string"})
    captured.write([user("c", 1, "a")])
    captured.tables["users"] = "id long, name string, age int"
    captured.write([user("c", 2, "b", age=30)])
    home.run(flow_over())
    assert home.rows("found") == [{"id": 1, "name": "a", "age": None}, {"id": 2, "name": "b", "age": 30}]
