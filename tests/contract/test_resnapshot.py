"""Resnapshot of captures against a real PostgreSQL: what was missed is written, and nothing else."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from penstock.capture.reconcile import Followed, followed, reconcile, reconciling
from penstock.capture.resnapshot import resnapshot
from penstock.errors import BadInput, InUse, NotFollowable, SlotLost
from penstock.testing.contracts.capture.records import journal_of
from penstock.testing.servers.postgres import PostgresServer
from reconciled import Shop, writing
from waiting import until

USERS = "create table users (id int primary key, name text, bio text)"
FILLED = "insert into {schema}.users select i, 'name ' || i, repeat('b', 20) from generate_series(1, 1000) i"
CHANGED = """
insert into {schema}.users select i, 'new', 'new' from generate_series(2001, 2010) i;
update {schema}.users set name = 'changed' where id between 101 and 111;
delete from {schema}.users where id between 201 and 212"""
DIFFERENCES = 10 + 11 + 12


class Killed(Exception):
    """As a kill would end it."""


@pytest.fixture
def shop(postgres: PostgresServer, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(postgres, tmp_path / "home", USERS, ("users",), partitions=2)
    made.sql(FILLED)
    made.catch_up()
    yield made
    made.remove()


def lost(shop: Shop) -> None:
    """The slot is dropped, and the table is changed."""
    shop.lose_slot()
    shop.sql(CHANGED)


def repairs(shop: Shop) -> list[str]:
    """The keys of records that are marked."""
    return [each.key for each in shop.records("users") if each.value and each.value["source"]["snapshot"] == "repair"]


def killing(of: Followed, point: str, nth: int) -> Followed:
    """Ends it the nth time that a crash point is passed."""
    passed: list[str] = []

    def fail(at: str) -> None:
        passed.append(at)
        if at == point and passed.count(point) == nth:
            raise Killed

    return replace(of, fail=fail)


def test_after_a_lost_slot_exactly_what_was_missed_is_written(shop: Shop) -> None:
    lost(shop)
    with pytest.raises(SlotLost):
        shop.catch_up()
    before = len(shop.records("users"))
    found = resnapshot(shop.of)
    assert (found.equal, found.repaired) == (True, DIFFERENCES)
    assert len(repairs(shop)) == len(set(repairs(shop))) == DIFFERENCES
    assert len(shop.records("users")) == before + DIFFERENCES + 12  # tombstones
    assert shop.folded("users") == shop.rows("users")


def test_the_journal_says_that_there_was_a_resnapshot(shop: Shop) -> None:
    lost(shop)
    resnapshot(shop.of)
    said = [(each.status, each.id.split(":")[0]) for each in journal_of(shop.log, shop.name)]
    assert said[-6:] == [(status, of) for of in ("resnapshot", "repair", "resnapshot") for status in ("BEGIN", "END")]


def test_after_a_resnapshot_the_capture_goes_on(shop: Shop) -> None:
    lost(shop)
    resnapshot(shop.of)
    shop.sql("update {schema}.users set name = 'again' where id = 105; delete from {schema}.users where id = 2001")
    before = len(shop.records("users"))
    shop.catch_up()
    assert len(shop.records("users")) == before + 3
    assert shop.folded("users") == shop.rows("users")
    assert reconcile(shop.of).equal


def test_a_resnapshot_without_a_reason_writes_nothing(shop: Shop) -> None:
    before = len(shop.records("users"))
    found = resnapshot(shop.of)
    assert (found.equal, found.repaired, len(shop.records("users"))) == (True, 0, before)


@pytest.mark.parametrize("point", ["capture.begun", "capture.appended", "capture.ended"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_resnapshot_that_was_killed_writes_everything_once(
    shop: Shop, point: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.capture.reconcile.mending.BATCH_ROWS", 8)
    lost(shop)
    with pytest.raises(Killed):
        resnapshot(killing(shop.of, point, nth))
    with pytest.raises((NotFollowable, SlotLost)):
        shop.catch_up()
    found = resnapshot(shop.of)
    assert found.equal
    assert sorted(repairs(shop)) == sorted(set(repairs(shop)))
    assert len(repairs(shop)) == DIFFERENCES
    assert shop.folded("users") == shop.rows("users")
    shop.catch_up()


def test_a_run_is_refused_until_a_resnapshot_is_done(shop: Shop) -> None:
    lost(shop)

    def kill() -> None:
        raise Killed

    with pytest.raises(Killed):
        resnapshot(shop.of, report=lambda progress: kill() if progress.phase == "log" else None)
    with pytest.raises(NotFollowable, match="a resnapshot of this capture was begun and not finished"):
        shop.catch_up()
    assert resnapshot(shop.of).repaired == DIFFERENCES
    shop.catch_up()


@pytest.mark.parametrize("point", ["capture.begun", "capture.appended"])
def test_a_batch_that_cannot_be_made_again_is_left_as_it_is(shop: Shop, point: str) -> None:
    shop.sql("update {schema}.users set name = 'half' where id between 1 and 40")

    def kill(at: str) -> None:
        if at == point:
            raise Killed

    with pytest.raises(Killed):
        replace(shop.of, fail=kill).run().run(catch_up=True)
    assert shop.of.journal().unfinished
    lost(shop)
    shop.sql("update {schema}.users set name = 'later' where id = 1; delete from {schema}.users where id = 2")
    found = resnapshot(shop.of)
    assert found.equal
    assert shop.folded("users") == shop.rows("users")
    assert len(repairs(shop)) == len(set(repairs(shop)))
    shop.sql("update {schema}.users set name = 'at last' where id = 3")
    shop.catch_up()
    assert shop.folded("users") == shop.rows("users")


def test_a_resnapshot_beside_four_writers_ends_equal(shop: Shop) -> None:
    lost(shop)
    with writing(shop, 4) as written:
        assert until(lambda: written() > 20)
        found = resnapshot(shop.of)
        assert found.equal, found.tables[0].shown
    shop.catch_up()
    assert shop.folded("users") == shop.rows("users")
    assert reconcile(shop.of).equal


def test_copies_that_were_not_finished_are_finished_by_it(postgres: PostgresServer, tmp_path: Path) -> None:
    made = Shop(postgres, tmp_path / "home", USERS, ("users",))
    made.sql(FILLED)
    made.lose_slot()
    found = resnapshot(made.of)
    assert (found.equal, found.repaired) == (True, 1000)
    assert made.folded("users") == made.rows("users")
    before = len(made.records("users"))
    made.catch_up()
    assert len(made.records("users")) == before
    made.remove()


def test_while_the_capture_runs_it_is_refused(shop: Shop) -> None:
    with shop.running(), pytest.raises(InUse):
        resnapshot(shop.of)


def test_an_engine_without_a_slot_has_none_to_lose(shop: Shop) -> None:
    with pytest.raises(BadInput, match="has no replication slot"):
        resnapshot(replace(shop.of, definition=replace(shop.definition, engine="poll")))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path / "server") as server:
        yield server


def test_after_a_restore_of_an_older_copy_rows_go_back_too(own: PostgresServer, tmp_path: Path) -> None:
    made = Shop(own, tmp_path / "home", USERS, ("users",))
    made.sql(FILLED)
    made.catch_up()
    own.stop()
    shutil.copytree(own.place / "data", own.place / "older", copy_function=shutil.copy)
    own.start()
    made.sql("insert into {schema}.users select i, 'x', repeat('y', 2000) from generate_series(5001, 6000) i")
    made.sql(CHANGED)
    made.catch_up()
    own.stop()
    restored(own)
    own.start()
    with pytest.raises(NotFollowable):
        made.catch_up()
    made.sql("update {schema}.users set name = 'restored' where id = 1")
    found = resnapshot(made.of)
    assert (found.equal, found.repaired) == (True, 1000 + DIFFERENCES + 1)
    assert made.folded("users") == made.rows("users")
    made.sql("update {schema}.users set name = 'goes on' where id between 1 and 20")
    assert reconcile(made.of).equal
    assert made.folded("users") == made.rows("users")


def restored(server: PostgresServer) -> None:
    """The older copy takes the place of the data, with the owner that they had."""
    owner = (server.place / "data").stat()
    shutil.rmtree(server.place / "data")
    (server.place / "older").rename(server.place / "data")
    for path in [server.place / "data", *(server.place / "data").rglob("*")]:
        shutil.chown(path, owner.st_uid, owner.st_gid)


def test_another_server_with_other_transactions_is_followed_on(
    own: PostgresServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    made = Shop(postgres, tmp_path / "home", USERS, ("users",))
    made.sql(FILLED)
    made.catch_up()
    advance(postgres)
    made.sql("update {schema}.users set name = 'old server' where id <= 10")
    made.catch_up()
    made.remove()
    made.server = own
    made.sql(f"create schema {made.schema}; set search_path = {made.schema}; {USERS}")
    made.sql(FILLED)
    made.sql(CHANGED)
    definition = replace(made.definition, url=own.url)
    made.captures.change(definition)
    made.of = followed(made.name, made.log, made.captures)
    found = resnapshot(made.of)
    assert (found.equal, found.repaired) == (True, 10 + DIFFERENCES)
    assert made.folded("users") == made.rows("users")
    made.sql("delete from {schema}.users where id < 20")
    assert reconcile(made.of).equal


def advance(server: PostgresServer) -> None:
    """Uses up numbers of transactions, so that those of the server are greater than any of a new one."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        for _ in range(3000):
            connection.execute("select pg_current_xact_id()")


def test_transactions_of_another_server_taken_for_ones_of_this_would_be_missing(
    own: PostgresServer, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view: Callable[..., object] = reconciling.View

    def unsettled(name: str, topic: object, ends: object, sees: object, settled: object, *more: object) -> object:
        return view(name, topic, ends, sees, (), *more)

    monkeypatch.setattr(reconciling, "View", unsettled)
    with pytest.raises(AssertionError):
        test_another_server_with_other_transactions_is_followed_on(own, postgres, tmp_path)
