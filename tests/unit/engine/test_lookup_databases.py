"""Tables of databases, asked by key: one SELECT a batch, names quoted, values as parameters."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import database
from penstock.core.schema import Schema
from penstock.errors import BadFlow, Unanswered
from penstock.flow.steps.lookups import asking
from penstock.lookups.database import DatabaseTable
from penstock.plan import Lookup
from unit.engine.test_lookups import SETTINGS, ask, client


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users of the shop?.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('create table users (id integer, land text, "name" text, age integer, since text)')
        data = [(1, "de", "Ann", 28, "2024-01-15T10:00:00Z"), (1, "fr", "Anne", 29, None), (3, "de", "x' or '1'='1", 35, None)]
        connection.executemany("insert into users values (?, ?, ?, ?, ?)", data)
        connection.commit()
    return path


def test_a_table_is_asked_by_one_select_a_batch(users: Path) -> None:
    at = client(database(f"sqlite:///{users}", table="users", key="id"), on="user_id", answers="name string, age int")
    with closing(sqlite3.connect(users)) as connection:
        connection.execute("delete from users where land = 'fr'")
        connection.commit()
    assert ask(at, 1, 2, 3) == [("Ann", 28), None, ("x' or '1'='1", 35)]


def test_a_key_of_several_columns_and_values_that_look_like_sql(users: Path) -> None:
    lookup = Lookup(
        database(f"sqlite:///{users}", table="main.users", key=("land", "id")),
        ("land", "id"),
        "left",
        Schema.of("name string"),
        asking(**SETTINGS),
    )
    table = DatabaseTable(lookup.remote, lookup)  # type: ignore[arg-type]
    assert table([{"land": "fr", "id": 1}, {"land": "' or 1=1 --", "id": 1}]) == [{"name": "Anne"}, None]
    sql, values = table.query([{"land": "fr", "id": 1}])
    assert sql == 'SELECT "land", "id", "name" FROM "main"."users" WHERE ("land" = ? AND "id" = ?)'
    assert values == ["fr", 1]
    table.close()


@pytest.mark.parametrize(
    ("style", "marks", "values"),
    [
        ("qmark", "?, ?", [1, 2]),
        ("format", "%s, %s", [1, 2]),
        ("pyformat", "%s, %s", [1, 2]),
        ("numeric", ":1, :2", [1, 2]),
        ("named", ":p0, :p1", {"p0": 1, "p1": 2}),
    ],
)
def test_parameters_are_written_as_the_driver_wants_them(style: str, marks: str, values: Any) -> None:
    given = database(lambda: sqlite3.connect(":memory:"), table="users", paramstyle=style)
    lookup = Lookup(given, ("id",), "left", Schema.of("name string"), asking(**SETTINGS))
    table = DatabaseTable(given, lookup)
    assert table.query([{"id": 1}, {"id": 2}]) == (f'SELECT "id", "name" FROM "users" WHERE "id" IN ({marks})', values)
    table.close()


def test_a_driver_whose_tables_are_quoted_otherwise_and_that_has_no_transaction() -> None:
    import duckdb

    connection = duckdb.connect()
    connection.execute("create table users as select 1 as id, 'Ann' as name")
    at = client(database(lambda: connection, table="users"), answers="name string")
    assert ask(at, 1, 2) == [("Ann",), None]


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    at = client(database(f"sqlite:///{tmp_path}/none.db", table="users"))
    with pytest.raises(Unanswered, match=r"(?s)table users did not answer.*unable to open database file"):
        ask(at, 1)
    assert not list(tmp_path.iterdir())


def test_after_an_error_the_connection_is_opened_anew(users: Path) -> None:
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(users, check_same_thread=False))
        if len(opened) == 1:
            opened[0].close()
        return opened[-1]

    assert ask(client(database(connect, table="users"), answers="name string"), 3) == [("x' or '1'='1",)]
    assert len(opened) == 2


def test_two_rows_of_one_key_are_refused(users: Path) -> None:
    at = client(database(f"sqlite:///{users}", table="users"), answers="name string")
    with pytest.raises(BadFlow, match="table users has several rows with id = 1") as refused:
        ask(at, 1)
    assert 'step "who" (shop.py:7)' in refused.value.detail


def test_a_key_of_another_type_is_told_and_one_that_only_the_database_calls_equal_is_no_answer(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:")
        connection.execute("create table users (id text collate nocase, name text)")
        connection.execute("insert into users values ('1', 'Ann'), ('BOB', 'Bob')")
        return connection

    with pytest.raises(BadFlow, match="table users gave id = '1', which is none of the keys it was asked for"):
        ask(client(database(connect, table="users"), answers="name string"), 1)
    assert client(database(connect, table="users"), answers="name string").answers([("bob",), ("BOB",)])[0] == [None, ("Bob",)]
