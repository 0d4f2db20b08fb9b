"""Resnapshot of captures against a real PostgreSQL: what was missed is written, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.capture.reconcile import reconcile
from penstock.capture.resnapshot import resnapshot
from penstock.errors import NotFollowable, SlotLost
from penstock.testing.servers.postgres import PostgresServer
from reconciled import Shop

USERS = "create table users (id int primary key, name text, bio text)"


@pytest.fixture
def shop(postgres: PostgresServer, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(postgres, tmp_path / "home", USERS, ("users",))
    made.sql("insert into {schema}.users select i, 'name ' || i, repeat('b', 20) from generate_series(1, 1000) i")
    made.catch_up()
    yield made
    made.remove()


def lost(shop: Shop) -> None:
    """The slot is dropped, and the table is changed: 10 rows are new, 11 changed, 12 gone."""
    shop.sql("select pg_drop_replication_slot(%s)", shop.definition.options["slot"])
    shop.sql("insert into {schema}.users select i, 'new', 'new' from generate_series(2001, 2010) i")
    shop.sql("update {schema}.users set name = 'changed' where id between 101 and 111")
    shop.sql("delete from {schema}.users where id between 201 and 212")


def test_after_a_lost_slot_exactly_what_was_missed_is_written(shop: Shop) -> None:
    lost(shop)
    with pytest.raises(SlotLost):
        shop.catch_up()
    before = len(shop.records("users"))
    found = resnapshot(shop.of)
    assert found.equal
    assert found.repaired == 10 + 11 + 12
    more = shop.records("users")[before:]
    assert len(more) == 10 + 11 + 2 * 12
    assert {each.value["source"]["snapshot"] for each in more if each.value} == {"repair"}
    assert shop.folded("users") == shop.rows("users")


def test_after_a_resnapshot_the_capture_goes_on(shop: Shop) -> None:
    lost(shop)
    resnapshot(shop.of)
    shop.sql("update {schema}.users set name = 'again' where id = 105; delete from {schema}.users where id = 2001")
    before = len(shop.records("users"))
    shop.catch_up()
    assert [each.value and each.value["op"] for each in shop.records("users")[before:]] == ["u", "d", None]
    assert reconcile(shop.of).equal


def test_a_resnapshot_that_was_killed_is_not_passed_over(shop: Shop) -> None:
    lost(shop)

    class Killed(Exception):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with pytest.raises(Killed):
        resnapshot(shop.of, report=lambda progress: kill() if progress.phase == "log" else None)
    with pytest.raises(NotFollowable, match="a resnapshot of this capture was begun and not finished"):
        shop.catch_up()
    found = resnapshot(shop.of)
    assert (found.equal, found.repaired) == (True, 33)
    shop.catch_up()
