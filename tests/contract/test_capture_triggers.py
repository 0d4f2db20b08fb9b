"""A real PostgreSQL followed through triggers: nothing missed, nothing doubled, the changes of each row in their order."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
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
from contract.capture_databases import PostgresSchema, postgres_schema
from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import Inspecting, kind_of
from penstock.capture.port import Engine
from penstock.capture.postgres.kind import PostgresKind
from penstock.capture.triggers.kind import TriggersKind
from penstock.capture.triggers.postgres.engine import OutboxEngine, OutboxSource
from penstock.capture.triggers.postgres.outbox import BEFORE_ALL, Outbox, Place
from penstock.capture.triggers.postgres.position import NOTHING
from penstock.capture.triggers.postgres.setting_up import outbox_of
from penstock.errors import AlreadyThere, NotFollowable, SlotLost
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.capture import CaptureContract
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.waiting import until


class Database:
    """Tables of a test in a schema of their own, followed through triggers."""

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.name = server, f"t{uuid4().hex[:12]}"
        self.storage, self.followed = MemoryStorage(), list[Followed]()
        server.execute(f"create schema {self.name}")
        self.definition = CaptureDefinition(self.name, "triggers", server.url, ())

    def execute(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self.connect(autocommit=True) as connection:
            done = connection.execute(sql.encode(), values or None)
            while done.nextset():
                pass
            return done.fetchall() if done.description else []

    def connect(self, user: str = "postgres", autocommit: bool = False) -> "psycopg.Connection[tuple[Any, ...]]":
        url = self.server.url.replace("postgres@", f"{user}@")
        return psycopg.connect(url, autocommit=autocommit, options=f"-c search_path={self.name}")

    def follow(self, *tables: str, bound: int = 16 << 20, outbox: type[Outbox] = Outbox) -> Followed:
        self.definition = TriggersKind().set_up(replace(self.definition, tables=tuple((self.name, table) for table in tables)))
        self.followed.append(Followed(partial(self.opened, bound, outbox)))
        return self.followed[-1]

    def close(self) -> None:
        for each in self.followed:
            each.kill()

    def opened(self, bound: int = 16 << 20, outbox: type[Outbox] = Outbox) -> Engine:
        source = OutboxSource(self.definition.url, outbox_of(self.definition), self.definition.tables)
        return OutboxEngine(source, self.storage, partial(outbox, bound=bound))

    def table(self, table: str = "t", key: str = "id") -> dict[str, Any]:
        """The rows as they are, by their keys."""
        found = self.execute(f"select to_jsonb({table})::text from {table}")
        rows = [orjson.loads(text) for (text,) in found]
        return {orjson.dumps({key: row[key]}).decode(): row for row in rows}


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    made = Database(postgres)
    yield made
    made.close()
    TriggersKind().tear_down(made.definition)
    postgres.execute(f"drop schema {made.name} cascade")


def ops(followed: Followed) -> list[str]:
    return [change.op for change in followed.log]


def test_a_copy_and_then_every_change_are_the_table(database: Database) -> None:
    database.execute("create table t (id int primary key, v text); insert into t select i, 'first' from generate_series(1, 5000) i")
    followed = database.follow("t")
    database.execute("update t set v = 'between' where id < 10")
    followed.catch_up()
    assert followed.rows((database.name, "t")) == database.table()
    database.execute("insert into t values (9000, 'new'); update t set id = -id where id < 3; delete from t where id = 5")
    followed.catch_up()
    assert followed.rows((database.name, "t")) == database.table()
    assert sorted(ops(followed)[-6:]) == ["c", "c", "c", "d", "d", "d"]
    assert database.execute(f"select count(*) from {outbox_of(database.definition).quoted}.outbox") == [(0,)]


def test_rows_before_a_change_are_told_whole(database: Database) -> None:
    database.execute("create table t (id int primary key, v text)")
    followed = database.follow("t")
    database.execute("insert into t values (1, 'a'); update t set v = 'b'; delete from t")
    followed.catch_up()
    assert [(each.op, each.before, each.after) for each in followed.log] == [
        ("c", None, {"id": 1, "v": "a"}),
        ("u", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}),
        ("d", {"id": 1, "v": "b"}, None),
    ]


EVERY_TYPE = """
create type mood as enum ('sad', 'so "so"', 'hap,py');
create domain price as numeric(10, 2);
create type place as (street text, number int);
create table t (
    id int primary key, i2 int2, i8 int8, n numeric, f4 float4, f8 float8, b bool, s text, c char(5), v varchar(9), bytes bytea,
    d date, ts timestamp, tz timestamptz, ti time, itv interval, u uuid, j json, jb jsonb, m mood, p price, arr int[],
    texts text[][], r int4range, ip inet, money money, where_ place, stored int generated always as (id * 2) stored
);"""
VALUES = [
    r"""(1, -1, 9007199254740993, 12.500, 1.1, 0.1, true, 'it''s "q" \ , (x)', 'ab', 'v', '\x00ff5c22',
    '2024-02-29', '2024-02-29 12:00:00.5', '2024-02-29 12:00:00.25+02', '10:00', '1 mon 2 days 03:00:00',
    'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a": [1, null]}', '{"b":"\u00e4"}', 'so "so"', 1.5, '{1,null,3}',
    '{{a,"b c"},{null,"\\"}}', '[1,5)', '10.0.0.1/8', 12.34, row('x, "y"', 3))""",
    r"""(2, null, null, 'NaN', 'Infinity', '-0', false, '', '', '', '', 'infinity', '-infinity', 'infinity', null, '-1 day',
    null, 'null', 'null', 'hap,py', null, '{}', '{}', 'empty', null, null, row(null, null))""",
    r"""(3, null, null, null, null, null, null, E'line\nbreak\ttab', null, null, null, '0044-03-15 BC', '10000-01-01',
    null, null, null, null, null, null, null, null, null, null, null, null, null, null)""",
]
ODD = {
    "datestyle": "German",
    "timezone": "Asia/Tokyo",
    "intervalstyle": "iso_8601",
    "bytea_output": "escape",
    "extra_float_digits": "-3",
}
COLUMNS = "id, i2, i8, n, f4, f8, b, s, c, v, bytes, d, ts, tz, ti, itv, u, j, jb, m, p, arr, texts, r, ip, money, where_"


def test_every_value_looks_as_it_does_from_the_log_whatever_the_session_that_wrote_it(database: Database) -> None:
    database.execute(EVERY_TYPE)
    by_log = replace(database.definition, name=f"{database.name}log", engine="postgres", tables=((database.name, "t"),))
    by_log = PostgresKind().set_up(by_log)
    other = Followed(partial(PostgresKind().open, by_log, MemoryStorage()))
    try:
        database.execute(f"insert into t ({COLUMNS}) values {VALUES[0]}")  # both copy it
        followed = database.follow("t")
        for each in (followed, other):
            each.catch_up()
        with database.connect(autocommit=True) as connection:
            for name, value in ODD.items():
                connection.execute("select set_config(%s, %s, false)", (name, value))
            for values in VALUES[1:]:
                connection.execute(f"insert into t ({COLUMNS}) values {values}".encode())
            connection.execute("update t set s = coalesce(s, '') || '!' where id <> 2")
            connection.execute("update t set id = 20 where id = 2")
        for each in (followed, other):
            each.catch_up()
        assert followed.rows((database.name, "t")) == other.rows((database.name, "t"))
        assert len(followed.rows((database.name, "t"))) == 3
    finally:
        other.kill()
        PostgresKind().tear_down(by_log)


def add_one(database: Database, connection: "psycopg.Connection[Any]", *ids: int) -> None:
    for each in ids:
        connection.execute("update t set v = v + 1 where id = %s", (each,))


def in_order(followed: Followed) -> bool:
    """Whether the rows, which count up by one, were told so."""
    seen: dict[int, int] = {}
    for change in followed.log:
        number, value = change.after["id"], change.after["v"]
        if change.op == "r":
            seen[number] = value
        elif value != seen.get(number, 0) + 1:
            return False
        seen[number] = value
    return True


def complete(followed: Followed, database: Database) -> bool:
    return followed.rows((database.name, "t")) == database.table()


def one_commits_behind_one_with_a_greater_seq(database: Database, followed: Followed) -> None:
    with database.connect() as first, database.connect() as second:
        add_one(database, first, 1)
        add_one(database, second, 2)
        second.commit()
        followed.catch_up()
        first.commit()
    followed.catch_up()


def one_takes_its_id_early_and_changes_the_row_late(database: Database, followed: Followed) -> None:
    with database.connect() as early, database.connect() as late:
        early.execute("select pg_current_xact_id()")
        add_one(database, late, 1, 2)
        late.commit()
        add_one(database, early, 1)
        early.commit()
    followed.catch_up()


def one_takes_its_id_early_and_is_read_later(database: Database, followed: Followed) -> None:
    with database.connect() as early, database.connect() as late:
        early.execute("select pg_current_xact_id()")
        add_one(database, late, 1)
        late.commit()
        followed.catch_up()
        add_one(database, early, 1)
        early.commit()
        add_one(database, late, 1)
        late.commit()
    followed.catch_up()


HISTORIES = [
    one_commits_behind_one_with_a_greater_seq,
    one_takes_its_id_early_and_changes_the_row_late,
    one_takes_its_id_early_and_is_read_later,
]


class TestTriggers(CaptureContract):
    engine, connector = "triggers", "postgresql"

    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    def database(self, place: Path) -> AbstractContextManager[PostgresSchema]:
        return postgres_schema(self.postgres)


class BySeq(Outbox):
    """What has a greater seq than the last that was read."""

    _last = 0
    QUERY = "select seq, seq, txid::text, 0, shape, op, before, after from {schema}.outbox where {where} order by seq"

    def news(self, since: str) -> tuple[str, bool]:
        now, _ = super().news(since)
        return now, bool(self._rows(f"seq > {self._last}"))

    def read(self, earlier: str, later: str, after: Place = BEFORE_ALL, upto: Place | None = None) -> Iterator[tuple[bytes, bool]]:
        rows = self._rows(f"seq > {self._last}")
        if rows:
            type(self)._last = int(rows[-1].split(b",")[0].strip(b'"'))
            yield b"".join(rows), True

    def remove(self, seen: str, windows: int, behind: tuple[str, int]) -> tuple[str, int] | None:
        return super().remove(NOTHING, windows, behind)

    def _rows(self, where: str) -> Sequence[bytes]:
        query = self.QUERY.format(schema=self._schema, where=where)
        with self._connection.cursor().copy(f"copy ({query}) to stdout (format csv, force_quote *)".encode()) as copy:
            return [bytes(row) for row in copy]


class ByXid(BySeq):
    """What belongs to transactions older than all that run, in the order of their ids."""

    QUERY = """
        select dense_rank() over (order by txid) * 1000000 + seq, dense_rank() over (order by txid) * 1000000 + seq, txid::text, 0,
               shape, op, before, after
        from {schema}.outbox where txid < pg_snapshot_xmin(pg_current_snapshot()) and {where} order by txid, seq"""

    def _rows(self, where: str) -> Sequence[bytes]:
        return super()._rows(f"txid > '{self._last}'::xid8")

    def read(self, earlier: str, later: str, after: Place = BEFORE_ALL, upto: Place | None = None) -> Iterator[tuple[bytes, bool]]:
        rows = self._rows("")
        if rows:
            type(self)._last = int(rows[-1].split(b",")[2].strip(b'"'))
            yield b"".join(rows), True


@pytest.mark.parametrize("history", HISTORIES)
def test_transactions_that_commit_out_of_order_are_told_whole_and_in_the_order_of_each_row(
    database: Database, history: Any
) -> None:
    database.execute("create table t (id int primary key, v int); insert into t values (1, 0), (2, 0)")
    followed = database.follow("t")
    followed.catch_up()
    history(database, followed)
    assert in_order(followed)
    assert complete(followed, database)


@pytest.mark.parametrize("wrong", [BySeq, ByXid])
def test_an_outbox_read_by_seq_or_by_transaction_id_is_caught(database: Database, wrong: type[BySeq]) -> None:
    database.execute("create table t (id int primary key, v int); insert into t values (1, 0), (2, 0)")
    wrong._last = 0
    followed = database.follow("t", outbox=wrong)
    followed.catch_up()
    right = True
    for history in HISTORIES:
        history(database, followed)
        right = right and in_order(followed) and complete(followed, database)
    assert not right


def work(database: Database, seed: int, stop: threading.Event) -> None:
    """Counts rows up, several in a transaction, some rolled back, some with an id taken long before."""
    random = Random(seed)
    with database.connect() as connection:
        while not stop.is_set():
            try:
                if random.random() < 0.3:
                    connection.execute("select pg_current_xact_id()")
                for number in sorted(random.sample(range(1, 13), random.randrange(1, 4))):
                    with connection.transaction(force_rollback=random.random() < 0.1):
                        add_one(database, connection, number)
                connection.commit() if random.random() < 0.9 else connection.rollback()
            except psycopg.errors.DeadlockDetected:
                connection.rollback()


@pytest.mark.parametrize("seed", range(cases(3)))
def test_sessions_that_count_rows_up_are_followed_through_kills_at_every_step(database: Database, seed: int) -> None:
    database.execute("create table t (id int primary key, v int); insert into t select i, 0 from generate_series(1, 12) i")
    followed, stop, random = database.follow("t", bound=2_000), threading.Event(), Random(seed)
    writers = [threading.Thread(target=work, args=(database, 10 * seed + number, stop)) for number in range(5)]
    for writer in writers:
        writer.start()
    try:
        assert until(lambda: followed.go_on(0.05, random.choice([None, *KILLS])) and len(followed.log) > 600, PATIENCE)
    finally:
        stop.set()
        for writer in writers:
            writer.join(PATIENCE)
    followed.catch_up(random)
    assert in_order(followed)
    assert complete(followed, database)
    assert len(set(followed.ended)) == len(followed.ended)
    changed = sum(each.op == "u" for each in followed.log)
    assert changed == sum(row["v"] for row in database.table().values())  # none is missing, and none comes twice


def test_a_transaction_larger_than_memory_comes_in_parts_that_come_again_exactly(database: Database) -> None:
    database.execute("create table t (id int primary key, v text)")
    followed, random = database.follow("t", bound=10_000), Random(1)
    followed.catch_up()
    before = followed.batches
    with database.connect() as connection:
        connection.execute("insert into t select i, repeat('x', 50) from generate_series(1, 2000) i")
        database.execute("insert into t values (-1, 'other')")
        connection.execute("update t set v = 'y' where id > 1000")
    followed.catch_up(random)
    assert followed.batches > before + 10
    assert complete(followed, database)
    assert len({each.transaction for each in followed.log if each.op in "cu"}) == 2
    assert len(followed.ended) == len(set(followed.ended)) == 3  # the copy, too
    assert ops(followed).count("c") == 2001


@pytest.mark.parametrize("rows", [0, 3, 7000])
def test_a_copy_that_is_killed_goes_on_at_the_chunk_it_has_reached(database: Database, rows: int) -> None:
    database.execute(f"create table t (id int primary key, v int); insert into t select i, 0 from generate_series(1, {rows}) i")
    followed, random = database.follow("t"), Random(rows)
    while not followed.engine.status().caught_up:
        followed.go_on(0.0, random.choice([None, *KILLS]))
        database.execute(f"update t set v = v + 1 where id % 7 = {random.randrange(7)}; delete from t where id = {rows}")
    followed.catch_up(random)
    assert complete(followed, database)
    assert len([each for each in followed.log if each.op == "r"]) <= rows


def test_a_server_that_crashes_is_waited_for_and_nothing_is_lost(tmp_path: Path, postgres: PostgresServer) -> None:
    with PostgresServer(tmp_path) as server:
        database = Database(server)
        database.execute("create table t (id int primary key, v int); insert into t select i, 0 from generate_series(1, 12) i")
        followed, random = database.follow("t"), Random(5)
        for _ in range(3):
            database.execute("update t set v = v + 1")
            followed.go_on(1.0, random.choice([None, *KILLS]))
            database.execute("update t set v = v + 1 where id < 5")
            server.restart_at_once()
            followed.catch_up(random)
            assert in_order(followed)
            assert complete(followed, database)
        database.close()


def test_truncates_stand_where_they_happened(database: Database) -> None:
    database.execute("create table t (id int primary key); create table u (id int primary key)")
    followed = database.follow("t", "u")
    database.execute("insert into t values (1)")
    with database.connect() as connection:
        connection.execute("insert into u values (1)")
        connection.execute("truncate t, u")
        connection.execute("insert into t values (2)")
    followed.catch_up()
    found = [(each.op, each.table[1]) for each in followed.log if each.op != "r"]
    assert found[:2] + found[4:] == [("c", "t"), ("c", "u"), ("c", "t")]
    assert sorted(found[2:4]) == [("t", "t"), ("t", "u")]
    assert len({each.transaction for each in followed.log if each.op != "r"}) == 2


def test_columns_come_go_and_are_renamed_while_rows_of_both_shapes_wait(database: Database) -> None:
    database.execute("create table t (id int primary key, gone int, v text); insert into t values (1, 1, 'a')")
    followed = database.follow("t")
    followed.catch_up()
    database.execute("insert into t values (2, 2, 'b')")
    database.execute("alter table t drop column gone, add column more int default 7")
    database.execute("update t set v = 'c' where id = 1; alter table t rename v to w; update t set w = 'd' where id = 2")
    with database.connect() as connection:
        connection.execute("alter table t alter more type text")
        connection.execute("insert into t values (3, 'e', 'many')")
        connection.rollback()
    database.execute("insert into t values (3, 'e', 8)")
    followed.catch_up()
    assert followed.rows((database.name, "t")) == {
        '{"id":1}': {"id": 1, "v": "c", "more": 7},
        '{"id":2}': {"id": 2, "w": "d", "more": 7},
        '{"id":3}': {"id": 3, "w": "e", "more": 8},
    }


def test_a_partitioned_table_is_followed_under_its_own_name_also_where_partitions_are_written(database: Database) -> None:
    database.execute("create table t (id int primary key, v text) partition by range (id)")
    database.execute("create table t_low partition of t for values from (0) to (100)")
    database.execute("create table t_high (v text, id int not null)")  # its columns stand otherwise
    database.execute("alter table t attach partition t_high for values from (100) to (200)")
    followed = database.follow("t")
    database.execute(
        "insert into t values (1, 'a'), (150, 'b'); insert into t_high values ('c', 160); update t set id = 170 where id = 1"
    )
    database.execute("create table t_new partition of t for values from (200) to (300); insert into t_new values (250, 'd')")
    followed.catch_up()
    assert {each.table for each in followed.log} == {(database.name, "t")}
    assert complete(followed, database)


def test_what_the_triggers_of_others_change_comes_behind_what_made_them_do_so(database: Database) -> None:
    database.execute("create table t (id int primary key, v int)")
    database.execute("""
        create function more() returns trigger language plpgsql as $$ begin
            update t set v = v + 1 where v < 5 and (id = new.id or id = new.id + 1); return null; end $$""")
    database.execute("create trigger a_more after insert or update on t for each row execute function more()")
    followed = database.follow("t")
    followed.catch_up()
    database.execute("insert into t values (1, 1), (2, 1), (3, 1)")
    followed.catch_up()
    assert in_order(followed)
    assert complete(followed, database)


def test_what_the_triggers_of_others_change_is_put_in_order_where_they_came_later(database: Database) -> None:
    database.execute("create table t (id int primary key, v int)")
    followed = database.follow("t")
    database.execute("""
        create function more() returns trigger language plpgsql as $$ begin
            update t set v = v + 1 where v < 5 and id = new.id; return null; end $$""")
    database.execute("create trigger a_more after insert or update on t for each row execute function more()")
    followed.catch_up()
    database.execute("insert into t values (1, 1), (2, 1), (3, 1)")
    followed.catch_up()
    assert in_order(followed)
    assert complete(followed, database)


def test_an_application_that_has_no_rights_on_the_outbox_is_not_disturbed(database: Database) -> None:
    role = f"{database.name}_app"
    database.execute(f"create role {role} login; create table t (id int primary key, penstock_shape int, r text, n int, o int)")
    database.execute(f"grant usage on schema {database.name} to {role}; grant all on t to {role}")
    followed = database.follow("t")
    followed.catch_up()
    with database.connect(role, autocommit=True) as connection:
        connection.execute("insert into t values (1, 2, 'x', 3, 4)")
        connection.execute("update t set r = 'y'")
    followed.catch_up()
    assert ops(followed) == ["c", "u"]
    assert complete(followed, database)
    database.execute(f"drop owned by {role}; drop role {role}")


def test_tables_that_are_added_later_are_copied_while_others_are_followed(database: Database) -> None:
    database.execute("create table t (id int primary key, v int); create table u (id int primary key); insert into u values (1)")
    followed = database.follow("t")
    followed.catch_up()
    again = database.follow("t", "u")
    again.position, again.log = followed.position, followed.log
    database.execute("insert into t values (1, 1); insert into u values (2)")
    again.catch_up()
    assert complete(again, database)
    assert again.rows((database.name, "u")) == database.table("u")


def test_removing_leaves_nothing_and_may_be_done_twice(database: Database) -> None:
    database.execute("create table t (id int primary key); create table u (id int primary key)")
    database.follow("t", "u").catch_up()
    removed = TriggersKind().tear_down(database.definition)
    assert len(removed) == 3
    assert database.execute("select count(*) from pg_trigger where not tgisinternal and tgname like %s", f"!%{database.name}%") == [
        (0,)
    ]
    assert database.execute("select count(*) from pg_namespace where nspname = %s", outbox_of(database.definition).schema) == [(0,)]
    assert TriggersKind().tear_down(database.definition) == []
    database.execute("insert into t values (1)")


def test_what_will_be_done_is_shown_first_and_nothing_is_left_to_do_behind_it(database: Database) -> None:
    database.execute("create table t (id int primary key)")
    definition = replace(database.definition, tables=((database.name, "t"),))
    shown = TriggersKind().statements(definition)
    assert any("create trigger" in statement for statement in shown)
    for statement in shown:
        database.execute(statement)
    assert TriggersKind().statements(definition) == []
    database.definition = TriggersKind().set_up(definition)


def test_an_outbox_of_another_capture_of_this_name_is_left_alone(database: Database) -> None:
    database.execute("create table t (id int primary key)")
    database.follow("t")
    other = replace(database.definition, id="another home")
    with pytest.raises(AlreadyThere, match="not this capture's"):
        TriggersKind().set_up(other)
    assert TriggersKind().tear_down(other) == [f"schema {outbox_of(other).schema} was made by somebody else and stays"]


def test_a_table_without_a_key_is_refused_with_what_to_do(database: Database) -> None:
    database.execute("create table t (v int)")
    definition = replace(database.definition, tables=((database.name, "t"),))
    assert any(each.level == "error" and "no primary key" in each.what for each in TriggersKind().check(definition))
    with pytest.raises(NotFollowable, match="no primary key"):
        TriggersKind().set_up(definition)


def test_check_names_the_rights_that_are_missing(database: Database) -> None:
    role = f"{database.name}_reader"
    database.execute(
        f"create role {role} login; create table t (id int primary key); grant usage on schema {database.name} to {role}"
    )
    url = database.server.url.replace("postgres@", f"{role}@")
    found = TriggersKind().check(replace(database.definition, url=url, tables=((database.name, "t"),)))
    mends = [statement for finding in found if finding.level == "error" for statement in finding.mend]
    assert any(statement.startswith("grant create on database") for statement in mends)
    assert any("owner to" in statement for statement in mends)
    assert any(statement.startswith("grant select") for statement in mends)
    database.execute(f"drop owned by {role}; drop role {role}")


LOST = {
    "the outbox is dropped": "drop schema {outbox} cascade",
    "its triggers are dropped": 'drop trigger "!{schema}_update" on t',
    "its triggers are switched off": 'alter table t disable trigger "!{schema}_delete"',
    "all triggers are switched off": "alter table t disable trigger all",
    "the outbox was emptied for another log": "update {outbox}.about set windows = windows + 1",
    "the outbox is another one": "update {outbox}.about set id = gen_random_uuid()",
}


@pytest.mark.parametrize("how", LOST)
def test_what_would_miss_changes_is_a_loud_stop(database: Database, how: str) -> None:
    database.execute("create table t (id int primary key, v int); insert into t values (1, 1)")
    followed = database.follow("t")
    database.execute("update t set v = 2")
    followed.catch_up()
    sql = outbox_of(database.definition)
    database.execute(LOST[how].format(outbox=sql.quoted, schema=sql.schema))
    followed.kill()
    with pytest.raises(SlotLost, match=r"missing|does not have"):
        followed.go_on()


def test_a_database_that_was_restored_from_an_older_copy_is_a_loud_stop(database: Database) -> None:
    database.execute("create table t (id int primary key, v int); insert into t values (1, 1)")
    followed = database.follow("t")
    for _ in range(3):
        database.execute("update t set v = v + 1")
        followed.catch_up()
    database.execute(f"update {outbox_of(database.definition).quoted}.about set windows = 0")
    followed.kill()
    with pytest.raises(NotFollowable, match="restored from an older copy"):
        followed.go_on()


def test_what_the_database_keeps_can_be_looked_at_and_removed_by_hand(database: Database) -> None:
    database.execute("create table t (id int primary key)")
    database.follow("t")
    database.execute("insert into t values (1)")
    kind = TriggersKind()
    assert (kind.look(database.definition).kept_bytes or 0) > 0
    assert kind.look(database.definition).trouble is None
    database.execute("alter table t disable trigger all")
    assert f"{database.name}.t" in str(kind.look(database.definition).trouble)
    database.execute(*kind.leftovers(database.definition))
    assert "not there any more" in str(kind.look(database.definition).trouble)
    assert database.execute("select count(*) from pg_trigger where tgname like %s", f"!%{database.name}%") == [(0,)]


def test_the_kind_is_found_by_its_name() -> None:
    assert isinstance(kind_of("triggers"), TriggersKind)
    assert isinstance(kind_of("triggers"), Inspecting)
