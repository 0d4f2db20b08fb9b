"""Reconcile and repair of captures against a real PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.reconcile import reconcile, repair
from penstock.testing.servers.postgres import PostgresServer
from reconciled import Shop, replacing, without

USERS = "create table users (id int primary key, name text, bio text)"

Made = Callable[..., Shop]


@pytest.fixture
def shop(postgres: PostgresServer, tmp_path: Path) -> Iterator[Made]:
    made: list[Shop] = []

    def make(ddl: str = USERS, tables: tuple[str, ...] = ("users",), **settings: Any) -> Shop:
        made.append(Shop(postgres, tmp_path / f"home{len(made)}", ddl, tables, **settings))
        return made[-1]

    yield make
    for each in made:
        each.remove()


def filled(shop: Shop, rows: int = 1000) -> None:
    shop.sql(f"insert into {{schema}}.users select i, 'name ' || i, repeat('b', 20) from generate_series(1, {rows}) i")


def test_a_log_that_has_everything_is_equal_to_its_source(shop: Made) -> None:
    made = shop()
    filled(made)
    made.catch_up()
    made.sql("update {schema}.users set name = 'ä\"\\' || id where id % 3 = 0; delete from {schema}.users where id % 5 = 0")
    found = reconcile(made.of)
    assert found.equal, found
    (table,) = found.tables
    assert (table.rows, table.log_rows, table.ranges) == (800, 800, 1)
    assert table.checksum == table.log_checksum != 0


def test_a_record_that_was_lost_is_missing(shop: Made) -> None:
    made = shop()
    filled(made)
    made.catch_up(made.erring(without(7, 500)))
    found = reconcile(made.of)
    assert not found.equal
    (table,) = found.tables
    assert (table.missing, table.extra, table.different) == (2, 0, 0)
    assert {each.key for each in table.shown} == {'{"id":7}', '{"id":500}'}


def test_a_value_that_was_changed_is_shown_with_both(shop: Made) -> None:
    made = shop()
    filled(made)
    made.catch_up(made.erring(replacing('"name 77"', '"other"')))
    (table,) = reconcile(made.of).tables
    assert (table.missing, table.extra, table.different) == (0, 0, 1)
    ((difference,),) = [table.shown]
    assert (difference.kind, difference.key) == ("different", '{"id":77}')
    assert [(each.name, each.source, each.log) for each in difference.columns] == [("name", '"name 77"', '"other"')]


def test_a_repair_writes_what_differs_and_nothing_else(shop: Made) -> None:
    made = shop()
    filled(made)
    made.catch_up(made.erring(without(7, 500)))
    before = len(made.records("users"))
    found = repair(made.of)
    assert found.equal and found.first and not found.first.equal
    assert found.repaired == 2
    more = made.records("users")[before:]
    assert [(each.value["op"], each.value["source"]["snapshot"]) for each in more] == [("r", "repair")] * 2
    assert made.folded("users") == made.rows("users")
    assert reconcile(made.of).equal
