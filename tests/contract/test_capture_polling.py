"""Databases followed by polls: what differs from one poll to the next is told once, killed wherever one wants."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import orjson
import psycopg
import pytest

from amount import cases
from capture_killed import KILLS, PATIENCE, Followed
from contract.capture_databases import PostgresSchema, SqliteDatabase, postgres_schema, sqlite_file
from penstock.capture.definition import CaptureDefinition, Secret
from penstock.capture.kind import kind_of
from penstock.capture.polling import comparing, sqlite_source
from penstock.capture.polling.engine import PollEngine
from penstock.capture.polling.kind import PollKind
from penstock.capture.polling.postgres_source import PostgresPollSource
from penstock.capture.polling.source import PollSource
from penstock.capture.polling.sqlite_source import SqlitePollSource
from penstock.capture.port import Engine, Table
from penstock.core.time import FixedClock
from penstock.errors import BadTime, Damaged, Disconnected, NotFollowable
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.capture import CaptureContract
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.waiting import until


class TestPollsOfSqlite(CaptureContract):
    engine, connector, options, each_change, positions = "poll", "sqlite", {"every": "1 ms"}, False, False

    def database(self, place: Path) -> AbstractContextManager[SqliteDatabase]:
        return sqlite_file(place)


class TestPollsOfPostgres(CaptureContract):
    engine, connector, options, each_change, positions = "poll", "postgresql", {"every": "1 ms"}, False, False

    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    def database(self, place: Path) -> AbstractContextManager[PostgresSchema]:
        return postgres_schema(self.postgres)


EVERY = timedelta(hours=1)
HOUR = 3_600_000_000


class Polled:
    """A database whose tables are polled, by a clock that stands still until a poll is wanted."""

    def __init__(self, place: Path, url: str, schema: str, source: Callable[[], PollSource], execute: Callable[[str], Any]) -> None:
        self.place, self.schema, self.source, self.execute = place, schema, source, execute
        self.definition = CaptureDefinition("shop", "poll", url, (), options={"every": "1 hour"})
        self.clock, self.tables = FixedClock(HOUR), [(schema, "t")]
        self.followed = Followed(self.opened)

    def opened(self) -> Engine:
        return PollEngine(self.source(), self.tables, EVERY, LocalStorage(self.place / "engine"), self.clock)

    def poll(self, random: Random | None = None) -> str:
        """The next poll, to its end; its changes."""
        self.clock.set(self.clock.now() + HOUR)
        before = len(self.followed.log)
        assert until(lambda: self._done(random), PATIENCE)
        return "".join(change.op for change in self.followed.log[before:])

    def _done(self, random: Random | None) -> bool:
        given = self.followed.go_on(0.0, random.choice([None, *KILLS]) if random else None)
        if not given and random and random.random() < 0.005:
            self.followed.kill()  # in the middle of reading
        status = self.followed.engine.status()
        return not given and not status.snapshots and (status.next_at or 0) > self.clock.now()

    def rows(self, name: str = "t") -> dict[str, Any]:
        found = self.execute(f"select id, v from {name}")
        return {orjson.dumps({"id": id}).decode(): {"id": id, "v": v} for id, v in found}

    @property
    def table(self) -> Table:
        return self.schema, "t"


def on_sqlite(place: Path) -> Iterator[Polled]:
    path = place / "shop.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    polled = Polled(
        place, f"sqlite:///{path}", "main", lambda: SqlitePollSource(path), lambda sql: connection.execute(sql).fetchall()
    )
    yield polled
    polled.followed.kill()
    connection.close()


def on_postgres(place: Path, server: PostgresServer) -> Iterator[Polled]:
    schema = f"p{uuid4().hex[:12]}"
    server.execute(f"create schema {schema}")
    connection = psycopg.connect(server.url, autocommit=True, options=f"-c search_path={schema}")

    def execute(sql: str) -> Any:
        done = connection.execute(sql.encode())
        return done.fetchall() if done.description else []

    polled = Polled(place, server.url, schema, lambda: PostgresPollSource(server.url, Secret()), execute)
    yield polled
    polled.followed.kill()
    connection.close()
    server.execute(f"drop schema {schema} cascade")


@pytest.fixture(params=["sqlite", "postgres"])
def polled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Polled]:
    if request.param == "sqlite":
        yield from on_sqlite(tmp_path)
    else:
        yield from on_postgres(tmp_path, request.getfixturevalue("postgres"))


def test_the_first_poll_is_a_copy_and_each_later_one_tells_what_differs(polled: Polled) -> None:
    polled.execute("create table t (id int primary key, v text)")
    polled.execute("insert into t values (1, 'a'), (2, 'b'), (3, null)")
    assert polled.poll() == "rrr"
    assert polled.poll() == ""
    polled.execute("insert into t values (4, 'd')")
    polled.execute("update t set v = 'c' where id = 3")
    polled.execute("delete from t where id = 1")
    assert sorted(polled.poll()) == ["c", "d", "u"]
    polled.execute("update t set id = 20 where id = 2")
    assert sorted(polled.poll()) == ["c", "d"]
    assert polled.followed.rows(polled.table) == polled.rows()
    assert [each.before for each in polled.followed.log if each.op == "d"] == [{"id": 1}, {"id": 2}]


def test_a_poll_is_one_transaction_over_all_tables(polled: Polled) -> None:
    polled.execute("create table t (id int primary key, v text)")
    polled.execute("create table u (id int primary key, v text)")
    polled.tables = [(polled.schema, "t"), (polled.schema, "u")]
    polled.poll()
    polled.execute("insert into t values (1, 'a')")
    polled.execute("insert into u values (1, 'a')")
    assert polled.poll() == "cc"
    assert polled.followed.ended == ["poll:1", "poll:2"]
    assert {each.transaction for each in polled.followed.log} == {"poll:2"}
    assert {each.lsn for each in polled.followed.log} == {2}


@pytest.mark.parametrize("seed", range(cases(3)))
def test_tables_that_change_between_polls_are_followed_through_kills_at_every_step(
    polled: Polled, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "BYTES", 400)  # many parts
    monkeypatch.setattr(sqlite_source, "ROWS", 7)
    polled.execute("create table t (id int primary key, v text)")
    random = Random(seed)
    for _ in range(4):
        for _ in range(random.randrange(60)):
            number = random.randrange(100)
            polled.execute(f"delete from t where id = {number}")
            if random.random() < 0.7:
                polled.execute(f"insert into t values ({number}, '{'x' * random.randrange(3)}')")
        polled.poll(random)
        assert polled.followed.rows(polled.table) == polled.rows()
    assert len(set(polled.followed.ended)) == len(polled.followed.ended)
    assert polled.poll() == ""


def test_a_large_difference_comes_in_several_batches_of_one_transaction(polled: Polled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "BYTES", 10_000)
    polled.execute("create table t (id int primary key, v text)")
    numbers = "with recursive s(i) as (select 1 union all select i + 1 from s where i < 30000) select i, 'some text' from s"
    polled.execute(f"insert into t {numbers}")
    assert polled.poll(Random(1)).count("r") == 30_000
    assert polled.followed.batches > 2
    assert polled.followed.ended == ["poll:1"]
    polled.execute("delete from t where id % 2 = 0")
    assert polled.poll() == "d" * 15_000
    assert polled.followed.rows(polled.table) == polled.rows()


def test_a_table_that_is_added_later_is_copied(polled: Polled) -> None:
    polled.execute("create table t (id int primary key, v text)")
    polled.execute("create table u (id int primary key, v text)")
    polled.execute("insert into u values (1, 'a')")
    polled.poll()
    polled.tables = [*polled.tables, (polled.schema, "u")]
    polled.followed.kill()
    polled.execute("insert into t values (1, 'a')")
    assert sorted(polled.poll()) == ["c", "r"]
    polled.execute("insert into u values (2, 'b')")
    assert polled.poll() == "c"


def test_polls_are_done_when_they_are_due_also_over_a_restart(polled: Polled) -> None:
    polled.execute("create table t (id int primary key, v text)")
    polled.poll()
    begun = polled.clock.now()
    polled.execute("insert into t values (1, 'a')")
    polled.followed.kill()
    polled.clock.set(begun + HOUR - 1)
    assert not polled.followed.go_on()
    status = polled.followed.engine.status()
    assert (status.next_at, status.caught_up) == (begun + HOUR, False)
    polled.followed.kill()
    polled.clock.set(begun + 5 * HOUR)  # nobody was there when it was due
    assert until(lambda: polled.followed.go_on(), PATIENCE)
    assert until(lambda: not polled.followed.go_on() and polled.followed.engine.status().caught_up, PATIENCE)
    assert polled.followed.engine.status().next_at == begun + 6 * HOUR
    assert [each.op for each in polled.followed.log] == ["c"]


def test_columns_that_come_and_go_change_the_rows(polled: Polled) -> None:
    polled.execute("create table t (id int primary key, v text)")
    polled.execute("insert into t values (1, 'a')")
    polled.poll()
    polled.execute("alter table t add column more int default 7")
    assert polled.poll() == "u"
    assert polled.followed.log[-1].after == {"id": 1, "v": "a", "more": 7}


def test_a_directory_that_was_lost_is_a_loud_stop(polled: Polled) -> None:
    polled.execute("create table t (id int primary key, v text)")
    polled.execute("insert into t values (1, 'a')")
    polled.poll()
    polled.followed.kill()
    LocalStorage(polled.place / "engine").remove("polls")
    with pytest.raises(Damaged, match="not in its directory"):
        polled.followed.go_on()


def test_what_is_left_of_an_earlier_capture_is_not_compared_with(polled: Polled) -> None:
    polled.execute("create table t (id int primary key, v text)")
    polled.execute("insert into t values (1, 'a')")
    polled.poll()
    polled.followed.kill()
    polled.followed = Followed(polled.opened)
    assert polled.poll() == "r"


def test_the_disk_holds_no_more_than_the_last_copy(polled: Polled) -> None:
    polled.execute("create table t (id int primary key, v text)")
    for number in range(3):
        polled.execute(f"insert into t values ({number}, 'a')")
        polled.poll(Random(number))
    storage = LocalStorage(polled.place / "engine")
    (last,) = storage.list("polls")
    assert storage.list(f"polls/{last}/parts") == []
    assert storage.list("reading") == []


def test_a_table_without_a_key_is_refused_and_what_can_be_read_needs_no_statement(polled: Polled) -> None:
    polled.execute("create table t (id int primary key, v text)")
    polled.execute("create table u (v int)")
    good, bad = (replace(polled.definition, tables=((polled.schema, name),)) for name in "tu")
    assert [each.level for each in PollKind().check(good)] == ["ok"]
    assert [each.level for each in PollKind().check(bad)] == ["error"]
    with pytest.raises(NotFollowable, match="no primary key"):
        PollKind().set_up(bad)
    assert PollKind().statements(good) == PollKind().tear_down(PollKind().set_up(good)) == []
    assert PollKind().tables(good, [f"{polled.schema}.t"]) == [polled.table]
    engine = PollKind().open(PollKind().set_up(good), LocalStorage(polled.place / "other"))
    assert engine.connector in ("sqlite", "postgresql")
    with pytest.raises(BadTime):
        PollKind().set_up(replace(good, options={"every": "now and then"}))


def test_a_user_who_may_only_read_can_poll(postgres: PostgresServer, tmp_path: Path) -> None:
    for polled in on_postgres(tmp_path, postgres):
        role = f"{polled.schema}_reader"
        polled.execute("create table t (id int primary key, v text)")
        polled.execute("insert into t values (1, 'a')")
        polled.execute(f"create role {role} login")
        polled.execute(f"grant usage on schema {polled.schema} to {role}")
        url = postgres.url.replace("postgres@", f"{role}@")
        polled.source = partial(PostgresPollSource, url, Secret())
        definition = replace(polled.definition, url=url, tables=(polled.table,))
        (finding,) = PollKind().check(definition)
        assert (finding.level, list(finding.mend)) == ("error", [f"grant select on {polled.schema}.t to {role};"])
        polled.execute(finding.mend[0])
        assert polled.poll() == "r"
        polled.followed.kill()
        polled.execute(f"drop owned by {role}")
        polled.execute(f"drop role {role}")


def test_a_server_that_ends_in_the_middle_of_a_poll_is_waited_for(postgres: PostgresServer, tmp_path: Path) -> None:
    with PostgresServer(tmp_path) as server:
        server.execute("create table t (id int primary key, v text)")
        server.execute("insert into t select i, 'x' from generate_series(1, 30000) i")
        polled = Polled(tmp_path, server.url, "public", lambda: PostgresPollSource(server.url, Secret()), server.execute)
        assert not polled.followed.go_on(0.0)  # one piece was read
        assert polled.followed.engine.status().snapshots
        server.restart_at_once()
        with pytest.raises(Disconnected):
            until(lambda: polled.followed.go_on(0.0), PATIENCE)
        polled.followed.kill()
        assert polled.poll() == "r" * 30_000
        polled.followed.kill()


def test_the_kind_is_found_by_its_name() -> None:
    assert isinstance(kind_of("poll"), PollKind)
