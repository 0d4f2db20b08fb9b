"""Stores that are asked by key, with the settings of sinks: PostgreSQL, MariaDB, SQLite and Valkey, each a real one."""

import builtins
import os
import pickle
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faults.engine_shop import SparkFree
from penstock import Flow, lookups
from penstock.core.schema import Schema
from penstock.engine.lookup.rows import LookupClient, forget
from penstock.errors import BadFlow, BadInput, Unanswered
from penstock.flow.explain import as_text
from penstock.flow.steps.lookups import asking
from penstock.plan import Lookup, Origin, Remote, Step
from penstock.testing.servers.mariadb import MariaDbServer
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.servers.valkey import ValkeyServer
from stored import Staged
from waiting import until

EVERY_TYPE = (
    "flag boolean, tiny tinyint, n int, big long, price decimal(12, 3), x double, text string, raw binary, day date, at timestamp, "
    "tags array<string>, place struct<lat: double, lon: double>"
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1, "flag": True, "tiny": -128, "n": 7, "big": 2**62, "price": Decimal("123456789.125"), "x": 0.1 + 0.2,
        "text": "a'b\\c%s", "raw": b"\x00\xff'", "day": date(2024, 2, 29), "at": datetime(2024, 1, 15, 10, 0, 15, 123456, UTC),
        "tags": ["x", "y"], "place": {"lat": 1.5, "lon": None},
    },
    {"id": 2, "flag": False, "text": ""},
]  # fmt: skip


class Kind(ABC):
    """A store of the test's own: what its sink writes, a lookup reads."""

    schema = ""  # before the name of a table

    @abstractmethod
    def sink(self, name: str) -> Any: ...

    @abstractmethod
    def remote(self, name: str, **how: Any) -> Remote: ...

    def write(self, name: str, schema: str, rows: list[dict[str, Any]], key: tuple[str, ...] = ("id",)) -> None:
        staged = Staged(self.sink(name), schema, key)
        sink = staged.sink()
        sink.deliver(staged.epoch_of(*rows))
        sink.close()
        assert staged.refused == []

    def connections(self) -> int:
        """That lookups have there."""
        return 0


class OfPostgres(Kind):
    def __init__(self, server: PostgresServer, schema: str) -> None:
        self.server, self.schema = server, f"{schema}."

    def sink(self, name: str) -> Any:
        from penstock.sinks import postgres

        return postgres(self.server.url, f"{self.schema}{name}")

    def remote(self, name: str, **how: Any) -> Remote:
        return lookups.postgres(self.server.url, name if name.startswith("select") else f"{self.schema}{name}", **how)

    def connections(self) -> int:
        found = self.server.execute("select count(*) from pg_stat_activity where application_name = 'penstock lookup'")
        return int(found[0][0])


class OfMariadb(Kind):
    def __init__(self, server: MariaDbServer, database: str) -> None:
        self.server, self.database = server, database
        server.execute(f"create database if not exists {database}")

    def sink(self, name: str) -> Any:
        from penstock.sinks import mariadb

        return mariadb(self.server.url(self.database, "root"), name)

    def remote(self, name: str, **how: Any) -> Remote:
        return lookups.mariadb(self.server.url(self.database, "root"), name, **how)

    def connections(self) -> int:
        found = self.server.execute(f"select count(*) from information_schema.processlist where db = '{self.database}'")
        return int(found[0][0])


class OfSqlite(Kind):
    def __init__(self, place: Path) -> None:
        self.path = place / "it's 100% mine.db"

    def sink(self, name: str) -> Any:
        from penstock.sinks import sqlite

        return sqlite(self.path, name)

    def remote(self, name: str, **how: Any) -> Remote:
        return lookups.sqlite(self.path, name, **how)


class OfRedis(Kind):
    def __init__(self, server: ValkeyServer, prefix: str, value: Any = "hash") -> None:
        self.server, self.prefix, self.value = server, prefix, value

    def sink(self, name: str) -> Any:
        from penstock.sinks import redis

        return redis(self.server.url, f"{self.prefix}.{name}", value=self.value)

    def remote(self, name: str, **how: Any) -> Remote:
        return lookups.redis(self.server.url, f"{self.prefix}.{name}", value=self.value, **how)


KINDS = ("postgres", "mariadb", "sqlite", "redis", "redis json")
SQL = KINDS[:3]


@pytest.fixture
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    own = f"l{uuid.uuid4().hex[:12]}"
    if request.param == "postgres":
        postgres = request.getfixturevalue("postgres")
        yield OfPostgres(postgres, own)
        postgres.execute(f"drop schema if exists {own} cascade")
    elif request.param == "mariadb":
        mariadb = request.getfixturevalue("mariadb")
        yield OfMariadb(mariadb, own)
        mariadb.execute(f"drop database {own}")
    elif request.param == "sqlite":
        yield OfSqlite(tmp_path)
    else:
        yield OfRedis(request.getfixturevalue("valkey"), own, "json" if "json" in request.param else "hash")


every = pytest.mark.parametrize("kind", KINDS, indirect=True)
databases = pytest.mark.parametrize("kind", SQL, indirect=True)
served = pytest.mark.parametrize("kind", ["postgres", "mariadb"], indirect=True)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget()


def client(remote: Remote, on: str = "id long", answers: str = "text string", **other: Any) -> LookupClient:
    keys = Schema.of(on)
    how: Any = {"cache": None, "cache_keys": 10, "batch": 1000, "retries": 3, "pause": "1 ms", "timeout": "60 seconds"}
    settings = asking(**(how | {"breaker": 10, "rest": "30 seconds"} | other))
    types = tuple(f.type for f in keys)
    lookup = Lookup(remote, tuple(keys.names), "left", Schema.of(answers), settings, types)
    schema = Schema.of(f"{on}, {answers}")
    return LookupClient(Step("who", ("orders",), lookup, schema, Origin("shop.py", 7)))


def values(rows: list[Any], answers: str) -> list[Any]:
    """As the client gives them: instants are microseconds there."""
    from penstock.core.time import micros

    names = Schema.of(answers).names
    plain = lambda value: micros(value) if isinstance(value, datetime) else value  # noqa: E731
    return [row if row is None else tuple(plain(row.get(name)) for name in names) for row in rows]


@every
def test_what_the_sink_of_a_store_writes_its_lookup_reads(kind: Kind) -> None:
    kind.write("users", f"id long not null, {EVERY_TYPE}", ROWS)
    answers, counts = client(kind.remote("users"), answers=EVERY_TYPE).answers([(2,), (99,), (1,)])
    assert answers == values([ROWS[1], None, ROWS[0]], EVERY_TYPE)
    assert counts == {"keys": 3, "calls": 1}


KEYS: dict[str, tuple[str, list[Any]]] = {
    "texts": ("string", ["a", "A", "a ", "", "x' or '1'='1", "%s \\ ☃", ":", "%25"]),
    "times": ("timestamp", [datetime(2024, 1, 15, 10, 0, 0, n, UTC) for n in range(3)]),
    "days": ("date", [date(2024, 1, 15), date(1969, 12, 31)]),
    "decimals": ("decimal(12, 3)", [Decimal("1.500"), Decimal("-0.001"), Decimal("123456789.125")]),
    "bytes": ("binary", [b"", b"\x00\xff", b"'"]),
    "yes and no": ("boolean", [True, False]),
}


@pytest.mark.parametrize("of", KEYS)
@every
def test_keys_of_any_type_find_their_rows(kind: Kind, of: str) -> None:
    declared, keys = KEYS[of]
    rows = [{"id": key, "no": n, "text": f"row {n}"} for n, key in enumerate(keys)]
    kind.write("kept", f"id {declared} not null, no long not null, text string", rows, ("id", "no"))
    asked = [(key, n) for n, key in enumerate(keys)]
    at = client(kind.remote("kept"), on=f"id {declared}, no long")
    assert at.answers([*asked, (keys[0], 77)])[0] == [*((f"row {n}",) for n in range(len(keys))), None]
    if isinstance(kind, OfRedis):
        return  # keys there are of all columns
    one = client(kind.remote(f"select id, text from {kind.schema}kept where text like 'row 0%';"), on=f"id {declared}")
    assert one.answers([(key,) for key in keys])[0] == [("row 0",), *[None] * (len(keys) - 1)]


@databases
def test_names_are_quoted_and_a_column_of_the_table_may_be_called_otherwise(kind: Kind) -> None:
    hostile = 'x"`; drop table y; -- %s'
    kind.write(hostile, "select long not null, `from` string", [{"select": 1, "from": "Ann"}], ("select",))
    remote = kind.remote(f"{hostile}", key="select")
    assert client(remote, on="user_id long", answers="`from` string").answers([(1,), (2,)])[0] == [("Ann",), None]


@databases
def test_two_rows_of_one_key_and_a_key_of_another_type_are_told(kind: Kind) -> None:
    kind.write("many", "id long not null, text string", [{"id": 1, "text": "same"}, {"id": 2, "text": "same"}])
    with pytest.raises(BadFlow, match=r"table .*many of .* has several rows with text = 'same'"):
        client(kind.remote("many", key="text"), on="word string", answers="id long").answers([("same",)])


@databases
def test_more_keys_than_one_statement_takes_are_asked_in_several(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.lookups.sql.PARAMETERS", 7)
    kind.write("users", "id long not null, text string", [{"id": n, "text": f"t{n}"} for n in range(50)])
    answers, counts = client(kind.remote("users")).answers([(n,) for n in range(60)])
    assert answers == [(f"t{n}",) if n < 50 else None for n in range(60)]
    assert counts["calls"] == 1


@databases
def test_it_only_reads(kind: Kind) -> None:
    kind.write("users", "id long not null, text string", [{"id": 1, "text": "a"}])
    remote: Any = kind.remote("users")
    with closing(remote.connect()) as connection, pytest.raises(Exception, match=r"(?i)read.?only"):
        connection.cursor().execute(f"delete from {kind.schema}users")


@served
def test_lookups_of_one_process_share_a_bounded_number_of_connections(kind: Kind) -> None:
    kind.write("users", "id long not null, text string", [{"id": 1, "text": "a"}])
    clients = [client(kind.remote("users", connections=2)) for _ in range(5)]
    for each in clients * 2:
        assert each.answers([(1,)])[0] == [("a",)]
    assert 1 <= kind.connections() <= 2
    del each, clients
    assert until(lambda: kind.connections() == 0), "they are closed with the last lookup"


@served
def test_a_connection_that_was_cut_off_is_opened_anew(kind: Kind) -> None:
    kind.write("users", "id long not null, text string", [{"id": 1, "text": "a"}])
    at = client(kind.remote("users"))
    assert at.answers([(1,)])[0] == [("a",)]
    cut_off(kind)
    answers, counts = at.answers([(1,)])
    assert (answers, counts["failed calls"]) == ([("a",)], 1)


def cut_off(kind: Kind) -> None:
    if isinstance(kind, OfPostgres):
        kind.server.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'penstock lookup'")
        assert until(lambda: kind.connections() == 0)
    elif isinstance(kind, OfMariadb):
        for (number,) in kind.server.execute(f"select id from information_schema.processlist where db = '{kind.database}'"):
            kind.server.execute(f"kill {number}")
        assert until(lambda: kind.connections() == 0)


@served
def test_one_that_lay_unused_and_was_cut_off_costs_no_failure(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.lookups.pool.CHECK_SECONDS", 0.0)
    kind.write("users", "id long not null, text string", [{"id": 1, "text": "a"}])
    at = client(kind.remote("users"))
    at.answers([(1,)])
    cut_off(kind)
    assert at.answers([(1,)]) == ([("a",)], {"keys": 1, "calls": 1})


MORTAL: dict[str, tuple[Callable[[Path], Any], Callable[[Any, str], Kind]]] = {
    "postgres": (PostgresServer, OfPostgres),
    "mariadb": (lambda place: MariaDbServer(place, innodb_flush_log_at_trx_commit="2"), OfMariadb),
    "valkey": (ValkeyServer, OfRedis),
}


@pytest.mark.parametrize("name", MORTAL)
def test_a_server_that_is_killed_and_comes_back_is_asked_again(name: str, tmp_path: Path) -> None:
    make, kind_of = MORTAL[name]
    with make(tmp_path) as server:
        kind = kind_of(server, "shop")
        kind.write("users", "id long not null, text string", [{"id": 1, "text": "a"}])
        at = client(kind.remote("users"), breaker=1000)
        assert at.answers([(1,)])[0] == [("a",)]
        server.kill()
        with pytest.raises(Unanswered, match=r"(?s)users.* did not answer: 4 calls failed in a row.*the last time: ") as said:
            at.answers([(1,)])
        assert 'step "who" (shop.py:7)' in said.value.detail
        server.start()
        assert at.answers([(1,)])[0] == [("a",)]


CANARY = "canary-3f9a1c"


def remotes(password: str | None) -> dict[str, Remote]:
    """Where nobody answers."""
    return {
        "postgres": lookups.postgres("postgresql://shop@127.0.0.1:1/shop", "users", password=password),
        "mysql": lookups.mysql("mysql://shop@127.0.0.1:1/shop", "users", password=password),
        "redis": lookups.redis("redis://shop@127.0.0.1:1/0", "users", password=password),
    }


@pytest.mark.parametrize("name", ["postgres", "mysql", "redis"])
def test_a_password_is_in_no_plan_error_pickle_or_text(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    remote = remotes("env:SHOP_PASSWORD")[name]
    flow = Flow("shop")
    orders = flow.stream("orders", "id long, at timestamp", time="at")
    orders.lookup(remote, on="id", schema="text string", retries=0).view("who")
    plan = SparkFree(tmp_path).plan(flow)
    assert "127.0.0.1:1" in as_text(plan)
    for shown in (repr(remote), as_text(plan), repr(plan), repr(orders), pickle.dumps(remote).decode("latin1")):
        assert CANARY not in shown
    with pytest.raises(Unanswered) as said:
        client(remote, retries=0).answers([(1,)])
    assert CANARY not in str(said.value)


def test_what_a_client_says_of_a_password_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)

    def connect(*_: Any, **given: Any) -> Any:
        raise psycopg.OperationalError(f"cannot log in with {given['password']}")

    monkeypatch.setattr(psycopg, "connect", connect)
    with pytest.raises(Unanswered, match=r"OperationalError: cannot log in with \*\*\*") as said:
        client(remotes("env:SHOP_PASSWORD")["postgres"], retries=0).answers([(1,)])
    assert CANARY not in str(said.value)


def test_a_password_that_is_right_opens_and_one_that_is_wrong_is_not_repeated(
    mariadb: MariaDbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = OfMariadb(mariadb, "l_password")
    kind.write("users", "id long not null, text string", [{"id": 1, "text": "a"}])
    mariadb.execute(f"create or replace user reader@'%' identified by '{CANARY}'; grant select on l_password.* to reader@'%'")
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    remote = lookups.mariadb(mariadb.url("l_password", "reader"), "users", password="env:SHOP_PASSWORD")
    assert client(remote).answers([(1,)])[0] == [("a",)]
    assert until(lambda: kind.connections() == 0)
    monkeypatch.setenv("SHOP_PASSWORD", f"{CANARY}-wrong")
    with pytest.raises(Unanswered, match="Access denied") as said:
        client(remote, retries=0).answers([(1,)])
    assert CANARY not in str(said.value)
    mariadb.execute("drop database l_password; drop user reader@'%'")


@pytest.mark.parametrize("name", ["postgres", "mysql", "redis"])
def test_a_password_that_was_written_out_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="must name a secret") as refused:
        remotes(CANARY)
    assert CANARY not in str(refused.value)
    given = {"postgres": "postgresql", "mysql": "mysql", "redis": "redis"}[name]
    with pytest.raises(BadInput, match="has a password") as refused:
        getattr(lookups, name)(f"{given}://shop:{CANARY}@db/0", "users")
    assert CANARY not in str(refused.value)


def test_a_secret_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    for remote in remotes("env:SHOP_PASSWORD").values():
        with pytest.raises(BadFlow, match=r"cannot ask .*users.* is not there: the variable SHOP_PASSWORD is not set"):
            client(remote).answers([(1,)])


@pytest.mark.parametrize(("name", "module"), [("postgres", "psycopg"), ("mysql", "pymysql")])
def test_a_client_that_is_not_installed_is_told_at_once(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(wanted: str, *rest: Any) -> Any:
        if wanted.partition(".")[0] == module:
            raise ImportError(wanted)
        return real(wanted, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(BadFlow, match="client is not installed") as said:
        client(remotes(None)[name]).answers([(1,)])
    assert "pip install" in str(said.value)


def test_keys_of_redis_that_hold_something_else_are_answers_that_cannot_be_used(valkey: ValkeyServer) -> None:
    from penstock.sinks.stores.redis.resp import Address, Connection

    connection = Connection(Address.of(valkey.url))
    connection.ask("SET", "odd:1", "no hash")
    connection.ask("SET", "odd:2", '{"text": "a", "more": 1}')
    connection.ask("SET", "odd:3", "17")
    connection.ask("HSET", "odd:4", "other", "1")
    connection.close()
    as_hash = client(lookups.redis(valkey.url, "odd")).answers([(1,), (4,), (5,)])[0]
    assert "WRONGTYPE" in str(as_hash[0])
    assert as_hash[1:] == [(None,), None]
    as_json = client(lookups.redis(valkey.url, "odd", value="json")).answers([(1,), (2,), (3,), (5,)])[0]
    assert ("JSONDecodeError" in str(as_json[0]), as_json[1], as_json[3]) == (True, ("a",), None)
    assert "must answer with a dict or None" in str(as_json[2])
    as_string = client(lookups.redis(valkey.url, "odd", value="string"), answers="n int").answers([(3,), (5,)])[0]
    assert as_string == [(17,), None]
    with pytest.raises(BadFlow, match="a string is one column"):
        client(lookups.redis(valkey.url, "odd", value="string"), answers="a int, b int").answers([(3,)])


def test_a_uuid_of_the_database_is_a_text_here(postgres: PostgresServer) -> None:
    kind, number = OfPostgres(postgres, "l_uuids"), str(uuid.uuid4())
    postgres.execute("create schema l_uuids")
    postgres.execute("create table l_uuids.users (id uuid primary key, other uuid)")
    postgres.execute(f"insert into l_uuids.users values ('{number}', '{number}')")
    assert client(kind.remote("users"), on="id string", answers="other string").answers([(number,)])[0] == [(number,)]
    postgres.execute("drop schema l_uuids cascade")


def test_what_cannot_be_meant_is_refused_where_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no name of a table"):
        lookups.sqlite(tmp_path / "x.db", "a.b.c")
    with pytest.raises(BadInput, match=r"connections=0 is out of range"):
        lookups.sqlite(tmp_path / "x.db", "users", connections=0)
    with pytest.raises(BadInput, match="begins with mysql:// or mariadb://"):
        lookups.mysql("postgresql://db/shop", "users")
    with pytest.raises(BadInput, match=r"value='list' is not known"):
        lookups.redis("redis://db/0", "users", value="list")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="no attribute 'oracle'"):
        lookups.oracle  # type: ignore[attr-defined]  # noqa: B018


def test_a_flow_looks_rows_up_in_what_another_sink_keeps(tmp_path: Path) -> None:
    """By a path that is not that of the task's directory."""
    users = OfSqlite(tmp_path)
    users.write("users", "id long not null, text string", [{"id": 1, "text": "Ann"}])
    flow = Flow("shop")
    orders = flow.stream("orders", "id long, at timestamp", time="at")
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        remote = lookups.sqlite(users.path.name, "users")
    finally:
        os.chdir(before)
    orders.lookup(remote, on="id", schema="text string").view("who")
    with flow.test() as t:
        t.send("orders", *({"id": n, "at": "2024-01-15T10:00:00Z"} for n in (1, 2)))
        t.end()
        assert [(row["id"], row["text"]) for row in t.rows("who")] == [(1, "Ann"), (2, None)]
