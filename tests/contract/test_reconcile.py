"""Reconcile and repair of captures against a real PostgreSQL."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.capture.reconcile import (
    ReconcileProgress,
    ReconcileReport,
    comparing,
    csv_ranges,
    mending,
    reconcile,
    reconciling,
    repair,
)
from penstock.capture.reconcile.folding import Folded
from penstock.capture.reconcile.postgres_source import PostgresSnapshot
from penstock.capture.registry import LOCK
from penstock.errors import BadInput, InUse, NotFound, NotYet
from penstock.testing.servers.postgres import PostgresServer
from reconciled import Shop, kept, replacing, without, writing
from waiting import until

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
    assert found.equal
    assert found.first
    assert not found.first.equal
    assert found.repaired == 2
    more = made.records("users")[before:]
    assert [(each.value["op"], each.value["source"]["snapshot"]) for each in more] == [("r", "repair")] * 2
    assert made.folded("users") == made.rows("users")
    assert reconcile(made.of).equal


def test_an_extra_key_is_deleted_with_a_tombstone(shop: Made) -> None:
    made = shop()
    filled(made)
    made.catch_up(made.erring(replacing('"id":7,', '"id":7777,')))
    made.catch_up(made.erring(replacing('{"id":9}', '{"id":9999}')))
    made.sql("delete from {schema}.users where id in (5, 6)")
    made.catch_up(made.erring(without(5, 6)))
    before = len(made.records("users"))
    found = repair(made.of)
    assert found.equal
    assert found.first is not None
    (first,) = found.first.tables
    assert (first.missing, first.extra, first.different) == (0, 2, 1)
    more = made.records("users")[before:]
    assert [(each.key, each.value and each.value["op"]) for each in more[1:]] == [
        ('{"id":5}', "d"),
        ('{"id":5}', None),
        ('{"id":6}', "d"),
        ('{"id":6}', None),
    ]
    assert made.folded("users") == made.rows("users")


ALL = """
create type mood as enum ('sad', 'ok'); create domain price as numeric(10, 2); create type pair as (a int, b text);
create table "Odd ""Names" (
    "Key a" text collate "C", "select" date, n int, small smallint, big bigint, real_ real, double_ double precision, num numeric,
    price price,
    flag boolean, bytes bytea, day date, at timestamp, atz timestamptz, tod time, todz timetz, span interval, uid uuid,
    doc json, docb jsonb, tags text[], grid int[][], mood mood, moods mood[], span_ int4range, spans int4multirange, ip inet,
    pair pair, "source" text, "after" text, "op" text, "txId" bigint, bits bit(3), big_text text,
    twice int generated always as (n * 2) stored,
    primary key ("select", "Key a"));
alter table "Odd ""Names" alter big_text set storage external"""
ROW = """
insert into {schema}."Odd ""Names" ("Key a", "select", n, small, big, real_, double_, num, price, flag, bytes, day, at, atz, tod,
    todz, span, uid, doc, docb, tags, grid, mood, moods, span_, spans, ip, pair, "source", "after", "op", "txId", bits, big_text)
select 'k' || chr(9) || '"' || i, date '2000-01-01' + i, i, -i, 1::bigint << 40, i / 3.0::real,
    case i % 4 when 0 then 'NaN' when 1 then 'infinity' when 2 then -0.0 else 1e300 / i end, 12345678901234567890.123 * i,
    i / 3.0, i % 2 = 0, decode(lpad(to_hex(i), 8, '0'), 'hex'),
    case i % 3 when 0 then 'infinity' else date '1999-12-31' - i end, '-infinity',
    timestamptz '2020-02-29 12:00:00.123456+02' + i * interval '1 h',
    '23:59:59.5', '10:00+05:30', i * interval '1 day 2 seconds', gen_random_uuid(), '{"a": [1, "x", null]}', '{"b": {"c": 1e2}}',
    array['a"b', null, 'c,d'], array[[1, 2], [3, i]], 'ok', array['sad', 'ok']::{schema}.mood[], int4range(1, i + 1),
    int4multirange(int4range(1, 3), int4range(5, 7)), '10.0.0.1/24', row(i, 'q"')::{schema}.pair, ',"source":{', '},"after":',
    '},"op":"d"', 7, b'101', repeat(md5(i::text), 300)
from generate_series(1, {count}) i"""


def test_all_types_keys_of_several_columns_and_odd_names_are_compared_exactly(shop: Made) -> None:
    made = shop(ALL, ('Odd "Names',), partitions=3)
    made.sql(ROW.replace("{count}", "40"))
    made.catch_up()
    made.sql('update {schema}."Odd ""Names" set n = n + 1 where n % 3 = 0')  # what is large and stays is not sent
    made.sql(ROW.replace("{count}", "80").replace("generate_series(1,", "generate_series(41,"))
    found = reconcile(made.of)
    assert found.equal, found.tables[0].shown
    assert found.rows == 80
    made.sql('update {schema}."Odd ""Names" set "select" = "select" + 1000 where n = 50')
    made.catch_up(made.erring(lambda changes: kept(changes, [False] * len(changes))))
    (table,) = reconcile(made.of).tables
    assert (table.missing, table.extra, table.different) == (1, 1, 0)
    assert repair(made.of).equal
    assert reconcile(made.of).equal


def test_a_partitioned_table_is_compared_as_one(shop: Made) -> None:
    ddl = """create table events (id int, day date, v text, primary key (id, day)) partition by range (day);
        create table events_1 partition of events for values from ('2020-01-01') to ('2021-01-01');
        create table events_2 partition of events for values from ('2021-01-01') to ('2022-01-01')"""
    made = shop(ddl, ("events",))
    made.sql("insert into {schema}.events select i, date '2020-12-01' + i, 'v' from generate_series(1, 60) i")
    made.catch_up()
    made.sql("update {schema}.events set day = day + 30 where id < 10; delete from {schema}.events_2 where id > 50")
    found = reconcile(made.of)
    assert (found.equal, found.rows) == (True, 50)


def test_a_column_that_was_added_makes_a_difference_only_where_it_has_a_value(shop: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MANY", 50)
    monkeypatch.setattr(csv_ranges, "RANGE_ROWS", 70)
    made = shop()
    filled(made)
    made.catch_up()
    made.sql("alter table {schema}.users add extra int, drop bio")
    assert reconcile(made.of).equal
    made.sql("alter table {schema}.users add more int default 5")
    (table,) = reconcile(made.of).tables
    assert (table.rows, table.different) == (1000, 1000)
    columns = [each for difference in table.shown for each in difference.columns]
    assert {(each.name, each.source, each.log) for each in columns} == {("more", "5", None)}
    found = repair(made.of)
    assert (found.equal, found.repaired, found.rounds) == (True, 1000, 2)


def test_a_repair_of_more_than_is_looked_at_one_by_one_writes_each_row_once(shop: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MANY", 50)
    monkeypatch.setattr(csv_ranges, "RANGE_ROWS", 70)
    monkeypatch.setattr(mending, "BATCH_ROWS", 30)
    made = shop()
    filled(made)
    made.catch_up(made.erring(without(*range(1, 400))))
    made.sql("update {schema}.users set name = 'lost' where id > 500")
    made.catch_up(made.erring(lambda changes: kept(changes, [False] * len(changes))))
    made.sql("delete from {schema}.users where id between 401 and 450")
    made.catch_up(made.erring(lambda changes: kept(changes, [False] * len(changes))))
    found = repair(made.of)
    assert (found.equal, found.repaired) == (True, 399 + 500 + 50)
    marked = [each.key for each in made.records("users") if each.value and each.value["source"]["snapshot"] == "repair"]
    assert len(marked) == len(set(marked)) == 949
    assert made.folded("users") == made.rows("users")


def test_a_flat_topic_is_compared_and_repaired(shop: Made) -> None:
    made = shop(flat=True)
    filled(made)
    made.catch_up(made.erring(without(7)))
    made.sql("delete from {schema}.users where id = 9")
    made.catch_up(made.erring(without(9)))
    found = repair(made.of)
    assert (found.equal, found.repaired) == (True, 2)
    assert {f'{{"id":{key}}}': value for key, value in made.folded("users").items()} == made.rows("users")


def once(phase: str, work: Callable[[], object]) -> ReconcileReport:
    """Does something when a reconcile comes to this phase first."""
    done: list[str] = []

    def told(progress: ReconcileProgress) -> None:
        if progress.phase == phase and not done:
            done.append(phase)
            work()

    return told


def test_what_is_committed_behind_the_snapshot_makes_no_difference(shop: Made) -> None:
    made = shop()
    filled(made)
    made.catch_up()
    made.sql("update {schema}.users set name = 'x' where id = 1")
    newer = "insert into {schema}.users values (0, 'n', 'n'); update {schema}.users set name = 'y' where id < 9;"
    newer += "delete from {schema}.users where id = 5"
    found = reconcile(made.of, report=once("waiting", lambda: made.sql(newer)))
    assert found.equal
    assert found.rows == 1000
    assert '{"id":0}' in made.folded("users")  # the log has it, and the snapshot does not see it


def test_visibility_ignored_is_a_difference(shop: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shop()
    filled(made)
    made.catch_up()
    made.sql("update {schema}.users set name = 'x' where id = 1")
    monkeypatch.setattr(PostgresSnapshot, "sees", lambda self, xids, lsns: np.ones(len(xids), np.bool_))
    found = reconcile(made.of, report=once("waiting", lambda: made.sql("delete from {schema}.users where id = 5")))
    assert found.differences == 1


def test_a_repair_never_overwrites_a_newer_change(shop: Made) -> None:
    made = shop()
    filled(made)
    made.catch_up(made.erring(without(7, 8, 9)))
    made.sql("update {schema}.users set name = 'x' where id = 1")
    newer = "update {schema}.users set name = 'newer' where id = 7; delete from {schema}.users where id = 8"
    found = repair(made.of, report=once("waiting", lambda: made.sql(newer)))
    assert found.equal
    assert found.first is not None
    assert found.first.tables[0].missing == 3
    assert found.repaired == 1
    said = [(each.key, each.value and each.value["op"]) for each in made.records("users") if each.key in ('{"id":7}', '{"id":8}')]
    assert said == [('{"id":7}', "u"), ('{"id":8}', "d"), ('{"id":8}', None)]
    assert made.folded("users") == made.rows("users")


def test_a_repair_that_ignores_what_is_newer_would_go_back(shop: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shop()
    filled(made)
    made.catch_up(made.erring(without(7)))
    made.sql("update {schema}.users set name = 'x' where id = 1")
    monkeypatch.setattr(Folded, "has_newer", lambda self, keys: np.zeros(len(keys), np.bool_))
    monkeypatch.setattr(reconciling, "ROUNDS", 1)
    newer = "update {schema}.users set name = 'newer' where id = 7"
    repair(made.of, report=once("waiting", lambda: made.sql(newer)))
    assert made.folded("users")['{"id":7}']["name"] == "name 7"


def test_four_writers_and_a_capture_that_runs_make_no_difference(shop: Made) -> None:
    made = shop()
    filled(made)
    with made.running(), writing(made, 4) as written:
        for _ in range(4):
            before = written()
            found = reconcile(made.of)
            assert found.equal, found.tables[0].shown
            assert until(lambda before=before: written() > before + 20)  # type: ignore[misc]
    assert reconcile(made.of).equal
    assert made.folded("users") == made.rows("users")


def test_a_repair_beside_four_writers_ends_equal(shop: Made) -> None:
    made = shop()
    filled(made, 1300)
    made.catch_up(made.erring(without(*range(1, 1300, 7), *range(1200, 1250))))
    with writing(made, 4) as written:
        assert until(lambda: written() > 50)
        found = repair(made.of)
        assert found.equal, found.tables[0].shown
        assert found.repaired >= 50  # of keys that nobody changes
    made.catch_up()
    assert made.folded("users") == made.rows("users")
    assert reconcile(made.of).equal


def test_a_capture_that_runs_elsewhere_is_waited_for_and_not_repaired(shop: Made) -> None:
    made = shop()
    filled(made)
    with made.of.storage.lock(LOCK, wait=False) as mine:
        assert mine
        with pytest.raises(NotYet, match="has not come as far as its source"):
            reconcile(made.of, patience=0.1)
        with pytest.raises(InUse):
            repair(made.of)
    with made.running():
        assert reconcile(made.of).equal
        assert until(lambda: made.folded("users") == made.rows("users"))
        with pytest.raises(InUse):
            repair(made.of, patience=0.1)


def test_a_table_that_is_not_followed_is_refused(shop: Made) -> None:
    made = shop()
    with pytest.raises(NotFound, match="does not follow table public"):
        reconcile(made.of, [("public", "nothing")])


class Killed(Exception):
    """As a kill would end it."""


@pytest.mark.parametrize("point", ["capture.begun", "capture.appended", "capture.ended"])
@pytest.mark.parametrize("then", ["run", "repair"])
def test_a_repair_that_was_killed_is_finished_by_the_next_start(shop: Made, point: str, then: str) -> None:
    made = shop(partitions=3)
    filled(made)
    made.catch_up(made.erring(without(7, 8, 9, 10)))

    def kill(passed: str) -> None:
        if passed == point:
            raise Killed

    with pytest.raises(Killed):
        repair(replace(made.of, fail=kill))
    if then == "run":
        made.sql("update {schema}.users set name = 'later' where id = 7")
        made.catch_up()
        assert made.folded("users") == made.rows("users")
    found = repair(made.of)
    assert (found.equal, found.repaired) == (True, 0)
    marked = [each.key for each in made.records("users") if each.value["source"]["snapshot"] == "repair"]
    assert sorted(marked) == ['{"id":10}', '{"id":7}', '{"id":8}', '{"id":9}']
    assert made.of.storage.list("repairs") == []


def test_an_outbox_that_triggers_fill_is_compared_and_repaired(shop: Made) -> None:
    made = shop(engine="triggers")
    filled(made)
    made.catch_up(made.erring(without(7, 8)))
    made.sql("update {schema}.users set name = 'x' where id = 1; delete from {schema}.users where id = 2")
    newer = "update {schema}.users set name = 'newer' where id = 7; delete from {schema}.users where id = 9"
    found = repair(made.of, report=once("waiting", lambda: made.sql(newer)))
    assert found.first is not None
    assert (found.equal, found.repaired, found.first.tables[0].missing) == (True, 1, 2)
    assert made.folded("users") == made.rows("users")
    assert reconcile(made.of).equal


def test_an_outbox_is_compared_while_four_writers_and_the_capture_go_on(shop: Made) -> None:
    made = shop(engine="triggers")
    filled(made)
    with made.running(), writing(made, 4) as written:
        for _ in range(3):
            before = written()
            found = reconcile(made.of)
            assert found.equal, found.tables[0].shown
            assert until(lambda before=before: written() > before + 20)  # type: ignore[misc]
    assert reconcile(made.of).equal
    assert made.folded("users") == made.rows("users")


@pytest.mark.parametrize("engine", ["poll", "debezium"])
def test_captures_that_do_not_say_what_a_snapshot_sees_are_refused(shop: Made, engine: str) -> None:
    made = shop()
    with pytest.raises(BadInput, match="cannot be reconciled"):
        reconcile(replace(made.of, definition=replace(made.definition, engine=engine)))


def test_copies_are_finished_before_the_snapshot_is_taken(shop: Made) -> None:
    made = shop()
    filled(made)
    found = reconcile(made.of, report=once("waiting", lambda: made.sql("insert into {schema}.users values (0, 'n', 'n')")))
    assert (found.equal, found.rows) == (True, 1001)


def test_a_copy_taken_for_older_than_the_snapshot_is_a_difference(shop: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a row that is changed before it is copied, the log has nothing that an earlier snapshot sees."""
    made = shop(USERS + "; insert into users values (1, 'n', 'n'), (2, 'n', 'n')")
    monkeypatch.setattr(PostgresSnapshot, "copied", lambda self, state, tables: True)
    found = reconcile(made.of, report=once("waiting", lambda: made.sql("update {schema}.users set name = 'm' where id = 1")))
    assert found.tables[0].missing == 1


def test_a_log_that_is_taken_for_further_than_it_is_lacks_rows(shop: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shop()
    filled(made)
    made.catch_up()
    made.sql("insert into {schema}.users values (0, 'n', 'n')")
    monkeypatch.setattr(PostgresSnapshot, "reached", lambda self, state: True)
    assert reconcile(made.of).tables[0].missing == 1


def test_a_table_that_is_not_read_to_its_end_is_read_again_at_the_same_snapshot(
    shop: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "MANY", 5)
    monkeypatch.setattr(csv_ranges, "RANGE_ROWS", 10)
    made = shop()
    large = "repeat('b', 50000)"  # so that there is more than sockets hold
    made.sql(f"insert into {{schema}}.users select i, 'n', {large} from generate_series(1, 600) i")
    made.catch_up()
    made.sql("alter table {schema}.users add more int")
    assert reconcile(made.of).equal
