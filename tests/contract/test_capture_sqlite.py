"""SQLite followed through triggers: every change once, in the order of commits, whatever the journal mode and whoever is killed."""

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from amount import cases
from capture_killed import KILLS, PATIENCE, Followed
from contract.capture_databases import SqliteDatabase, sqlite_file
from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import kind_of
from penstock.capture.port import Engine
from penstock.capture.triggers.kind import TriggersKind
from penstock.capture.triggers.sqlite.engine import SqliteOutboxEngine, SqliteSource
from penstock.capture.triggers.sqlite.outbox import ROWS
from penstock.capture.triggers.sqlite.setting_up import file_of, outbox_of
from penstock.errors import AlreadyThere, Disconnected, NotFollowable, NotFound, SlotLost
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.capture.contract import TABLES, CaptureContract
from penstock.testing.contracts.capture.following import Following
from penstock.testing.waiting import until

T = ("main", "t")


class TestSqliteTriggers(CaptureContract):
    engine, connector, positions = "triggers", "sqlite", False

    def database(self, place: Path) -> AbstractContextManager[SqliteDatabase]:
        return sqlite_file(place)

    def test_a_transaction_over_several_tables_is_told_as_one(self, followed: Following) -> None:
        """As everywhere, but that what is committed between two looks is one transaction."""
        followed.database.execute(
            *("insert into users values (3, 'cleo', 1)", "insert into orders values (3, 1, 'ink')"),
            *("update users set age = 2 where id = 3", "insert into items values ('ink', 5)"),
        )
        followed.catch_up()
        followed.database.execute("insert into users values (4, 'dan', 1)")
        followed.catch_up()
        users, orders, items = (followed.envelopes(table)[-count:] for table, count in zip(TABLES, (3, 1, 1), strict=True))
        mine = users[0].transaction
        assert [record.transaction == mine for record in (*users, *orders, *items)] == [True, True, False, True, True]
        orders_in = [record.value["transaction"]["total_order"] for record in (users[0], orders[0], users[1], items[0])]
        assert orders_in == [1, 2, 3, 4]


class Database:
    """A file, followed through triggers."""

    def __init__(self, path: Path, mode: str = "wal") -> None:
        self.path, self.storage, self.followed = path, MemoryStorage(), list[Followed]()
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
        self.connection.execute(f"pragma journal_mode = {mode}")
        self.definition = CaptureDefinition("shop", "triggers", f"sqlite:///{path}", ())

    def execute(self, *statements: str) -> list[Any]:
        for statement in statements:
            found = self.connection.execute(statement).fetchall()
        return found

    def follow(self, *tables: str, bound: int = ROWS) -> Followed:
        self.definition = TriggersKind().set_up(replace(self.definition, tables=tuple(("main", table) for table in tables)))
        self.followed.append(Followed(partial(self.opened, bound)))
        return self.followed[-1]

    def opened(self, bound: int = ROWS) -> Engine:
        source = SqliteSource(file_of(self.definition), outbox_of(self.definition), self.definition.tables)
        return SqliteOutboxEngine(source, self.storage, bound, removing=0.0)

    def table(self, table: str = "t", key: str = "id") -> dict[str, Any]:
        found = self.connection.execute(f"select * from {table}")
        names = [column[0] for column in found.description]
        rows = [dict(zip(names, row, strict=True)) for row in found]
        return {orjson.dumps({key: row[key]}).decode(): row for row in rows}

    def close(self) -> None:
        for each in self.followed:
            each.kill()
        self.connection.close()


@pytest.fixture(params=["wal", "delete"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "shop.db", request.param)
    yield made
    made.close()


def ops(followed: Followed) -> str:
    return "".join(change.op for change in followed.log)


def complete(followed: Followed, database: Database) -> bool:
    return followed.rows(T) == database.table()


@pytest.mark.parametrize("engine", ["triggers", "poll"])
def test_a_table_given_without_its_schema_is_the_one_of_the_file(database: Database, engine: str) -> None:
    database.execute("create table t (id integer primary key, v text)", "insert into t values (1, 'a')")
    kind, given = kind_of(engine), replace(database.definition, engine=engine, tables=(("", "t"),))
    made = kind.set_up(given)
    assert made.tables == (T,)
    # Also where a definition from before was remembered as it was given.
    followed = Followed(lambda: kind.open(replace(made, tables=given.tables), database.storage))
    followed.catch_up()
    assert complete(followed, database)
    assert ops(followed) == "r"
    followed.kill()


@pytest.mark.parametrize("engine", ["triggers", "poll"])
def test_a_table_of_another_schema_than_the_files_is_refused(database: Database, engine: str) -> None:
    database.execute("create table t (id integer primary key, v text)")
    with pytest.raises(NotFollowable, match=r"table temp\.t is not in the file"):
        kind_of(engine).set_up(replace(database.definition, engine=engine, tables=(("temp", "t"),)))


def test_a_copy_and_then_every_change_are_the_table(database: Database) -> None:
    database.execute("create table t (id integer primary key, v text)", "insert into t values (1, 'a'), (2, 'b'), (3, 'c')")
    followed = database.follow("t")
    database.execute("update t set v = 'd' where id = 1")
    followed.catch_up()
    database.execute("insert into t values (4, 'e')", "update t set id = 20 where id = 2", "delete from t where id = 3")
    followed.catch_up()
    assert complete(followed, database)
    assert ops(followed) == "urrrcdcd"
    assert [each.before for each in followed.log if each.op == "d"] == [{"id": 2, "v": "b"}, {"id": 3, "v": "c"}]
    assert database.execute("select count(*) from penstock_shop_outbox") == [(0,)]


def test_values_keep_their_own_types(database: Database) -> None:
    database.execute("create table t (id text, part blob, i int, r real, n numeric, free, primary key (part, id)) without rowid")
    followed = database.follow("t")
    big = (1 << 63) - 1
    rows = [
        ("ä'\"\n", b"\x00\xff", big, -0.0, "1.50", b""),
        ("", b"", -big - 1, 9e999, "x", 1.5),
        ("z", b"1", "text", -9e999, None, ""),
    ]
    for row in rows:
        database.connection.execute("insert into t values (?, ?, ?, ?, ?, ?)", row)
    database.execute("insert into t values ('bad', x'01', cast(x'ff61' as text), 1e300, 1, null)")
    expected = [
        {"id": "ä'\"\n", "part": "AP8=", "i": big, "r": 0.0, "n": 1.5, "free": ""},
        {"id": "", "part": "", "i": -big - 1, "r": "Infinity", "n": "x", "free": 1.5},
        {"id": "z", "part": "MQ==", "i": "text", "r": "-Infinity", "n": None, "free": ""},
        {"id": "bad", "part": "AQ==", "i": "\ufffda", "r": 1e300, "n": 1, "free": None},
    ]
    followed.catch_up()
    assert [each.after for each in followed.log if each.op == "c"] == expected
    copied = Followed(database.opened)
    database.followed.append(copied)
    copied.catch_up()
    assert sorted(map(str, copied.rows(T).values())) == sorted(map(str, expected))  # a copy writes them in the same way
    assert {tuple(each.key) for each in followed.log} == {("id", "part")}


REPLACES: dict[str, tuple[str, ...]] = {
    "by its key": ("insert or replace into t values (1, 'new', 'new')",),
    "by another column": ("insert or replace into t values (9, 'a1', 'new')",),
    "two rows at once": ("insert or replace into t values (9, 'a1', 'b2')",),
    "by an update": ("update or replace t set a = 'a1' where id = 3",),
    "by an update of the key": ("update or replace t set id = 1 where id = 3",),
    "none, as it is left out": ("insert or ignore into t values (9, 'a1', 'x')", "insert into t values (10, 'q', 'q')"),
    "none, as it fails": ("insert or ignore into t values (9, 'a1', 'x')", "update t set b = 'other' where id = 1"),
    "none, as it is an upsert": ("insert into t values (9, 'a1', 'x') on conflict (a) do update set b = 'up'",),
    "one that was left out before": (
        "insert or ignore into t values (9, 'a1', 'x')",
        "insert or replace into t values (9, 'a1', 'x')",
    ),
    "one that is deleted and comes again": (
        *("insert or ignore into t values (9, 'a1', 'x')", "delete from t where id = 1"),
        *("insert into t values (1, 'a1', 'again')", "insert or replace into t values (11, 'a1', 'z')"),
    ),
    "with the case left out": ("insert or replace into t values (9, 'q', 'B2')",),
    "among several": ("insert or replace into t select id + 100, a, b from t",),
}


@pytest.mark.parametrize("recursive", ["off", "on"])
@pytest.mark.parametrize("how", REPLACES)
def test_rows_that_replace_removes_are_deleted(tmp_path: Path, how: str, recursive: str) -> None:
    database = Database(tmp_path / "shop.db")
    database.execute(
        "create table t (id integer primary key, a text unique, b text)", "create unique index i on t (b collate nocase)"
    )
    database.execute("insert into t values (1, 'a1', 'b1'), (2, 'a2', 'b2'), (3, 'a3', 'b3')")
    followed = database.follow("t")
    followed.catch_up()
    database.execute(f"pragma recursive_triggers = {recursive}", *REPLACES[how])
    followed.catch_up()
    assert complete(followed, database)
    deleted = [orjson.dumps(each.key) for each in followed.log if each.op == "d"]
    assert len(set(deleted)) == len(deleted) or how == "one that is deleted and comes again"
    database.close()


def work(path: Path, seed: int, stop: threading.Event) -> None:
    """Counts rows up, several in a transaction, some rolled back."""
    random = Random(seed)
    connection = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
    while not stop.is_set():
        connection.execute("begin immediate")
        for number in random.sample(range(1, 13), random.randrange(1, 4)):
            connection.execute("savepoint s")
            connection.execute("update t set v = v + 1 where id = ?", (number,))
            connection.execute("rollback to s" if random.random() < 0.1 else "release s")
        connection.execute("commit" if random.random() < 0.9 else "rollback")
        stop.wait(0.01 * random.random())  # SQLite gives the file to whoever asks at the right moment
    connection.close()


@pytest.mark.parametrize("seed", range(cases(2)))
def test_two_writers_are_followed_through_kills_at_every_step(database: Database, seed: int) -> None:
    database.execute("create table t (id integer primary key, v int)", *(f"insert into t values ({i}, 0)" for i in range(1, 13)))
    followed, stop, random = database.follow("t", bound=5), threading.Event(), Random(seed)
    writers = [threading.Thread(target=work, args=(database.path, 10 * seed + number, stop)) for number in range(2)]
    for writer in writers:
        writer.start()
    try:
        assert until(lambda: go_on(followed, random) and len(followed.log) > 300, PATIENCE)
    finally:
        stop.set()
        for writer in writers:
            writer.join(PATIENCE)
    followed.catch_up(random)
    seen: dict[int, int] = {}
    for change in followed.log:
        number, value = change.after["id"], change.after["v"]
        assert change.op == "r" or value == seen.get(number, 0) + 1
        seen[number] = value
    assert complete(followed, database)
    assert len(set(followed.ended)) == len(followed.ended)


def go_on(followed: Followed, random: Random) -> bool:
    try:
        return followed.go_on(0.05, random.choice([None, *KILLS]))
    except Disconnected:  # a writer held the file for too long
        return followed.kill()


def test_what_was_committed_between_two_looks_is_one_transaction_and_never_half_of_one(database: Database) -> None:
    database.execute("create table t (id integer primary key, v int)", "create table u (id integer primary key)")
    followed = database.follow("t", "u", bound=4)
    followed.catch_up()
    database.execute("begin", *(f"insert into t values ({i}, {i})" for i in range(10)), "insert into u values (1)")
    assert database.path.exists()
    other = sqlite3.connect(database.path)
    assert other.execute("select count(*) from penstock_shop_outbox").fetchone() == (0,)  # not committed: nobody sees it
    other.close()
    assert not followed.go_on()
    database.execute("commit")
    followed.catch_up(Random(3))
    assert {each.transaction for each in followed.log if each.op == "c"} == {"1-11"}
    assert followed.ended.count("1-11") == 1
    assert len({each.lsn for each in followed.log}) == 1 + len({each.lsn for each in followed.log if each.op == "r"})


@pytest.mark.parametrize("rows", [0, 10_000, 25_000])
def test_a_copy_that_is_killed_goes_on_at_the_chunk_it_has_reached(database: Database, rows: int) -> None:
    series = f"with recursive s(i) as (select 1 union all select i + 1 from s where i < {rows}) select i, 0 from s where {rows} > 0"
    database.execute("create table t (id integer primary key, v int)", f"insert into t {series}")
    followed, random = database.follow("t"), Random(rows)
    while not followed.engine.status().caught_up:
        followed.go_on(0.0, random.choice([None, *KILLS]))
        database.execute(f"update t set v = v + 1 where id % 700 = {random.randrange(700)}", f"delete from t where id = {rows}")
    followed.catch_up(random)
    assert complete(followed, database)
    assert ops(followed).count("r") <= rows


def test_a_column_that_is_added_is_followed_and_the_table_copied_again(database: Database) -> None:
    database.execute("create table t (id integer primary key, v text)", "insert into t values (1, 'a')")
    followed = database.follow("t")
    followed.catch_up()
    database.execute("alter table t add column more int default 7", "insert into t values (2, 'b', 8)")
    followed.catch_up(Random(2))
    database.execute(
        "update t set more = 9 where id = 1", "alter table t rename column v to w", "update t set w = 'c' where id = 2"
    )
    followed.catch_up(Random(3))
    database.execute("alter table t add column last text", "insert into t values (3, 'd', 1, 'e')")
    followed.catch_up()
    assert complete(followed, database)


def test_a_writer_that_holds_the_file_is_waited_for(tmp_path: Path) -> None:
    database = Database(tmp_path / "shop.db", "delete")
    database.execute("create table t (id integer primary key, v int)")
    followed = database.follow("t")
    followed.catch_up()
    database.execute("insert into t values (1, 1)", "begin exclusive", "insert into t values (2, 2)")
    ended = threading.Event()
    reader = threading.Thread(target=lambda: (followed.catch_up(), ended.set()))
    reader.start()
    assert not ended.is_set()
    database.execute("commit")
    reader.join(PATIENCE)
    followed.catch_up()
    assert complete(followed, database)
    database.close()


def test_an_index_over_expressions_is_warned_of(database: Database) -> None:
    database.execute("create table t (id integer primary key, v text)", "create unique index i on t (lower(v))")
    found = TriggersKind().check(replace(database.definition, tables=(T,)))
    assert any(each.level == "warning" and "expressions" in each.what for each in found)


@pytest.mark.parametrize(
    "statement", ["create table t (v int)", "create view t as select 1", "create virtual table t using fts5(v)"]
)
def test_what_cannot_be_followed_is_refused(database: Database, statement: str) -> None:
    database.execute(statement)
    definition = replace(database.definition, tables=(T,))
    assert any(each.level == "error" for each in TriggersKind().check(definition))
    with pytest.raises(NotFollowable):
        TriggersKind().set_up(definition)


def test_a_key_that_is_null_is_a_loud_stop(database: Database) -> None:
    database.execute("create table t (id text primary key, v int)", "insert into t values (null, 1)")
    with pytest.raises(NotFollowable, match="key is null"):
        database.follow("t").go_on()


def test_removing_leaves_nothing_and_may_be_done_twice(database: Database) -> None:
    database.execute("create table t (id integer primary key, v int unique)", "create table u (id integer primary key)")
    before = database.execute("select name from sqlite_master order by 1")
    database.follow("t", "u").catch_up()
    database.execute("insert into t values (1, 1)")
    assert len(TriggersKind().tear_down(database.definition)) == 3
    assert TriggersKind().tear_down(database.definition) == []
    left = database.execute("select name from sqlite_master where name not like 'sqlite_sequence' order by 1")
    assert left == before
    database.execute("insert into t values (2, 2)")


def test_what_will_be_done_is_shown_first_and_nothing_is_left_to_do_behind_it(database: Database) -> None:
    database.execute("create table t (id integer primary key, v int unique)")
    definition = replace(database.definition, tables=(T,))
    database.execute(*TriggersKind().statements(definition))
    assert TriggersKind().statements(definition) == []
    with pytest.raises(AlreadyThere, match="not this capture's"):
        TriggersKind().set_up(replace(definition, id="another home"))


def test_patterns_mean_tables_and_not_our_own(database: Database) -> None:
    database.execute("create table t (id integer primary key)", "create table Users (id integer primary key)")
    database.follow("t")
    assert TriggersKind().tables(database.definition, ["*"]) == [("main", "Users"), T]
    assert TriggersKind().tables(database.definition, ["main.users", "t"]) == [("main", "Users"), T]
    with pytest.raises(NotFound, match="nothing"):
        TriggersKind().tables(database.definition, ["nothing"])


def test_what_the_database_keeps_can_be_looked_at_and_removed_by_hand(database: Database) -> None:
    database.execute("create table t (id integer primary key, v int unique)")
    database.follow("t")
    kind = TriggersKind()
    assert kind.look(database.definition).trouble is None
    database.execute("drop trigger penstock_shop_t_after_update")
    assert "missing: t" in str(kind.look(database.definition).trouble)
    database.execute(*kind.leftovers(database.definition))
    assert "not there any more" in str(kind.look(database.definition).trouble)
    assert database.execute("select count(*) from sqlite_master where name like 'penstock%'") == [(0,)]


def drop_trigger(database: Database) -> None:
    database.execute("drop trigger penstock_shop_t_after_update")


def drop_outbox(database: Database) -> None:
    TriggersKind().tear_down(database.definition)


def make_anew(database: Database) -> None:
    TriggersKind().tear_down(database.definition)
    TriggersKind().set_up(database.definition)


def emptied_for_another_log(database: Database) -> None:
    database.execute("update penstock_shop_about set windows = windows + 1")


@pytest.mark.parametrize("how", [drop_trigger, drop_outbox, make_anew, emptied_for_another_log])
@pytest.mark.parametrize("running", [True, False])
def test_what_would_miss_changes_is_a_loud_stop(database: Database, how: Callable[[Database], None], running: bool) -> None:
    if running and how in (make_anew, emptied_for_another_log):
        pytest.skip("seen at the next start")
    database.execute("create table t (id integer primary key, v int)")
    followed = database.follow("t")
    followed.catch_up()
    database.execute("insert into t values (1, 1)")
    followed.catch_up()
    how(database)
    if not running:
        followed.kill()
    with pytest.raises(SlotLost, match=r"missing|does not have"):
        followed.go_on()


def test_a_file_that_is_replaced_while_it_is_followed_is_a_loud_stop(database: Database) -> None:
    database.execute("create table t (id integer primary key, v int)")
    followed = database.follow("t")
    followed.catch_up()
    shutil.copy(database.path, f"{database.path}.copy")
    os.replace(f"{database.path}.copy", database.path)
    with pytest.raises(NotFollowable, match="replaced"):
        followed.go_on()


def test_an_older_copy_in_the_place_of_the_file_is_a_loud_stop(tmp_path: Path) -> None:
    database = Database(tmp_path / "shop.db", "delete")
    database.execute("create table t (id integer primary key, v int)")
    followed = database.follow("t")
    database.execute("insert into t values (1, 1)")
    followed.catch_up()
    older = database.path.read_bytes()
    for number in range(2, 5):
        database.execute(f"insert into t values ({number}, 1)")
        followed.catch_up()
    followed.kill()
    database.path.write_bytes(older)
    with pytest.raises(NotFollowable, match="older copy"):
        followed.go_on()
    other = sqlite3.connect(database.path)
    for number in range(10, 20):  # and it has come further since
        other.execute("insert into t values (?, 1)", (number,))
    other.commit()
    other.close()
    followed.kill()
    with pytest.raises(NotFollowable, match="older copy"):
        followed.go_on()
    database.close()
